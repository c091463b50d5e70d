"""Compute a quantized average with a depthwise convolution or a MatMul.

Integer kernels of AveragePool take 2 to 3 ns per element of each window, ten times as long as a convolution. If every
window lies inside the image, the average is a depthwise convolution with weights of 1.

If windows include padding, the number of averaged elements depends on the window. A row of averages is then a matrix of integer
factors times the image rows that the windows cover. All factors have one denominator, the least common multiple of the numbers
of averaged elements.
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

_MAX_TAPS = 256  # heuristic: for larger windows, float32 scales may round ties incorrectly
# Heuristics: femtoseconds per tap of a window and per multiplication, measured with AVX2 (with VNNI: 3000 and 40).
_TAP_TIME, _MULTIPLICATION_TIME = 1700, 40
_OTHER_NODES_TIME = 10_000_000  # femtoseconds of the nodes around the matrix multiplication


def check(pool: ir.Node) -> Average | Decline:
    """Return the quantized average if a convolution or a MatMul is faster."""
    average = Average.of(pool)
    is_faster = average.has_no_padding or average.is_matmul_faster
    return average if is_faster else Decline("a matrix multiplication is not faster, or its factors exceed 8 bits")


def rewrite(editor: Editor, average: Average) -> None:
    """Emit the convolution, or the matrix multiplication."""
    with editor.replacing(average.pool):
        if average.has_no_padding:
            editor.replace_value(average.pool.outputs[0], average.emit_convolution(editor))
        else:
            editor.replace_value(average.quantize.outputs[0], average.emit_matmul(editor))


average_pool_to_conv = RewriteRule(nodes("AveragePool"), check, rewrite)


@dataclass(frozen=True)
class Average:
    """A quantized average: DequantizeLinear of uint8, AveragePool, QuantizeLinear.

    ``image``: channels, height and width. ``kernel`` and ``strides``: along height and width. ``pads``: top, left,
    bottom, right, as in ONNX.
    """

    dequantize: ir.Node
    pool: ir.Node
    quantize: ir.Node
    image: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]

    @classmethod
    def of(cls, pool: ir.Node) -> Self:
        """Return the average of an AveragePool.

        Raises Refusal if it is not quantized, its windows are unsupported, or a size is dynamic.
        """
        dequantize = require_match(producer(pool.inputs[0], "DequantizeLinear"))
        quantize = require_match(only_user(pool.outputs[0], "QuantizeLinear"))
        affines = Affine.of(dequantize), Affine.of(quantize)
        require(
            all(affine and affine.per_tensor for affine in affines), "one of the scales is per-axis or not constant"
        )
        integers = require_match(dequantize.inputs[0])
        require(integers.dtype == ir.DataType.UINT8, "the quantized values are not uint8")
        shape = require_match(sizes(pool.inputs[0]), "the rank of the image is unknown")
        require(len(shape) == 4 and None not in shape[1:], "the operand is not an image, or a size is dynamic")
        require("auto_pad" not in pool.attributes, "the pads are computed (auto_pad)")
        require({*ints(pool, "dilations", [1])} == {1}, "the windows are dilated")
        require(not integer(pool, "ceil_mode", 0), "the output size is rounded up (ceil_mode)")
        require(not integer(pool, "count_include_pad", 0), "padding is part of the average")
        _, channels, height, width = (size or 0 for size in shape)
        kernel_height, kernel_width = ints(pool, "kernel_shape", [])
        stride_y, stride_x = ints(pool, "strides", [1, 1])
        top, left, bottom, right = ints(pool, "pads", [0] * 4)
        image, kernel, strides = (channels, height, width), (kernel_height, kernel_width), (stride_y, stride_x)
        average = cls(dequantize, pool, quantize, image, kernel, strides, (top, left, bottom, right))
        require(average.taps <= _MAX_TAPS, f"a window has more than {_MAX_TAPS} elements")
        return average

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def has_no_padding(self) -> bool:
        """True if the pool has no padding, so that every window lies inside the image."""
        return not any(self.pads)

    @property
    def _result_size(self) -> tuple[int, int]:
        (_, height, width), (kernel_height, kernel_width), (stride_y, stride_x) = self.image, self.kernel, self.strides
        top, left, bottom, right = self.pads
        rows = (height + top + bottom - kernel_height) // stride_y + 1
        return rows, (width + left + right - kernel_width) // stride_x + 1

    @property
    def is_matmul_faster(self) -> bool:
        """True if the matrix multiplication takes less time, and its factors fit 8 bits."""
        (channels, _, width), positions = self.image, math.prod(self._result_size)
        matmul_time = positions * channels * self.kernel[0] * width * _MULTIPLICATION_TIME + _OTHER_NODES_TIME
        pool_time = positions * channels * self.taps * _TAP_TIME
        return matmul_time < pool_time and int(self._factors.max()) <= 255

    def emit_convolution(self, editor: Editor) -> ir.Value:
        """Emit the average as a depthwise convolution."""
        channels, scale = self.image[0], np.asarray(1 / self.taps, np.float32)
        ones = Affine(np.ones((channels, 1, *self.kernel), np.int8), scale, np.asarray(0, np.int8))
        return editor.emit(
            "Conv", self.pool.inputs[0], editor.dequantize(ones), kernel_shape=self.kernel, strides=self.strides, group=channels
        )  # fmt: skip

    def emit_matmul(self, editor: Editor) -> ir.Value:
        """Emit the average as a batched MatMul, with one matrix for each result row y.

        The factors have shape [y, result columns, window rows * image columns]. The image rows that the windows cover
        have shape [y, window rows * image columns, channels].
        """
        (channels, height, width), rows = self.image, self._window_positions(0)
        factors = self._factors.reshape(*self._result_size, -1).astype(np.uint8)
        scale = np.asarray(1 / int(self._factors[0, 0].sum()), np.float32)
        value = editor.emit("Transpose", self.dequantize.inputs[0], perm=CHANNELS_LAST)
        value = editor.emit("Gather", value, rows.clip(0, height - 1), axis=1)
        value = editor.emit("Reshape", value, [0, len(rows), self.kernel[0] * width, channels])
        value = editor.clone_on(self.dequantize, value)
        value = editor.emit("MatMul", editor.dequantize(Affine(factors, scale, np.asarray(0, np.uint8))), value)
        return editor.emit("Transpose", editor.clone_on(self.quantize, value), perm=CHANNELS_FIRST)

    @cached_property
    def _factors(self) -> Array:
        """The integer factors of each average, [y, x, window row, image column].

        The sum of the factors is the same for all averages.
        """
        rows, columns = self._window_positions(0), self._window_positions(1)
        covered_rows = (rows >= 0) & (rows < self.image[1])
        covered_columns = (columns[:, :, None] == np.arange(self.image[2])).any(axis=1)
        counts = np.outer(covered_rows.sum(axis=1), covered_columns.sum(axis=1))
        denominator = np.lcm.reduce(np.unique(counts))
        return np.asarray(
            (denominator // counts)[:, :, None, None] * covered_rows[:, None, :, None] * covered_columns[:, None, :]
        )

    def _window_positions(self, axis: int) -> Array:
        """Return the image row (axis 0) or column (axis 1) of each window element.

        The result has shape [windows, kernel]. Positions in the padding are negative, or not less than the size of the image.
        """
        starts = np.arange(self._result_size[axis]) * self.strides[axis] - self.pads[axis]
        return np.asarray(starts[:, None] + np.arange(self.kernel[axis]), np.int64)
