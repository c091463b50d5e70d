"""Models requantized to symmetric int8, for ``--quantization symmetric``.

Every 8-bit tensor becomes float32. Activations are quantized to int8 with a zero point of 0, over the range of the
file's parameters, and dequantized at once. Constants stay int8 before a DequantizeLinear. Asymmetric weights get one
scale per channel, because one symmetric scale per tensor could double their range. Operators compute in float between
DequantizeLinear and QuantizeLinear. Runtimes with symmetric int8 kernels, such as TensorRT, fuse these three nodes.
Results lose up to one bit, because half of the range is unused if an activation has only one sign.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnx_tflite_plugin.api.notation import parse_axes
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.quantization.dequantization import LazyArray, ModelDequantizer
from onnx_tflite_plugin.source.affine import affine, dequantize_constant
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Quantization, Tensor, Widening

MAX_INT8 = 127
"""Maximum magnitude of symmetric int8, which does not use -128."""


def make_symmetric(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """Return the model with symmetric int8 instead of 8-bit quantization.

    The caller must resolve the declarations again. Raises HandlerError for operators whose results depend on the
    quantized values themselves.
    """
    return _SymmetricQuantizer(target, opset, model).dequantize(model)


def symmetric_range(quantization: Quantization, dtype: str) -> Quantization:
    """Return int8 parameters with a zero point of 0 that cover a per-tensor range."""
    (scale,), (zero_point,) = quantization.scale, quantization.zero_point
    max_distance = max(abs(bound - zero_point) for bound in INTEGER_RANGE[dtype])
    # For a range with only one sign, the scale doubles exactly: 255 steps would give 255 / 127.
    return Quantization((float(np.float32(scale * min(max_distance, 2 * MAX_INT8) / MAX_INT8)),), (0,))


def symmetric_constant(tensor: Tensor, channel_axis: int | None = None) -> Tensor:
    """Return the constant as int8 with zero points of 0, requantized if needed.

    ``channel_axis``: axis with one scale per channel if the tensor is requantized; None for one scale.
    """
    quantization = affine(tensor)
    assert quantization is not None
    if tensor.dtype == "int8" and not any(quantization.zero_point):
        return tensor
    if tensor.dtype == "uint8" and set(quantization.zero_point) == {128}:
        shifted = replace(quantization, zero_point=(0,) * len(quantization.zero_point))
        data = LazyArray(lambda: (tensor.array.astype(np.int16) - 128).astype(np.int8))
        return replace(tensor, dtype="int8", quantization=shifted, data=data)
    values = np.abs(dequantize_constant(tensor))
    other_axes = None if channel_axis is None else tuple(axis for axis in range(tensor.rank) if axis != channel_axis)
    magnitudes = values.max(axis=other_axes, keepdims=True, initial=0)
    scale = (np.where(magnitudes > 0, magnitudes, 1) / MAX_INT8).astype(np.float32)
    data = LazyArray(lambda: np.rint(dequantize_constant(tensor) / scale).astype(np.int8))
    scales = tuple(map(float, scale.reshape(-1)))
    symmetric = Quantization(scales, (0,) * len(scales), channel_axis or 0)
    return replace(tensor, dtype="int8", quantization=symmetric, data=data)


class _SymmetricQuantizer(ModelDequantizer):
    """Requantizes 8-bit tensors to symmetric int8; dequantizes all other tensors."""

    def __init__(self, target: Target, opset: int, model: BoundModel) -> None:
        super().__init__(target, opset)
        self.unread_outputs = _unread_outputs(model)
        self.channel_axes = _channel_axes(model)

    def float_tensor(self, tensor: Tensor) -> Tensor:
        float_tensor, quantization = super().float_tensor(tensor), affine(tensor)
        if quantization is None or tensor.dtype not in ("int8", "uint8"):
            return float_tensor
        if tensor.is_constant and tensor in self.channel_axes:
            stored = symmetric_constant(tensor, self.channel_axes[tensor])
            return replace(float_tensor, data=Widening(stored, lambda: dequantize_constant(stored)))
        if tensor.is_constant or quantization.per_axis or tensor in self.unread_outputs:
            return float_tensor
        return replace(float_tensor, fake_quantization=symmetric_range(quantization, tensor.dtype))


def _channel_axes(model: BoundModel) -> dict[Tensor, int | None]:
    """Return the channel axis of each operand that kernels multiply by its scale.

    The axis is None if readers disagree. Operands of kernels that compute in float, such as recurrent layers, are
    skipped.
    """
    operands: set[Tensor] = set()
    axes: dict[Tensor, set[int | None]] = {}
    for bound in model.operators():
        rescales = bound.declared.quantization.rescales and bound.declared.effects is None
        for slot, tensor in enumerate(bound.op.inputs):
            if tensor is not None:
                axes.setdefault(tensor, set()).add(_channel_axis(bound, slot) if rescales else None)
                operands.update([tensor] if rescales else [])
    return {tensor: axes[tensor].pop() if len(axes[tensor]) == 1 else None for tensor in operands}


def _channel_axis(bound: Bound, slot: int) -> int | None:
    """Return the axis that the weights share with the bias; None if there is none."""
    bias_slots = [bias for bias, factors in bound.declared.quantization.biases.items() if factors[1] == slot]
    if not bias_slots or bound.declared.axes is None:
        return None
    inputs, _ = parse_axes(bound.declared.axes)
    weight, bias = (inputs[k] if k < len(inputs) else None for k in (slot, bias_slots[0]))
    return weight.index(bias[-1]) if weight and bias and bias[-1] in weight else None


def _unread_outputs(model: BoundModel) -> frozenset[Tensor]:
    """Return the graph outputs that no operator reads, which need not be rounded."""

    def operands(graph: BoundGraph) -> set[Tensor]:
        return {tensor for bound in graph.operators for tensor in bound.op.inputs if tensor is not None}

    return frozenset(model.main.outputs).difference(*map(operands, model.graphs))
