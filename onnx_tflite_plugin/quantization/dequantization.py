"""Models without quantization, for ``--quantization float``.

Every quantized tensor becomes float32, and constants are dequantized. Nothing is rounded or saturated, so results match
the network before quantization except for the rounding of its weights. TFLite's converter and quantization-aware
training replace RELU and RELU6 with saturation at a range that begins at 0. The operator gets its activation back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

import numpy as np

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.activation import activation_declaration, resolve_activation
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import OperatorInstance, check_acceptance
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.quantization.storage import data_slots
from onnx_tflite_plugin.source.affine import affine, bias_scale, dequantize_constant
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Array, Data, Operator, Tensor


class LazyArray(Data):
    """Constant data computed on first use."""

    def __init__(self, compute: Callable[[], Array]) -> None:
        self._compute = compute

    @cached_property
    def array(self) -> Array:
        return self._compute()


def dequantize_model(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """Return the model with float32 instead of quantized tensors.

    The caller must resolve the declarations again. Raises HandlerError for operators whose results depend on the
    quantized values themselves.
    """
    return ModelDequantizer(target, opset).dequantize(model)


class ModelDequantizer:
    """Dequantizes each tensor of a model once.

    A subclass may override the replacement of a tensor (:meth:`float_tensor`).
    """

    def __init__(self, target: Target, opset: int) -> None:
        self.target, self.opset = target, opset
        self.dequantized: dict[Tensor, Tensor] = {}
        self.problems: list[Problem] = []

    def dequantize(self, model: BoundModel) -> BoundModel:
        """Return the model with float32 tensors.

        Raises HandlerError with every operator that does not accept them.
        """
        graphs = tuple(self.dequantize_graph(graph) for graph in model.graphs)
        if self.problems:
            raise HandlerError("operators that cannot be converted without quantization:", self.problems)
        return replace(model, graphs=graphs)

    def dequantize_graph(self, graph: BoundGraph) -> BoundGraph:
        subgraph = graph.subgraph
        float_subgraph = replace(
            subgraph,
            inputs=self.dequantize_tensors(subgraph.inputs),
            outputs=self.dequantize_tensors(subgraph.outputs),
            operators=tuple(self.dequantize_op(op) for op in subgraph.operators),
        )
        return replace(
            graph,
            subgraph=float_subgraph,
            operators=tuple(self.dequantize_bound(bound) for bound in graph.operators),
        )

    def dequantize_bound(self, bound: Bound) -> Bound:
        op = bound.op
        runtime_tensors = [t for t in (*op.inputs, *op.outputs) if t is not None and not t.is_constant]
        if any(t.dtype == "float32" for t in runtime_tensors) and not any(affine(t) for t in runtime_tensors):
            return bound  # only the weights are quantized, and the handler dequantizes them
        behavior = bound.declared.quantization
        biases = behavior.biases
        inputs = tuple(
            self.dequantize_bias(op, slot, biases[slot])
            if tensor is not None and slot in biases
            else self.dequantize_tensor(tensor)
            for slot, tensor in enumerate(op.inputs)
        )
        float_op = replace(op, inputs=inputs, outputs=tuple(self.dequantize_tensor(tensor) for tensor in op.outputs))
        if not behavior.moves_values:
            float_op = self.with_implied_activation(bound, float_op)
        if behavior.keeps_file_values and not bound.declared.accesses_states:
            self.check_uses_real_values(bound)
        self.check_accepted(bound, float_op)
        members = tuple(float_op if member is op else member for member in bound.members)
        return replace(bound, op=float_op, members=members, resolved=None)

    def dequantize_op(self, op: Operator) -> Operator:
        """Return an operator before fusion, with float32 in place of quantized tensors."""
        return replace(
            op,
            inputs=tuple(map(self.dequantize_tensor, op.inputs)),
            outputs=tuple(map(self.dequantize_tensor, op.outputs)),
        )

    def with_implied_activation(self, bound: Bound, float_op: Operator) -> Operator:
        """Return the float operator with the activation that its output range implies."""
        declared = activation_declaration(bound.handler)
        if declared is None or float_op.options.get(declared.option) != "NONE":
            return float_op
        implied = _implied_activation(bound.op.outputs[0])
        activated = replace(
            float_op, options=float_op.options.with_fields({**float_op.options, declared.option: implied})
        )
        try:
            effective = resolve_activation(
                bound.handler, bound.pack, OperatorInstance(activated, self.target, self.opset)
            )
        except Failed:  # reported by check_accepted
            return float_op
        return activated if effective == activated else float_op

    def check_accepted(self, bound: Bound, float_op: Operator) -> None:
        """Add a problem if the handler does not accept the operator without quantization."""
        try:
            decline = check_acceptance(bound.handler, bound.pack, OperatorInstance(float_op, self.target, self.opset))
        except Failed as failed:
            self.problems.append(failed.problem(bound.label))
        else:
            if decline is not None:
                self.problems.append(Problem(bound.label, decline.reason))

    def check_uses_real_values(self, bound: Bound) -> None:
        """Add a problem if the operator computes on quantized values, not on real values."""
        overridden_slots = bound.declared.output_quantization
        slots = [slot for slot in data_slots(bound) if slot not in overridden_slots]
        tensors = [t for slot in slots if (t := bound.op.tensor(slot)) is not None]
        if any(map(affine, tensors)):
            names = ", ".join(f"{t.name!r} ({t.dtype})" for t in tensors)
            self.problems.append(Problem(bound.label, f"the operator computes on quantized values: {names}"))

    def dequantize_tensors(self, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return tuple(self.dequantize_tensor(tensor) or tensor for tensor in tensors)

    def dequantize_tensor(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or affine(tensor) is None:
            return tensor
        if tensor not in self.dequantized:
            self.dequantized[tensor] = self.float_tensor(tensor)
        return self.dequantized[tensor]

    def float_tensor(self, tensor: Tensor) -> Tensor:
        """Return the float32 tensor that replaces a quantized one."""
        data = LazyArray(lambda: dequantize_constant(tensor)) if tensor.is_constant else None
        return replace(tensor, dtype="float32", quantization=None, data=data)

    def dequantize_bias(self, op: Operator, slot: int, factors: tuple[int, int | float]) -> Tensor:
        """Return the bias in float, scaled by input scale x weight scale.

        Kernels ignore the scale that the file stores for a bias.
        """
        tensor, scale = op[slot], bias_scale(op, factors)
        if scale is None or "int" not in tensor.dtype or not tensor.is_constant:
            return tensor
        data = LazyArray(lambda: (tensor.array.astype(np.float64) * scale).astype(np.float32))
        return replace(tensor, dtype="float32", quantization=None, data=data)


def _implied_activation(tensor: Tensor | None) -> str:
    """Return RELU6 for a range 0 to 6, RELU for a range from 0, else "NONE"."""
    quantization = None if tensor is None else affine(tensor)
    if tensor is None or quantization is None or quantization.per_axis or tensor.dtype not in INTEGER_RANGE:
        return "NONE"
    lowest, highest = INTEGER_RANGE[tensor.dtype]
    scale, zero_point = float(quantization.scale[0]), int(quantization.zero_point[0])
    if zero_point != lowest:
        return "NONE"
    return "RELU6" if abs((highest - zero_point) * scale - 6) < scale else "RELU"
