"""Kernels of two operands take a constant per channel one pixel at a time. A constant repeated for several pixels is the same.

Of floats a pixel takes 10 ns: 104 us at 96x96x3, 14 at 24x24x64. A constant of a whole row of pixels takes 7 and 8 us. Of one channel,
a scalar takes 92 us for 9216 pixels, and 3 if it has as many axes as the image. Of integers a pixel takes 14 ns: an image of 3
channels takes ten to twenty times as long as one of many, as in the normalization that networks begin with.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.images.elementwise import WithConstant
from onnx_tflite_plugin.rewrite.matching import constant, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_OPERATORS = ("Add", "Div", "Mul", "Sub")

# --- of floats --------------------------------------------------------------------------------

_MOST_CHANNELS = 64  # a row of more is hardly faster
_LONGEST = 2**13  # elements that a row may add to the file
_PIXELS = 64
_PRODUCTS = ("Gemm", "If", "MatMul", "MatMulInteger")  # operators that are fused with an addition after them
_DEQUANTIZING = ("Cast", "Mul")  # operators between an integer product and its bias


class Match(NamedTuple):
    """A node, the slot of its constant, and the constant repeated."""

    node: ir.Node
    slot: int
    row: Array


def check(node: ir.Node) -> Match:
    """Return the match, if a float image of enough pixels has a constant of its last axis."""
    arrays = [_array(value) for value in node.inputs]
    slot = require_match(next((k for k, array in enumerate(arrays) if array is not None), None))
    require(arrays[1 - slot] is None)
    image, array = require_match(node.inputs[1 - slot]), require_match(arrays[slot])
    require(image.dtype == ir.DataType.FLOAT)
    shape = require_match(sizes(image), "the rank of the image is unknown")
    require(len(shape) >= 2 and _is_per_channel(array, shape), "the constant is not per channel of enough pixels")
    require(sizes(node.outputs[0]) in (None, shape), "the image is broadcast")
    require(not _is_fused(image), "the addition is fused with a product or a normalization")
    *_, width, channels = shape
    if channels == 1:
        require(array.ndim < len(shape))
        return Match(node, slot, array.reshape([1] * len(shape)))
    require(channels is not None and channels <= _MOST_CHANNELS, f"there are more than {_MOST_CHANNELS} channels")
    require(width and 1 < width <= _LONGEST // (channels or 1), "the width is unknown, 1 or too large")
    return Match(node, slot, np.tile(array.reshape(-1), (width or 1, 1)))


def rewrite(editor: Editor, match: Match) -> None:
    """Replace the constant."""
    node, slot, row = match
    node.replace_input_with(slot, editor.store(row, like=node.inputs[slot]))


widen_constants = RewriteRule(nodes(*_OPERATORS), check, rewrite)


def _array(value: ir.Value | None) -> Array | None:
    """Return a stored constant, of float16 too."""
    cast = producer(value, "Cast")
    array = constant(value if cast is None else cast.inputs[0])
    return None if array is None else np.asarray(array, np.float32)


def _is_per_channel(array: Array, shape: list[int | None]) -> bool:
    """True for one element per channel, and enough pixels; dynamic dimensions count as 1."""
    along_last = array.size == shape[-1] and (array.ndim == 0 or array.shape[-1] == array.size)
    pixels = math.prod(size or 1 for size in shape[:-1])
    return along_last and array.ndim <= len(shape) and len(shape) > (array.size > 1) + 1 and pixels >= _PIXELS


def _is_fused(value: ir.Value) -> bool:
    """True if the runtime fuses an addition with the producer: the bias of a product, or the epsilon of a normalization."""
    node = value.producer()
    while node is not None and node.op_type in _DEQUANTIZING:
        node = next((maker for operand in node.inputs if operand and (maker := operand.producer())), None)
    return node is not None and (node.op_type in _PRODUCTS or node.op_type == "ReduceMean")


# --- of integers ------------------------------------------------------------------------------

_MOST_QUANTIZED_CHANNELS = 16
_WIDE = 128  # elements of a row above which it makes no difference
_QUANTIZED_PIXELS = 512  # below which the calls take as long as the Reshapes


def check_quantized(node: ir.Node) -> WithConstant:
    """Return the unit, if its constant is of few channels, which are the last axis, of an image with enough pixels."""
    unit = require_match(WithConstant.of(node, *_OPERATORS))
    channels, array = unit.shape[-1] or 0, unit.integers
    require(1 < array.size == array.shape[-1] == channels, "the constant is not per channel")
    require(channels <= _MOST_QUANTIZED_CHANNELS, f"there are more than {_MOST_QUANTIZED_CHANNELS} channels")
    require(math.prod(size or 0 for size in unit.shape[1:-1]) >= _QUANTIZED_PIXELS, "the image has too few pixels")
    return unit


def rewrite_quantized(editor: Editor, unit: WithConstant) -> None:
    """Emit the operator with the repeated constant, between Reshapes."""
    batch, image = unit.shape[0], [size or 0 for size in unit.shape[1:]]
    rows = _wide_shape(image)
    repeated = unit.constant._replace(integers=np.tile(unit.integers.reshape(-1), rows[-1] // unit.integers.size))
    with editor.replacing(unit.node):
        value = editor.clone_on(unit.data, editor.emit("Reshape", unit.data.inputs[0], [-1, *rows]))
        operands = [value, editor.dequantize(repeated)]
        value = editor.emit(unit.node.op_type, *(operands if unit.slot else operands[::-1]), like=unit.node)
        value = editor.clone_on(unit.quantize, value)
        value.shape = ir.Shape([batch, *rows])
        value = editor.emit("Reshape", value, [-1, *image])
    editor.replace_value(unit.quantize.outputs[0], value)


widen_quantized_constants = RewriteRule(nodes(*_OPERATORS), check_quantized, rewrite_quantized)


def _wide_shape(shape: list[int]) -> list[int]:
    """Return the shape with its last axes merged until rows have ``_WIDE`` elements."""
    while shape[-1] < _WIDE:
        shape = [*shape[:-2], shape[-2] * shape[-1]]
    return shape
