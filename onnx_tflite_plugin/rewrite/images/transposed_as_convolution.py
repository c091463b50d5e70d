"""A quantized ConvTranspose has no integer kernel. With stride s, every position of its input makes s x s positions of its result:
a convolution makes them as s·s times the channels, and a Transpose of integers puts them side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Affine,
    Editor,
    QuantizedConv,
    integer,
    ints,
    rewrite_units,
    sizes,
)
from onnx_tflite_plugin.source.model import Array


@dataclass(frozen=True)
class Axis:
    """Along one axis: ``taps`` of the convolution, the last of which reads ``last`` positions before its own.

    Position ``s·q + p`` of the result is the sum of ``x[q - j] · w[s·j + p + pad]`` over all j for which there is a weight.
    """

    stride: int
    pad: int
    kernel: int
    blocks: int
    first: int
    last: int
    behind: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, pads: tuple[int, int], extra: int) -> Self | None:
        """``None`` where the result is no multiple of the stride, or reaches beyond what pads can express."""
        blocks, rest = divmod(stride * (size - 1) + kernel - sum(pads) + extra, stride)
        first, last = -((stride - 1 + pads[0]) // stride), (kernel - 1 - pads[0]) // stride
        behind = blocks - size - first
        if rest or last < 0 or behind < 0:
            return None
        return cls(stride, pads[0], kernel, blocks, first, last, behind)

    @property
    def taps(self) -> int:
        return self.last - self.first + 1

    def sources(self) -> Array:
        """``[stride, taps]``: the weight that each phase of the result takes at each tap; -1 where there is none."""
        at = self.stride * (self.last - np.arange(self.taps)) + np.arange(self.stride)[:, None] + self.pad
        return np.where((at >= 0) & (at < self.kernel), at, -1)


def run(model: ir.Model) -> int:
    """Replace quantized transposed convolutions."""
    return rewrite_units(model, "ConvTranspose", _replace)


def _axes(unit: QuantizedConv) -> tuple[Axis, Axis] | None:
    conv, shape, weights = unit.conv, sizes(unit.data.inputs[0]), unit.weights.integers
    if weights is None or weights.ndim != 4 or shape is None or None in shape[2:] or integer(conv, "group", 1) != 1:
        return None
    if {*ints(conv, "dilations", [1, 1])} != {1} or "output_shape" in conv.attributes or "auto_pad" in conv.attributes:
        return None
    pads, strides = ints(conv, "pads", [0] * 4), ints(conv, "strides", [1, 1])
    extra = ints(conv, "output_padding", [0, 0])
    rows, columns = (
        Axis.of(shape[2 + k] or 0, weights.shape[2 + k], strides[k], (pads[k], pads[2 + k]), extra[k]) for k in range(2)
    )
    return (rows, columns) if rows and columns else None


def _replace(editor: Editor, unit: QuantizedConv) -> bool:
    axes = _axes(unit)
    if axes is None:
        return False
    rows, columns = axes
    weights = convolved(unit.weights, rows, columns)
    assert weights.integers is not None
    features, times = len(weights.integers) // (rows.stride * columns.stride), rows.stride * columns.stride
    with editor.replacing(unit.conv):
        operands = [editor.dequantized(weights)]
        if unit.bias is not None:
            operands.append(editor.dequantized(unit.bias.repeated(times)))
        value = editor.emit(
            "Conv", unit.data.outputs[0], *operands, kernel_shape=[rows.taps, columns.taps],
            pads=[rows.last, columns.last, rows.behind, columns.behind],
        )  # fmt: skip
        value = editor.clone_on(unit.quantize, value)
        value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
        phases = [rows.blocks, columns.blocks, rows.stride, columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *phases]), perm=[0, 1, 3, 2, 4, 5])
        whole = [rows.blocks * rows.stride, columns.blocks * columns.stride, features]
        value = editor.emit("Transpose", editor.emit("Reshape", value, [0, *whole]), perm=CHANNELS_FIRST)
    editor.replace_value(unit.quantize.outputs[0], value)
    return True


def convolved(weights: Affine, rows: Axis, columns: Axis) -> Affine:
    """``[c, o, y, x]`` as ``[(phase of row, phase of column, o), c, taps, taps]``."""
    assert weights.integers is not None
    zero = weights.zero_point.reshape((1, -1, 1, 1) if weights.zero_point.ndim else ())
    centred = np.pad(weights.integers.astype(np.int32) - zero.astype(np.int32), ((0, 0), (0, 0), (0, 1), (0, 1)))
    y, x = rows.sources(), columns.sources()  # -1 is the row or column of zeros
    phases = centred[:, :, y[:, None, :, None], x[None, :, None, :]]
    spread = phases.transpose(2, 3, 1, 0, 4, 5) + zero.astype(np.int32).reshape((-1, 1, 1, 1) if zero.ndim else ())
    integers = spread.reshape(-1, len(centred), rows.taps, columns.taps).astype(weights.integers.dtype)
    return weights.repeated(rows.stride * columns.stride, integers)
