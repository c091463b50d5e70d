"""Results known at conversion time: whoever uses one is bound with a constant of the file in its place.

The operator that makes it stays, for it may be a graph output too; where it is not, none of its nodes are needed.
"""

from __future__ import annotations

from dataclasses import replace

from onnx_tflite_plugin.bound import Bound
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.source.model import Array, Data, Operator, Tensor


class _Evaluated(Data):
    """A value there already."""

    def __init__(self, array: Array) -> None:
        self.array = array


class Known:
    """The known results of one subgraph, learnt in the order of its operators."""

    def __init__(self) -> None:
        self._constants: dict[Tensor, Tensor] = {}

    def applied(self, op: Operator) -> Operator:
        """The operator with the constants it is given."""
        if self._constants.keys().isdisjoint(tensor for tensor in op.inputs if tensor is not None):
            return op
        return replace(op, inputs=tuple(None if t is None else self._constants.get(t, t) for t in op.inputs))

    def learn(self, bound: Bound) -> None:
        """Keep the result of an operator whose handler knows it. Raises HandlerError where it contradicts the file."""
        if bound.handler.evaluate is None:
            return
        try:
            array = bound.handler.evaluate(bound.op)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise _wrong(
                bound, f"handler {bound.handler.name} of {bound.pack} failed: {type(error).__name__}: {error}"
            ) from error
        if array is None:
            return
        tensor = bound.op[~0]
        if array.dtype.name != tensor.dtype or (tensor.static and array.shape != tensor.shape):
            made, wanted = f"{array.dtype.name} {list(array.shape)}", f"{tensor.dtype} {list(tensor.shape)}"
            raise _wrong(
                bound, f"handler {bound.handler.name} of {bound.pack} evaluates it to {made}, the tensor is {wanted}"
            )
        self._constants[tensor] = replace(tensor, shape=array.shape, dims=array.shape, data=_Evaluated(array))


def _wrong(bound: Bound, reason: str) -> HandlerError:
    return HandlerError("the model cannot be converted:", [Problem(bound.label, reason, f"report it to {bound.pack}")])
