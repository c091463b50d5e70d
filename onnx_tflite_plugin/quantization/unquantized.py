"""A quantized model without quantization: what ``--quantization float`` converts.

Every quantized tensor becomes float32, a constant dequantized. Nothing is rounded and
nothing saturates, so the results are those of the network that was quantized, up to the rounding of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import At, accepted
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.quantization.plan import data_slots
from onnx_tflite_plugin.source.affine import affine, dequantized
from onnx_tflite_plugin.source.model import Array, Data, Operator, Tensor


class _Dequantized(Data):
    """Computed when first asked for."""

    def __init__(self, compute: Callable[[], Array]) -> None:
        self._compute = compute

    @cached_property
    def array(self) -> Array:
        return self._compute()


def unquantized(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """The model with float32 in place of quantized tensors; its declarations are to be read anew.

    Raises HandlerError for operators whose results hang on the stored integers themselves.
    """
    work = _Unquantizing(target, opset)
    graphs = tuple(work.graph(graph) for graph in model.graphs)
    if work.problems:
        raise HandlerError("operators that have no meaning without quantization:", work.problems)
    return replace(model, graphs=graphs)


class _Unquantizing:
    """One model's tensors, each dequantized once."""

    def __init__(self, target: Target, opset: int) -> None:
        self.target, self.opset = target, opset
        self.dequantized: dict[Tensor, Tensor] = {}
        self.problems: list[Problem] = []

    def graph(self, graph: BoundGraph) -> BoundGraph:
        given = graph.subgraph
        subgraph = replace(
            given,
            inputs=self.tensors(given.inputs),
            outputs=self.tensors(given.outputs),
            operators=tuple(self.operator(op) for op in given.operators),
        )
        return replace(graph, subgraph=subgraph, operators=tuple(self.bound(bound) for bound in graph.operators))

    def bound(self, bound: Bound) -> Bound:
        op = bound.op
        computed = [t for t in (*op.inputs, *op.outputs) if t is not None and not t.constant]
        if any(t.dtype == "float32" for t in computed) and not any(affine(t) for t in computed):
            return bound  # its weights alone are quantized, and become float as they always do
        behaviour = bound.declared.quantization
        biases = behaviour.biases
        inputs = tuple(
            self.bias(op, tensor, *biases[slot]) if tensor is not None and slot in biases else self.tensor(tensor)
            for slot, tensor in enumerate(op.inputs)
        )
        plain = replace(op, inputs=inputs, outputs=tuple(self.tensor(tensor) for tensor in op.outputs))
        if behaviour.keeps_file_values and not bound.declared.hands_on:
            self.check_stored(bound)
        self.check_accepted(bound, plain)
        members = tuple(plain if member is op else member for member in bound.members)
        return replace(bound, op=plain, members=members, resolved=None)

    def operator(self, op: Operator) -> Operator:
        """As it stands in its subgraph, which callers look into."""
        return replace(op, inputs=tuple(map(self.tensor, op.inputs)), outputs=tuple(map(self.tensor, op.outputs)))

    def check_accepted(self, bound: Bound, plain: Operator) -> None:
        """Its handler must take the operator without quantization too."""
        try:
            declined = accepted(bound.handler, bound.pack, At(plain, self.target, self.opset))
        except Failed as failed:
            self.problems.append(failed.problem(bound.label))
        else:
            if declined is not None:
                self.problems.append(Problem(bound.label, declined.reason))

    def check_stored(self, bound: Bound) -> None:
        """Stored integers that something is computed of have no counterpart in float."""
        own = bound.declared.output_quantization
        tensors = [t for slot in data_slots(bound) if slot not in own and (t := bound.op.tensor(slot)) is not None]
        if any(map(affine, tensors)):
            names = ", ".join(f"{t.name!r} ({t.dtype})" for t in tensors)
            self.problems.append(Problem(bound.label, f"it computes with stored integers: {names}"))

    def tensors(self, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self.tensor(tensor) or tensor for tensor in tensors)

    def tensor(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or affine(tensor) is None:
            return tensor
        if tensor not in self.dequantized:
            data = _Dequantized(lambda: dequantized(tensor)) if tensor.constant else None
            self.dequantized[tensor] = replace(tensor, dtype="float32", quantization=None, data=data)
        return self.dequantized[tensor]

    def bias(self, op: Operator, tensor: Tensor, first: int, second: int) -> Tensor:
        """A bias has the scale of input times weight, whatever the file says (as the kernels have it)."""
        x, w = affine(op[first]), affine(op[second])
        if x is None or w is None or "int" not in tensor.dtype or not tensor.constant:
            return tensor
        scale = x.scale[0] * np.asarray(w.scale)
        data = _Dequantized(lambda: (tensor.array.astype(np.float64) * scale).astype(np.float32))
        return replace(tensor, dtype="float32", quantization=None, data=data)
