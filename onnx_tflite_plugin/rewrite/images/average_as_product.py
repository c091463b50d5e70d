"""Integer kernels take 2 to 3 ns for each element of each window of an average, ten times as long as for one of a convolution.

Where every window lies inside the image its average is a convolution of each channel by itself, with weights of 1. Where
windows reach over the border the averages of a row are a product of the rows they cover, with integers that have their
numbers of elements as a common denominator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Affine,
    Editor,
    integer,
    ints,
    only_user,
    producer,
    rewrite_nodes,
    sizes,
)
from onnx_tflite_plugin.source.model import Array

_MOST = 256  # elements of a window, up to which the scales of float32 tell a half
# Femtoseconds of the average and of the product, with AVX2; 3000 and 40 with VNNI.
_A_TAP, _A_MULTIPLICATION = 1700, 40
_NODES = 10_000_000  # what the product's other nodes cost, in femtoseconds


def run(model: ir.Model) -> int:
    """Replace averages of quantized images; returns how many."""
    return rewrite_nodes(model, "AveragePool", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    average = Average.of(node)
    if average is None or not (average.inside or average.gains):
        return False
    with editor.replacing(node):
        if average.inside:
            editor.replace_value(node.outputs[0], average.convolved(editor))
        else:
            editor.replace_value(average.quantize.outputs[0], average.multiplied(editor))
    return True


@dataclass(frozen=True)
class Average:
    """DequantizeLinear of uint8, AveragePool and QuantizeLinear. ``image``: channels, height, width; ``pads`` as ONNX has them."""

    dequantize: ir.Node
    node: ir.Node
    quantize: ir.Node
    image: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]

    @classmethod
    def of(cls, node: ir.Node) -> Self | None:
        """``None`` where it is no integer kernel, or a size is not known."""
        dequantize, quantize = (
            producer(node.inputs[0], "DequantizeLinear"),
            only_user(node.outputs[0], "QuantizeLinear"),
        )
        shape = sizes(node.inputs[0])
        parameters = [Affine.of(one) for one in (dequantize, quantize)]
        if dequantize is None or quantize is None or not all(one and one.per_tensor for one in parameters):
            return None
        integers = dequantize.inputs[0]
        if integers is None or integers.dtype != ir.DataType.UINT8:
            return None
        if shape is None or len(shape) != 4 or None in shape[1:] or "auto_pad" in node.attributes:
            return None
        if {*ints(node, "dilations", [1])} != {1} or integer(node, "ceil_mode", 0):
            return None
        _, channels, height, width = (size or 0 for size in shape)
        tall, wide = ints(node, "kernel_shape", [])
        down, across = ints(node, "strides", [1, 1])
        top, left, bottom, right = ints(node, "pads", [0] * 4)
        self = cls(
            dequantize,
            node,
            quantize,
            (channels, height, width),
            (tall, wide),
            (down, across),
            (top, left, bottom, right),
        )
        return self if self.taps <= _MOST and not integer(node, "count_include_pad", 0) else None

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def inside(self) -> bool:
        """Whether every window lies inside the image."""
        return not any(self.pads)

    @property
    def _result(self) -> tuple[int, int]:
        (_, height, width), (tall, wide), (down, across) = self.image, self.kernel, self.strides
        top, left, bottom, right = self.pads
        return (height + top + bottom - tall) // down + 1, (width + left + right - wide) // across + 1

    @property
    def gains(self) -> bool:
        """Whether the product takes less time, and its factors are of 8 bits."""
        (channels, _, width), elements = self.image, math.prod(self._result)
        product = elements * channels * self.kernel[0] * width * _A_MULTIPLICATION
        return product + _NODES < elements * channels * self.taps * _A_TAP and int(self._factors.max()) <= 255

    def convolved(self, editor: Editor) -> ir.Value:
        """The average as a convolution by channel."""
        channels, scale = self.image[0], np.asarray(1 / self.taps, np.float32)
        ones = Affine(np.ones((channels, 1, *self.kernel), np.int8), scale, np.asarray(0, np.int8))
        return editor.emit(
            "Conv", self.node.inputs[0], editor.dequantized(ones), kernel_shape=self.kernel, strides=self.strides, group=channels
        )  # fmt: skip

    def multiplied(self, editor: Editor) -> ir.Value:
        """The average as a product of the rows that windows cover, [y, 1 row of the result, its elements] of [y, those, channels]."""
        (channels, height, width), rows = self.image, self._covered(0)
        factors = self._factors.reshape(*self._result, -1).astype(np.uint8)
        scale = np.asarray(1 / int(self._factors[0, 0].sum()), np.float32)
        value = editor.emit("Transpose", self.dequantize.inputs[0], perm=CHANNELS_LAST)
        value = editor.emit("Gather", value, rows.clip(0, height - 1), axis=1)
        value = editor.emit("Reshape", value, [0, len(rows), self.kernel[0] * width, channels])
        value = editor.clone_on(self.dequantize, value)
        value = editor.emit("MatMul", editor.dequantized(Affine(factors, scale, np.asarray(0, np.uint8))), value)
        return editor.emit("Transpose", editor.clone_on(self.quantize, value), perm=CHANNELS_FIRST)

    @cached_property
    def _factors(self) -> Array:
        """Of each result (y, x), by row of its window and column of the image; they add up to the same for all."""
        rows, columns = self._covered(0), self._covered(1)
        seen = (rows >= 0) & (rows < self.image[1])
        met = (columns[:, :, None] == np.arange(self.image[2])).any(axis=1)
        counts = np.outer(seen.sum(axis=1), met.sum(axis=1))
        common = np.lcm.reduce(np.unique(counts))
        return np.asarray((common // counts)[:, :, None, None] * seen[:, None, :, None] * met[:, None, :])

    def _covered(self, axis: int) -> Array:
        """The rows (0) or columns (1) of each window, those of the padding too."""
        starts = np.arange(self._result[axis]) * self.strides[axis] - self.pads[axis]
        return np.asarray(starts[:, None] + np.arange(self.kernel[axis]), np.int64)
