"""Results known at conversion time: whoever uses one is bound with a constant of the file in its place.

The operator that makes it stays, for it may be a graph output too; where it is not, none of its nodes are needed.
"""

from __future__ import annotations

from dataclasses import replace

from onnx_tflite_plugin.api.declarations import Widened
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import At, evaluated
from onnx_tflite_plugin.errors import REFUSED, HandlerError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.source.affine import dequantized, quantized
from onnx_tflite_plugin.source.model import Array, Data, Operator, Tensor, Widening, agree
from onnx_tflite_plugin.targets import Target


class Evaluated(Data):
    """A value there already."""

    def __init__(self, array: Array) -> None:
        self.array = array


class Evaluation:
    """The known results of one subgraph, learnt in the order of its operators."""

    def __init__(self) -> None:
        self._constants: dict[Tensor, Tensor] = {}

    def applied(self, op: Operator) -> Operator:
        """The operator with the constants it is given."""
        if self._constants.keys().isdisjoint(tensor for tensor in op.inputs if tensor is not None):
            return op
        return replace(op, inputs=tuple(None if t is None else self._constants.get(t, t) for t in op.inputs))

    def learn(self, bound: Bound, target: Target, opset: int) -> None:
        """Keep the result of an operator whose handler knows it. Raises HandlerError where it contradicts the file."""
        try:
            array = evaluated(bound.handler, bound.pack, At(bound.op, target, opset))
        except Failed as failed:
            raise HandlerError(REFUSED, [failed.problem(bound.label)]) from failed
        if array is not None:
            tensor = bound.op[~0]
            if isinstance(array, Widened):
                narrower = bound.op[array.slot]
                held = widening(narrower, tensor.dtype)
                dims = narrower.dims if agree(narrower.dims, tensor.dims) else tensor.dims
                self._constants[tensor] = replace(tensor, dims=dims, data=held)  # a constant has no open sizes
                return
            self._constants[tensor] = replace(tensor, shape=array.shape, dims=array.shape, data=Evaluated(array))


def widening(source: Tensor, dtype: str) -> Widening:
    """A constant, dequantized where it is quantized, in ``dtype``."""

    def compute() -> Array:
        array = dequantized(source) if quantized(source) else source.array
        return array.astype(dtype)

    return Widening(source, compute)
