"""A quantized scale and offset per channel, as batch normalization leaves them where it could not be folded, are two
element-wise kernels over the whole tensor. One depthwise 1 x 1 convolution does both, and rounds and clips once instead
of twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import BLOCK, Affine, Editor, only_user, producer, rewrite_nodes, sizes
from onnx_tflite_plugin.source.model import Array

_LARGEST = 2.0**24  # integers up to here are exact in float32, in which sums are scaled


@dataclass(frozen=True)
class Elementwise:
    """DequantizeLinear of data and of a constant, Mul or Add, QuantizeLinear."""

    data: ir.Node
    node: ir.Node
    quantize: ir.Node
    operand: Array

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        """The unit around a Mul or Add with one constant operand per channel (of axis 1), in float."""
        quantize = only_user(node.outputs[0], "QuantizeLinear")
        for value, other in (node.inputs, node.inputs[::-1]):
            data, constant = producer(value, "DequantizeLinear"), Affine.of(producer(other, "DequantizeLinear"))
            if (
                data is None
                or quantize is None
                or constant is None
                or constant.integers is None
                or not constant.per_tensor
            ):
                continue
            dims = sizes(data.inputs[0])
            if dims is not None and len(dims) == 4 and dims[1] and _per_channel(constant.integers.shape, dims[1]):
                return cls(data, node, quantize, np.broadcast_to(constant.floats.reshape(-1), dims[1]))
        return None


def _per_channel(shape: tuple[int, ...], channels: int) -> bool:
    aligned = (1,) * (4 - len(shape)) + tuple(shape)
    return len(shape) <= 4 and aligned in ((1, channels, 1, 1), (1, 1, 1, 1))


def run(model: ir.Model) -> int:
    """Replace Mul and Add with constants per channel by a convolution each."""
    return rewrite_nodes(model, "Mul", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    scaling = Elementwise.of(node)
    between = only_user(scaling.quantize.outputs[0], "DequantizeLinear") if scaling else None
    follower = only_user(between.outputs[0], "Add") if between else None
    adding = Elementwise.of(follower) if follower else None
    data = Affine.of(scaling.data) if scaling else None
    if scaling is None or adding is None or data is None or not data.per_tensor or adding.data is not between:
        return False
    channels = len(scaling.operand)
    if channels % BLOCK:  # for which the depthwise kernel has no fast path
        return False
    weights, bias = convolution(scaling.operand, adding.operand, float(data.scale.reshape(-1)[0]))
    with editor.replacing(adding.node):
        operands = editor.dequantized(weights), editor.dequantized(bias)
        value = editor.emit("Conv", scaling.data.outputs[0], *operands, kernel_shape=[1, 1], group=channels)
        value = editor.clone_on(adding.quantize, value)
    editor.replace_value(adding.quantize.outputs[0], value)
    return True


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
