"""Integer kernels take input channels four at a time and cost most per position of the result; an image has few channels
and many positions. M columns of C channels side by side are one column of M·C: ``[N, H, W, C]`` read as
``[N, H, W/M, M·C]``, the same memory. A convolution with stride s then makes M/s columns of its result at once, with
weights that are zero where a column does not reach. The sums are the same, so are the results.

Most of the products are with 0, and without VNNI products cost more than positions. So where weights are int8 only on processors
that add them exactly (see ``weights``), these fold and the others need not: one ``If`` on the probe holds both convolutions.
Where one dtype was asked for, one convolution is written: weights that become uint8 fold only if that is cheaper for uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
    producer,
    rewrite_units,
    sizes,
)
from onnx_tflite_plugin.rewrite.weights.choice import chosen, probed
from onnx_tflite_plugin.rewrite.weights.products import LEAST, overflows
from onnx_tflite_plugin.source.model import Array

MOST_CHANNELS, MOST_COLUMNS = 4, 16
NODES = 100_000  # what the Reshapes cost, in multiplications


@dataclass(frozen=True)
class Work:
    """A convolution of ``channels`` channels that makes so many ``positions``, each of so many ``features``."""

    positions: int
    channels: int
    features: int
    taps: int

    def cost(self, symmetric: bool) -> int:
        """Of int8 weights, in multiplications (5 ps with AVX512-VNNI). Where channels come in fours and weights have zero
        points of 0, the kernel reads its input in place; else it gathers it first and rounds the sums afterwards.
        """
        in_place = symmetric and self.channels % 4 == 0 and self.features % 4 == 0 and self.features >= 16
        a_tap, a_feature = (60, 15) if in_place else (140, 50)
        summed = self.channels * self.taps
        return self.positions * (1600 + a_tap * self.taps + a_feature * self.features + self.features * summed)

    @property
    def cost_of_uint8(self) -> float:
        """Of uint8 weights with AVX2, in the same unit; each kernel gathers its input."""
        summed = self.channels * self.taps
        return self.positions * (2900 + 530 * self.taps + 100 * summed + 5.5 * self.features * summed)


@dataclass(frozen=True)
class Window:
    """How a convolution slides over ``[N, H, W, C]``; sizes are (height, width, channels), pads (top, left, bottom, right)."""

    image: tuple[int, int, int]
    result: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    symmetric: bool

    @classmethod
    def of(cls, unit: QuantizedConv, image: Sequence[int | None] | None) -> Self | None:
        """``None`` where a size is unknown or the convolution is of a kind that is left alone."""
        weights = unit.weights.integers
        if image is None or None in image[1:] or weights is None or weights.ndim != 4:
            return None
        if {*ints(unit.conv, "dilations", [1, 1])} != {1}:
            return None
        if "auto_pad" in unit.conv.attributes:
            return None
        _, height, width, channels = (size or 0 for size in image)
        features, _, tall, wide = weights.shape
        down, across = ints(unit.conv, "strides", [1, 1])
        top, left, bottom, right = ints(unit.conv, "pads", [0] * 4)
        rows, columns = (height + top + bottom - tall) // down + 1, (width + left + right - wide) // across + 1
        return cls(
            (height, width, channels), (rows, columns, features), (tall, wide), (down, across), (top, left, bottom, right),
            not unit.weights.zero_point.any(),
        )  # fmt: skip

    @property
    def work(self) -> Work:
        (_, _, channels), (rows, columns, features) = self.image, self.result
        return Work(rows * columns, channels, features, self.kernel[0] * self.kernel[1])


@dataclass(frozen=True)
class Folding:
    """``columns`` of the result from ``width`` of the image at a time; ``low`` is the first folded column reached
    from the position of the result, ``reach`` their number.
    """

    width: int
    columns: int
    low: int
    reach: int
    pads: tuple[int, int]
    work: Work

    @classmethod
    def of(cls, window: Window, at_once: int) -> Self | None:
        """``None`` where columns do not divide evenly."""
        (_, columns, channels), (rows, across, features) = window.image, window.result
        stride, taps, left = window.strides[1], window.kernel[1], window.pads[1]
        width = at_once * stride
        if across % at_once or columns % width:
            return None
        low, high = -left // width, ((at_once - 1) * stride + taps - 1 - left) // width
        reach, pads = high - low + 1, (-low, across // at_once - columns // width + high)
        work = Work(rows * across // at_once, width * channels, at_once * features, window.kernel[0] * reach)
        return cls(width, at_once, low, reach, pads, work)

    def weights_of(self, unit: QuantizedConv, window: Window) -> Array:
        """``[o, c, y, x]`` as ``[columns·o, width·c, y, reach]``."""
        array, zero_point = unit.weights.integers, unit.weights.zero_point
        assert array is not None
        features, channels, tall, wide = array.shape
        empty = np.broadcast_to(zero_point.reshape(-1, 1, 1, 1, 1), (features, self.width, channels, tall, self.reach))
        folded = np.stack([empty] * self.columns)
        for column in range(self.columns):
            for tap in range(wide):
                at = column * window.strides[1] + tap - window.pads[1]
                folded[column, :, at % self.width, :, :, at // self.width - self.low] = array[..., tap]
        return folded.reshape(self.columns * features, self.width * channels, tall, self.reach)


def best(window: Window) -> Folding | None:
    """The cheapest folding in kernels of int8, where it costs less than none; of equals the narrowest."""
    if window.image[2] > MOST_CHANNELS:
        return None
    possible = [folding for columns in range(1, MOST_COLUMNS + 1) if (folding := Folding.of(window, columns))]
    cheapest = min(possible, key=lambda folding: folding.work.cost(window.symmetric), default=None)
    unfolded = window.work.cost(window.symmetric)
    return cheapest if cheapest and cheapest.work.cost(window.symmetric) + NODES < unfolded else None


def run(model: ir.Model, weights_dtype: str = "auto") -> int:
    """Fold the width of quantized convolutions that read channels-last images. ``weights_dtype``: the option of that name."""
    return rewrite_units(model, "Conv", partial(_fold, weights_dtype))


def _fold(weights_dtype: str, editor: Editor, unit: QuantizedConv) -> bool:
    if integer(unit.conv, "group", 1) != 1:
        return False
    image, between = channels_last(unit.data)
    window = Window.of(unit, sizes(image))
    folding = best(window) if window else None
    if window is None or folding is None:
        return False

    def emit() -> ir.Value:
        return folded(editor, unit, window, folding, image, between)

    weights = folding.weights_of(unit, window)
    stays_int8 = _exact(weights) or (weights.dtype == np.int8 and weights_dtype in ("int8", "keep"))
    if stays_int8 or folding.work.cost_of_uint8 < window.work.cost_of_uint8:
        with editor.replacing(unit.conv):
            value = emit()
    elif weights.dtype == np.int8 and weights_dtype == "auto" and not (weights == LEAST).any():
        probe = probed(editor)
        with editor.replacing(unit.conv):
            [value] = chosen(editor, probe, lambda: [emit()], lambda: [_unfolded(editor, unit, image, between)])
    else:  # uint8 on every processor
        return False
    editor.replace_value(unit.quantize.outputs[0], value)
    return True


def _exact(weights: Array) -> bool:
    """Whether int8 weights [o, c, y, x] overflow on no processor."""
    if weights.dtype != np.int8 or (weights == LEAST).any():
        return False
    return not overflows(np.moveaxis(weights, 1, -1).reshape(len(weights), -1))


def folded(
    editor: Editor,
    unit: QuantizedConv,
    window: Window,
    folding: Folding,
    image: ir.Value | None,
    between: Sequence[ir.Node],
) -> ir.Value:
    """The unit's result by the folded convolution; ``image`` is channels last, ``between`` are nodes that quantize it again."""
    (height, columns, channels), (rows, across, features) = window.image, window.result
    weights = folding.weights_of(unit, window)
    value = editor.emit("Reshape", image, [-1, height, columns // folding.width, folding.width * channels])
    value = _channels_first(editor, value, between)
    operands = [editor.dequantized(unit.weights.repeated(folding.columns, weights))]
    if unit.bias is not None:
        operands.append(editor.dequantized(unit.bias.repeated(folding.columns)))
    value = editor.emit(
        "Conv", value, *operands, like=unit.conv, kernel_shape=weights.shape[2:], strides=[window.strides[0], 1],
        pads=[window.pads[0], folding.pads[0], window.pads[2], folding.pads[1]], group=1,
    )  # fmt: skip
    value = editor.clone_on(unit.quantize, value)
    value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
    value = editor.emit("Reshape", value, [-1, rows, across, features])
    return editor.emit("Transpose", value, perm=CHANNELS_FIRST)


def _unfolded(editor: Editor, unit: QuantizedConv, image: ir.Value | None, between: Sequence[ir.Node]) -> ir.Value:
    """The unit's result as it was."""
    operands = [editor.dequantized(affine) for affine in (unit.weights, unit.bias) if affine is not None]
    value = editor.emit("Conv", _channels_first(editor, image, between), *operands, like=unit.conv)
    return editor.clone_on(unit.quantize, value)


def _channels_first(editor: Editor, image: ir.Value | None, between: Sequence[ir.Node]) -> ir.Value:
    value = editor.emit("Transpose", image, perm=CHANNELS_FIRST)
    for node in between:
        value = editor.clone_on(node, value)
    return value


def channels_last(data: ir.Node) -> tuple[ir.Value | None, list[ir.Node]]:
    """The channels-last value that a convolution reads, and what quantizes it again on the way, in order."""
    between: list[ir.Node] = []
    value = data.outputs[0]
    while node := producer(value, "QuantizeLinear", "DequantizeLinear"):
        parameters = Affine.of(node)
        if parameters is None or not parameters.per_tensor or node.inputs[0] is None:
            return None, []
        between.insert(0, node)
        value = node.inputs[0]
    turned = producer(value, "Reshape", "Transpose")
    if turned is None or not _brings_channels_first(turned):
        return None, []
    return turned.inputs[0], between


def _brings_channels_first(node: ir.Node) -> bool:
    """Whether a node makes ``[N, C, H, W]`` of ``[N, H, W, C]``; for one channel a Reshape does."""
    if node.op_type == "Transpose":
        return ints(node, "perm", []) == CHANNELS_FIRST
    before, after = sizes(node.inputs[0]), sizes(node.outputs[0])
    return before is not None and after is not None and len(before) == 4 and after == [before[0], 1, *before[1:3]]
