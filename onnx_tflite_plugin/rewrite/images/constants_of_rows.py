"""ONNX Runtime adds or multiplies a constant per channel pixel by pixel, at 10 ns each: 104 us at 96x96x3, 14 at 24x24x64. One of a
whole row of pixels takes 7 and 8 us, and gives the same numbers. Of one channel, a number takes 92 us for 9216 pixels, and 3
where it has as many axes as the image.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, nodes_of, producer, rewrite, sizes
from onnx_tflite_plugin.source.model import Array

_OPERATORS = ("Add", "Div", "Mul", "Sub")
_MOST_CHANNELS = 64  # a row of more is hardly faster
_LONGEST = 2**13  # numbers that a row may add to the file
_PIXELS = 64
_PRODUCTS = ("Gemm", "If", "MatMul", "MatMulInteger")  # what is added to them is fused with them
_DEQUANTIZING = ("Cast", "Mul")  # what stands between sums of integers and their bias


class _Place(NamedTuple):
    node: ir.Node
    slot: int
    row: Array


def run(model: ir.Model) -> int:
    """Repeat constants along the last axis but one; returns how many."""
    places = [place for node in nodes_of(model.graph, *_OPERATORS) if (place := _place(node)) is not None]
    return rewrite(model, places, _replace)


def _place(node: ir.Node) -> _Place | None:
    """A float32 image and a constant of its last axis, where there are pixels enough."""
    arrays = [_numbers(value) for value in node.inputs]
    slot = next((k for k, array in enumerate(arrays) if array is not None), None)
    if slot is None or arrays[1 - slot] is not None:
        return None
    image, array = node.inputs[1 - slot], arrays[slot]
    shape = sizes(image)
    if image is None or array is None or image.dtype != ir.DataType.FLOAT or not shape or len(shape) < 2:
        return None
    if not _per_channel(array, shape) or sizes(node.outputs[0]) not in (None, shape) or _fused(image):
        return None
    *_, width, channels = shape
    if channels == 1:
        return _Place(node, slot, array.reshape([1] * len(shape))) if array.ndim < len(shape) else None
    if channels is None or channels > _MOST_CHANNELS or not width or not 1 < width <= _LONGEST // channels:
        return None
    return _Place(node, slot, np.tile(array.reshape(-1), (width, 1)))


def _numbers(value: ir.Value | None) -> Array | None:
    """A stored constant, or one stored as float16."""
    cast = producer(value, "Cast")
    array = constant(value if cast is None else cast.inputs[0])
    return None if array is None else np.asarray(array, np.float32)


def _per_channel(array: Array, shape: list[int | None]) -> bool:
    """Whether a constant holds one number for each element of the last axis; leading axes that are not known count as one."""
    along_last = array.size == shape[-1] and (array.ndim == 0 or array.shape[-1] == array.size)
    pixels = math.prod(size or 1 for size in shape[:-1])
    return along_last and array.ndim <= len(shape) and len(shape) > (array.size > 1) + 1 and pixels >= _PIXELS


def _fused(value: ir.Value) -> bool:
    """Whether the runtime makes one operator of this result and what is added to it: a bias, or the eps of a normalization."""
    node = value.producer()
    while node is not None and node.op_type in _DEQUANTIZING:
        node = next((maker for operand in node.inputs if operand and (maker := operand.producer())), None)
    return node is not None and (node.op_type in _PRODUCTS or node.op_type == "ReduceMean")


def _replace(editor: Editor, place: _Place) -> bool:
    place.node.replace_input_with(place.slot, editor.stored(place.row, like=place.node.inputs[place.slot]))
    return True
