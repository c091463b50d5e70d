"""Integer kernels take 2 to 3 ns for each element of each window of an average, ten times as long as for one of a convolution.

If every window lies inside the image, the average is a depthwise convolution with weights of 1. If windows include padding, the
averages of a row are a product of the rows that they cover, with integers that have the numbers of elements as common
denominator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Affine,
    integer,
    ints,
    only_user,
    producer,
    sizes,
)
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_MOST = 256  # maximum elements of a window for which float32 scales represent halves exactly
# Heuristics in femtoseconds, measured with AVX2 (with VNNI: 3000 and 40).
_A_TAP, _A_MULTIPLICATION = 1700, 40
_NODES = 10_000_000  # cost of the other nodes around the product


def check(node: ir.Node) -> Average | Decline:
    """Return the average, if it is quantized, and a convolution or a product takes less time."""
    average = Average.of(node)
    gains = average.is_inside or average.gains
    return average if gains else Decline("a product of matrices takes no less time, or its factors exceed 8 bits")


def rewrite(editor: Editor, average: Average) -> None:
    """Emit the convolution, or the product of matrices."""
    with editor.replacing(average.node):
        if average.is_inside:
            editor.replace_value(average.node.outputs[0], average.emit_convolution(editor))
        else:
            editor.replace_value(average.quantize.outputs[0], average.emit_product(editor))


average_pool_to_conv = RewriteRule(nodes("AveragePool"), check, rewrite)


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
    def of(cls, node: ir.Node) -> Self:
        """Return the average around a node. Raises Refusal if it is not quantized, or a size is dynamic."""
        dequantize = require_match(producer(node.inputs[0], "DequantizeLinear"))
        quantize = require_match(only_user(node.outputs[0], "QuantizeLinear"))
        parameters = [Affine.of(one) for one in (dequantize, quantize)]
        require(all(one and one.per_tensor for one in parameters), "a scale is not constant, or per axis")
        integers = require_match(dequantize.inputs[0])
        require(integers.dtype == ir.DataType.UINT8, "the quantized values are not uint8")
        shape = require_match(sizes(node.inputs[0]), "the rank of the image is unknown")
        require(len(shape) == 4 and None not in shape[1:], "the operand is not an image, or a size is dynamic")
        require("auto_pad" not in node.attributes, "the pads are not given as numbers")
        require({*ints(node, "dilations", [1])} == {1}, "the windows are dilated")
        require(not integer(node, "ceil_mode", 0), "the size of the result is rounded up")
        require(not integer(node, "count_include_pad", 0), "padding is part of the average")
        _, channels, height, width = (size or 0 for size in shape)
        tall, wide = ints(node, "kernel_shape", [])
        down, across = ints(node, "strides", [1, 1])
        top, left, bottom, right = ints(node, "pads", [0] * 4)
        self = cls(
            dequantize, node, quantize, (channels, height, width), (tall, wide), (down, across), (top, left, bottom, right)
        )  # fmt: skip
        require(self.taps <= _MOST, f"a window has more than {_MOST} elements")
        return self

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def is_inside(self) -> bool:
        """True if every window lies inside the image."""
        return not any(self.pads)

    @property
    def _result(self) -> tuple[int, int]:
        (_, height, width), (tall, wide), (down, across) = self.image, self.kernel, self.strides
        top, left, bottom, right = self.pads
        return (height + top + bottom - tall) // down + 1, (width + left + right - wide) // across + 1

    @property
    def gains(self) -> bool:
        """True if the product takes less time, and its factors fit 8 bits."""
        (channels, _, width), elements = self.image, math.prod(self._result)
        product = elements * channels * self.kernel[0] * width * _A_MULTIPLICATION
        return product + _NODES < elements * channels * self.taps * _A_TAP and int(self._factors.max()) <= 255

    def emit_convolution(self, editor: Editor) -> ir.Value:
        """Emit the average as a depthwise convolution."""
        channels, scale = self.image[0], np.asarray(1 / self.taps, np.float32)
        ones = Affine(np.ones((channels, 1, *self.kernel), np.int8), scale, np.asarray(0, np.int8))
        return editor.emit(
            "Conv", self.node.inputs[0], editor.dequantize(ones), kernel_shape=self.kernel, strides=self.strides, group=channels
        )  # fmt: skip

    def emit_product(self, editor: Editor) -> ir.Value:
        """Emit the average as a product of the rows that windows cover: [y, elements of a result row, those] by [y, those, channels]."""
        (channels, height, width), rows = self.image, self._window_positions(0)
        factors = self._factors.reshape(*self._result, -1).astype(np.uint8)
        scale = np.asarray(1 / int(self._factors[0, 0].sum()), np.float32)
        value = editor.emit("Transpose", self.dequantize.inputs[0], perm=CHANNELS_LAST)
        value = editor.emit("Gather", value, rows.clip(0, height - 1), axis=1)
        value = editor.emit("Reshape", value, [0, len(rows), self.kernel[0] * width, channels])
        value = editor.clone_on(self.dequantize, value)
        value = editor.emit("MatMul", editor.dequantize(Affine(factors, scale, np.asarray(0, np.uint8))), value)
        return editor.emit("Transpose", editor.clone_on(self.quantize, value), perm=CHANNELS_FIRST)

    @cached_property
    def _factors(self) -> Array:
        """The factors of each result (y, x), by row of its window and column of the image; all sums are equal."""
        rows, columns = self._window_positions(0), self._window_positions(1)
        covered_rows = (rows >= 0) & (rows < self.image[1])
        covered_columns = (columns[:, :, None] == np.arange(self.image[2])).any(axis=1)
        counts = np.outer(covered_rows.sum(axis=1), covered_columns.sum(axis=1))
        common = np.lcm.reduce(np.unique(counts))
        return np.asarray(
            (common // counts)[:, :, None, None] * covered_rows[:, None, :, None] * covered_columns[:, None, :]
        )

    def _window_positions(self, axis: int) -> Array:
        """Return the rows (axis 0) or columns (1) of each window, including padding."""
        starts = np.arange(self._result[axis]) * self.strides[axis] - self.pads[axis]
        return np.asarray(starts[:, None] + np.arange(self.kernel[axis]), np.int64)
