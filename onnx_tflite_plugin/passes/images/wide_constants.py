"""Integer and float kernels take a constant per channel a pixel at a time, at 14 ns a pixel: an image of 3 channels takes ten to
twenty times as long as one of many. So does the normalization that networks begin with. A constant of several pixels, for
rows of as many, is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import Affine, Editor, only_user, producer, rewrite, sizes
from onnx_tflite_plugin.source.model import Array

_OPERATORS = ("Add", "Div", "Mul", "Sub")
_MOST_CHANNELS = 16
_WIDE = 128  # numbers of a row from which on it makes no difference
_PIXELS = 512  # whose calls take longer than the Reshapes


def run(model: ir.Model) -> int:
    """Widen the constants of quantized operators; returns how many."""
    units = [unit for node in model.graph if (unit := Scaled.of(node)) is not None and unit.gains]
    return rewrite(model, units, _widen)


def _widen(editor: Editor, unit: Scaled) -> bool:
    rows, row = unit.rows
    constant = Affine(
        np.tile(unit.array.reshape(-1), row // unit.shape[-1]), unit.constant.scale, unit.constant.zero_point
    )
    with editor.replacing(unit.node):
        value = editor.clone_on(unit.data, editor.emit("Reshape", unit.data.inputs[0], [-1, *unit.shape[1:rows], row]))
        operands = [value, editor.dequantized(constant)]
        value = editor.emit(unit.node.op_type, *(operands if unit.slot else operands[::-1]), like=unit.node)
        value = editor.clone_on(unit.quantize, value)
        value.shape = ir.Shape([unit.batch, *unit.shape[1:rows], row])
        value = editor.emit("Reshape", value, [-1, *unit.shape[1:]])
    editor.replace_value(unit.quantize.outputs[0], value)
    return True


@dataclass(frozen=True)
class Scaled:
    """DequantizeLinear of data of ``shape`` and of a constant, which is operand ``slot``, an operator, and QuantizeLinear."""

    node: ir.Node
    data: ir.Node
    quantize: ir.Node
    constant: Affine
    slot: int
    shape: tuple[int, ...]
    batch: int | None

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        """``None`` where it is anything else, or a size but the first is not known."""
        if node.domain or node.op_type not in _OPERATORS:
            return None
        makers = [producer(value, "DequantizeLinear") for value in node.inputs]
        quantize = only_user(node.outputs[0], "QuantizeLinear")
        affines = [Affine.of(maker) for maker in (*makers, quantize)]
        slot = next((k for k, affine in enumerate(affines[:2]) if affine and affine.integers is not None), None)
        if slot is None or quantize is None or not all(one and one.per_tensor for one in affines):
            return None
        data, constant = makers[1 - slot], affines[slot]
        shape = None if data is None else sizes(data.outputs[0])
        if (
            data is None
            or constant is None
            or not shape
            or None in shape[1:]
            or sizes(node.outputs[0]) not in (None, shape)
        ):
            return None
        return cls(node, data, quantize, constant, slot, tuple(size or 1 for size in shape), shape[0])

    @property
    def array(self) -> Array:
        assert self.constant.integers is not None
        return self.constant.integers

    @property
    def rows(self) -> tuple[int, int]:
        """How many axes stay in front of rows, and the numbers of a row."""
        axis, row = len(self.shape) - 1, self.shape[-1]
        while axis > 1 and row < _WIDE:
            axis -= 1
            row *= self.shape[axis]
        return axis, row

    @property
    def gains(self) -> bool:
        """Whether the constant is of a few channels, which are the last axis, and there are pixels enough."""
        channels = self.shape[-1]
        few = 1 < self.array.size == self.array.shape[-1] == channels <= _MOST_CHANNELS
        return few and math.prod(self.shape[1:-1]) >= _PIXELS
