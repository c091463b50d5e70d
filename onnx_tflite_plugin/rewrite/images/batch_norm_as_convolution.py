"""A quantized scale and offset per channel, as batch normalization leaves them where it could not be folded, are two
element-wise kernels over the whole tensor. One depthwise 1 x 1 convolution does both, and rounds and clips once instead
of twice.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import BLOCK, Affine, Editor, only_user, rewrite_nodes
from onnx_tflite_plugin.rewrite.images.elementwise import WithConstant
from onnx_tflite_plugin.source.model import Array

_LARGEST = 2.0**24  # integers up to here are exact in float32, in which sums are scaled


def run(model: ir.Model) -> int:
    """Replace Mul and Add with constants per channel by a convolution each."""
    return rewrite_nodes(model, "Mul", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    scaling = WithConstant.of(node, "Mul")
    between = only_user(scaling.quantize.outputs[0], "DequantizeLinear") if scaling else None
    adding = WithConstant.of(only_user(between.outputs[0], "Add"), "Add") if between else None
    if scaling is None or adding is None:
        return False
    factor, offset, data = _per_channel(scaling), _per_channel(adding), Affine.of(scaling.data)
    if factor is None or offset is None or data is None:
        return False
    channels = len(factor)
    if channels % BLOCK:  # for which the depthwise kernel has no fast path
        return False
    weights, bias = convolution(factor, offset, float(data.scale.reshape(-1)[0]))
    with editor.replacing(adding.node):
        operands = editor.dequantized(weights), editor.dequantized(bias)
        value = editor.emit("Conv", scaling.data.outputs[0], *operands, kernel_shape=[1, 1], group=channels)
        value = editor.clone_on(adding.quantize, value)
    editor.replace_value(adding.quantize.outputs[0], value)
    return True


def _per_channel(unit: WithConstant) -> Array | None:
    """The constant dequantized, one number for each channel (axis 1 of four); ``None`` where it is none."""
    channels = unit.shape[1] if len(unit.shape) == 4 else None
    aligned = (1,) * (4 - unit.integers.ndim) + unit.integers.shape
    if not channels or aligned not in ((1, channels, 1, 1), (1, 1, 1, 1)):
        return None
    return np.broadcast_to(unit.constant.floats.reshape(-1), channels)


def convolution(factor: Array, offset: Array, scale: float) -> tuple[Affine, Affine]:
    """Weights and bias that make ``factor · x + offset`` of integers x of a scale.

    Weights are ±127, which leaves the bias the smallest scale; fewer where its integer would outgrow float32.
    """
    scales = np.maximum(np.abs(factor) / 127, np.abs(offset) / (scale * _LARGEST))
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    weights = np.rint(factor / scales).astype(np.int8).reshape(-1, 1, 1, 1)
    bias = np.rint(offset / (scale * scales.astype(np.float64))).astype(np.int32)
    bias_scales = (np.float32(scale) * scales).astype(np.float32)
    return Affine(weights, scales, np.zeros(len(scales), np.int8)), Affine(
        bias, bias_scales, np.zeros(len(scales), np.int32)
    )
