"""Integer and float kernels take a constant per channel a pixel at a time, at 14 ns a pixel: an image of 3 channels takes ten to
twenty times as long as one of many. So does the normalization that networks begin with. A constant of several pixels, for
rows of as many, is the same.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, rewrite
from onnx_tflite_plugin.rewrite.images.elementwise import WithConstant

_OPERATORS = ("Add", "Div", "Mul", "Sub")
_MOST_CHANNELS = 16
_WIDE = 128  # numbers of a row from which on it makes no difference
_PIXELS = 512  # whose calls take longer than the Reshapes


def run(model: ir.Model) -> int:
    """Widen the constants of quantized operators; returns how many."""
    units = [unit for node in model.graph if (unit := WithConstant.of(node, *_OPERATORS)) is not None and _gains(unit)]
    return rewrite(model, units, _widen)


def _gains(unit: WithConstant) -> bool:
    """Whether the constant is of a few channels, which are the last axis, and there are pixels enough."""
    channels, array = unit.shape[-1] or 0, unit.integers
    few = 1 < array.size == array.shape[-1] == channels <= _MOST_CHANNELS
    return few and math.prod(size or 0 for size in unit.shape[1:-1]) >= _PIXELS


def _widen(editor: Editor, unit: WithConstant) -> bool:
    batch, image = unit.shape[0], [size or 0 for size in unit.shape[1:]]
    rows = _rows(image)
    constant = unit.constant._replace(integers=np.tile(unit.integers.reshape(-1), rows[-1] // unit.integers.size))
    with editor.replacing(unit.node):
        value = editor.clone_on(unit.data, editor.emit("Reshape", unit.data.inputs[0], [-1, *rows]))
        operands = [value, editor.dequantized(constant)]
        value = editor.emit(unit.node.op_type, *(operands if unit.slot else operands[::-1]), like=unit.node)
        value = editor.clone_on(unit.quantize, value)
        value.shape = ir.Shape([batch, *rows])
        value = editor.emit("Reshape", value, [-1, *image])
    editor.replace_value(unit.quantize.outputs[0], value)
    return True


def _rows(sizes: list[int]) -> list[int]:
    """Sizes of the same numbers, more than ``_WIDE``, in the same order, whose last axes are taken together until rows are wide."""
    while sizes[-1] < _WIDE:
        sizes = [*sizes[:-2], sizes[-2] * sizes[-1]]
    return sizes
