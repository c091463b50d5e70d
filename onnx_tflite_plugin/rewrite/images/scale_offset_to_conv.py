"""Apply a scale and an offset per channel by one depthwise 1 x 1 convolution.

An unfolded batch normalization consists of such a Mul and Add: two kernels that each read and write the whole tensor. A float
convolution keeps the blocked layout, and is fused with an activation after it. A quantized convolution rounds once instead of twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import BROADCASTING, CHANNELWISE
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.images.elementwise import QuantizedElementwise
from onnx_tflite_plugin.rewrite.matching import BLOCK, DIVISOR, Affine, constant, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_BLOCKED_OPERATORS = ("Conv", "Concat", *CHANNELWISE, *BROADCASTING)
_MAX_INTEGER = 2.0**24  # float32 represents all integers up to this limit


class FloatMatch(NamedTuple):
    """A Mul of ``value`` by ``factor``, and an Add of ``offset``.

    Both constants have shape [channels].
    """

    add: ir.Node
    value: ir.Value
    factor: Array
    offset: Array


def check_float(mul: ir.Node) -> FloatMatch:
    """Return the match if both constants are per channel, and the layout is blocked."""
    add = require_match(only_user(mul.outputs[0], "Add"))
    shape = require_match(sizes(mul.outputs[0]), "the rank of the image is unknown")
    require(len(shape) == 4, "the operand of the Mul is not an image")
    channels = shape[1]
    require(channels and channels % DIVISOR == 0, f"the number of channels is not a multiple of {DIVISOR}")
    (value, factor), (_, offset) = _operands(mul, channels or 0), _operands(add, channels or 0)
    require(value.dtype == ir.DataType.FLOAT, "the image is not float")
    require(producer(value, *_BLOCKED_OPERATORS), "the image is not in the blocked layout")
    require(shape[2:] != [1, 1], "the image is a single pixel")
    require(sizes(value) == shape, "the image is broadcast")
    return FloatMatch(add, value, factor, offset)


def rewrite_float(editor: Editor, match: FloatMatch) -> None:
    """Emit the depthwise convolution."""
    add, value, factor, offset = match
    with editor.replacing(add):
        weights = factor.reshape(-1, 1, 1, 1)
        scaled = editor.emit("Conv", value, weights, offset, kernel_shape=[1, 1], group=len(factor))
    editor.replace_value(add.outputs[0], scaled)


scale_offset_to_conv = RewriteRule(nodes("Mul"), check_float, rewrite_float)


def _operands(node: ir.Node, channels: int) -> tuple[ir.Value, Array]:
    """Return the computed operand, and the constant operand as float32 [channels].

    Raises Refusal if no operand is a constant per channel.
    """
    for value, parameter in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        array = constant(parameter)
        if array is None and (cast := producer(parameter, "Cast")):
            array = constant(cast.inputs[0])
        if value is not None and array is not None and array.shape in ((channels, 1, 1), (1, channels, 1, 1)):
            return value, np.ascontiguousarray(array.reshape(-1), np.float32)
    return require_match(None, "no operand is a constant per channel")


# --- quantized --------------------------------------------------------------------------------


class QuantizedMatch(NamedTuple):
    """A quantized Mul by ``factor``, and a quantized Add of ``offset``.

    Both constants have shape [channels]. ``scale``: the scale of the data.
    """

    quantized_mul: QuantizedElementwise
    quantized_add: QuantizedElementwise
    factor: Array
    offset: Array
    scale: float


def check_quantized(mul: ir.Node) -> QuantizedMatch:
    """Return the match if Mul and Add are quantized, with constants per channel."""
    quantized_mul = require_match(QuantizedElementwise.of(mul, "Mul"))
    dequantize = require_match(only_user(quantized_mul.quantize.outputs[0], "DequantizeLinear"))
    quantized_add = require_match(QuantizedElementwise.of(only_user(dequantize.outputs[0], "Add"), "Add"))
    factor, offset = _per_channel(quantized_mul), _per_channel(quantized_add)
    data_affine = require_match(Affine.of(quantized_mul.dequantize))
    require(len(factor) % BLOCK == 0, f"the number of channels is not a multiple of {BLOCK}")
    return QuantizedMatch(quantized_mul, quantized_add, factor, offset, float(data_affine.scale.reshape(-1)[0]))


def rewrite_quantized(editor: Editor, match: QuantizedMatch) -> None:
    """Emit the quantized depthwise convolution."""
    quantized_add = match.quantized_add
    weights, bias = depthwise_constants(match.factor, match.offset, match.scale)
    with editor.replacing(quantized_add.node):
        operands = match.quantized_mul.dequantize.outputs[0], editor.dequantize(weights), editor.dequantize(bias)
        value = editor.emit("Conv", *operands, kernel_shape=[1, 1], group=len(match.factor))
        value = editor.clone_on(quantized_add.quantize, value)
    editor.replace_value(quantized_add.quantize.outputs[0], value)


batch_norm_to_conv = RewriteRule(nodes("Mul"), check_quantized, rewrite_quantized)


def _per_channel(elementwise: QuantizedElementwise) -> Array:
    """Return the dequantized constant, broadcast to [channels].

    Raises Refusal if the constant is neither per channel nor a scalar, or the tensor is not an image.
    """
    channels = elementwise.shape[1] if len(elementwise.shape) == 4 else None
    aligned_shape = (1,) * (4 - elementwise.integers.ndim) + elementwise.integers.shape
    require(
        channels and aligned_shape in ((1, channels, 1, 1), (1, 1, 1, 1)),
        "a constant is not per channel, or the tensor is not an image",
    )
    return np.broadcast_to(elementwise.constant.floats.reshape(-1), channels or 0)


def depthwise_constants(factor: Array, offset: Array, scale: float) -> tuple[Affine, Affine]:
    """Return weights and bias of a convolution that computes ``factor * x + offset``.

    ``scale``: the scale of quantized x. The weights are ±127, which makes the scale of the bias small. They are smaller
    if the quantized bias would otherwise exceed the integers that float32 represents.
    """
    scales = np.maximum(np.abs(factor) / 127, np.abs(offset) / (scale * _MAX_INTEGER))
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    weights = np.rint(factor / scales).astype(np.int8).reshape(-1, 1, 1, 1)
    bias = np.rint(offset / (scale * scales.astype(np.float64))).astype(np.int32)
    bias_scales = (np.float32(scale) * scales).astype(np.float32)
    weight_zero_points, bias_zero_points = (np.zeros(len(scales), dtype) for dtype in (np.int8, np.int32))
    return Affine(weights, scales, weight_zero_points), Affine(bias, bias_scales, bias_zero_points)
