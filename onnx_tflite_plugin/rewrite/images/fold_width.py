"""Integer kernels take input channels four at a time and cost most per output position; an image has few channels and many
positions. M adjacent columns of C channels are one column of M * C: ``[N, H, W, C]`` read as ``[N, H, W/M, M * C]``,
the same memory. A convolution with stride s then makes M/s output columns at once, with weights of zero where a column
does not reach. The sums and the results are the same.

Most of the products are with 0, and without VNNI products cost more than positions. If weights are int8 only on processors that
add them exactly (see ``weights``), one ``If`` on the probe holds the folded convolution for these and the original for others.
Under another ``--weights-dtype`` one convolution is written: weights that become uint8 fold only if that is cheaper for uint8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    Affine,
    QuantizedConv,
    integer,
    ints,
    nodes_of,
    producer,
    sizes,
)
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.rewrite.weights.processor_probe import emit_choice, emit_probe
from onnx_tflite_plugin.rewrite.weights.products import LEAST, overflows
from onnx_tflite_plugin.source.model import Array

MOST_CHANNELS, MOST_COLUMNS = 4, 16
NODES = 100_000  # cost of the Reshapes, in multiplications


@dataclass(frozen=True)
class Work:
    """The work of a convolution with so many input ``channels``, output ``positions`` and ``features``."""

    positions: int
    channels: int
    features: int
    taps: int

    def cost(self, symmetric: bool) -> int:
        """Return the cost with int8 weights, in multiplications (5 ps with AVX512-VNNI; a heuristic).

        With channels in multiples of 4 and zero points of 0 the kernel reads its input in place; otherwise it gathers it
        first, and rounds the sums afterwards.
        """
        in_place = symmetric and self.channels % 4 == 0 and self.features % 4 == 0 and self.features >= 16
        a_tap, a_feature = (60, 15) if in_place else (140, 50)
        summed = self.channels * self.taps
        return self.positions * (1600 + a_tap * self.taps + a_feature * self.features + self.features * summed)

    @property
    def cost_of_uint8(self) -> float:
        """The cost with uint8 weights and AVX2, in the same unit; every kernel gathers its input."""
        summed = self.channels * self.taps
        return self.positions * (2900 + 530 * self.taps + 100 * summed + 5.5 * self.features * summed)


@dataclass(frozen=True)
class Window:
    """A convolution of ``[N, H, W, C]``; shapes are (height, width, channels), pads (top, left, bottom, right)."""

    image: tuple[int, int, int]
    result: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    symmetric: bool

    @classmethod
    def of(cls, unit: QuantizedConv, image: Sequence[int | None] | None) -> Self | None:
        """Return the window; ``None`` if a size is dynamic, or the convolution is dilated or padded automatically."""
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
    """``columns`` output columns from ``width`` image columns at a time; ``low``: the first folded column that an output
    position reads, ``reach``: their number.
    """

    width: int
    columns: int
    low: int
    reach: int
    pads: tuple[int, int]
    work: Work

    @classmethod
    def of(cls, window: Window, at_once: int) -> Self | None:
        """Return the folding; ``None`` if columns do not divide evenly."""
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
        """Return weights ``[o, c, y, x]`` as ``[columns * o, width * c, y, reach]``."""
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
    """Return the cheapest folding with int8 weights, the narrowest of equals; ``None`` if no folding is cheaper."""
    if window.image[2] > MOST_CHANNELS:
        return None
    possible = [folding for columns in range(1, MOST_COLUMNS + 1) if (folding := Folding.of(window, columns))]
    cheapest = min(possible, key=lambda folding: folding.work.cost(window.symmetric), default=None)
    unfolded = window.work.cost(window.symmetric)
    return cheapest if cheapest and cheapest.work.cost(window.symmetric) + NODES < unfolded else None


class Image(NamedTuple):
    """The elements of an image ``[N, H, W, C]`` of shape ``sizes`` in order of memory, regardless of the shape of ``value``.

    ``channels_first``: the node that converts it to ``[N, C, H, W]``, if any; ``between``: nodes that then quantize it,
    in order.
    """

    value: ir.Value | None
    sizes: Sequence[int | None] | None
    channels_first: ir.Node | None
    between: Sequence[ir.Node]


class Match(NamedTuple):
    """A quantized convolution, its folding, and the image that it reads.

    ``by_processor``: it folds only if int8 products are exact where the model is loaded.
    """

    unit: QuantizedConv
    window: Window
    folding: Folding
    image: Image
    by_processor: bool = False


def pattern(model: ir.Model, options: RewriteOptions) -> Iterable[tuple[QuantizedConv, str]]:
    """Yield the quantized convolutions, with the option ``weights_dtype``."""
    units = [unit for node in nodes_of(model.graph, "Conv") if (unit := QuantizedConv.of(node))]
    return [(unit, options.weights_dtype) for unit in units]


def check(place: tuple[QuantizedConv, str]) -> Match | Decline:
    """Return the match, if the convolution of a channels-last image is cheaper folded."""
    unit, weights_dtype = place
    require(integer(unit.conv, "group", 1) == 1)
    image = require_match(image_of(unit.data), "the convolution reads no image of channels last")
    window = require_match(Window.of(unit, image.sizes))
    folding = require_match(best(window), "no number of columns divides the image and costs less")
    weights = folding.weights_of(unit, window)
    stays_int8 = _is_exact(weights) or (weights.dtype == np.int8 and weights_dtype in ("int8", "keep"))
    if stays_int8 or folding.work.cost_of_uint8 < window.work.cost_of_uint8:
        return Match(unit, window, folding, image)
    if weights.dtype == np.int8 and weights_dtype == "auto" and not (weights == LEAST).any():
        return Match(unit, window, folding, image, by_processor=True)
    return Decline("the weights become uint8, for which folding costs more")


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the folded convolution, or an If with both on the probe."""
    unit = match.unit
    probe = emit_probe(editor) if match.by_processor else None
    with editor.replacing(unit.conv):
        if probe is None:
            value = emit_folded(editor, match)
        else:
            [value] = emit_choice(
                editor, probe, lambda: [emit_folded(editor, match)], lambda: [_emit_unfolded(editor, match)]
            )
    editor.replace_value(unit.quantize.outputs[0], value)


fold_width = RewriteRule(pattern, check, rewrite)


def _is_exact(weights: Array) -> bool:
    """True for int8 weights [o, c, y, x] that overflow on no processor."""
    if weights.dtype != np.int8 or (weights == LEAST).any():
        return False
    return not overflows(np.moveaxis(weights, 1, -1).reshape(len(weights), -1))


def emit_folded(editor: Editor, match: Match) -> ir.Value:
    """Emit the folded convolution; returns its quantized result."""
    unit, window, folding = match.unit, match.window, match.folding
    (height, columns, channels), (rows, across, features) = window.image, window.result
    weights = folding.weights_of(unit, window)
    shape = [-1, height, columns // folding.width, folding.width * channels]
    value = editor.emit("Transpose", editor.emit("Reshape", match.image.value, shape), perm=CHANNELS_FIRST)
    value = _quantize(editor, value, match.image)
    operands = [editor.dequantize(unit.weights.tile(folding.columns, weights))]
    if unit.bias is not None:
        operands.append(editor.dequantize(unit.bias.tile(folding.columns)))
    value = editor.emit(
        "Conv", value, *operands, like=unit.conv, kernel_shape=weights.shape[2:], strides=[window.strides[0], 1],
        pads=[window.pads[0], folding.pads[0], window.pads[2], folding.pads[1]], group=1,
    )  # fmt: skip
    value = editor.clone_on(unit.quantize, value)
    value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
    value = editor.emit("Reshape", value, [-1, rows, across, features])
    return editor.emit("Transpose", value, perm=CHANNELS_FIRST)


def _emit_unfolded(editor: Editor, match: Match) -> ir.Value:
    """Emit the convolution as it was; returns its quantized result."""
    unit = match.unit
    operands = [editor.dequantize(affine) for affine in (unit.weights, unit.bias) if affine is not None]
    image = match.image
    assert image.channels_first is not None
    assert image.value is not None
    value = editor.clone_on(image.channels_first, image.value)
    value = editor.emit("Conv", _quantize(editor, value, image), *operands, like=unit.conv)
    return editor.clone_on(unit.quantize, value)


def _quantize(editor: Editor, value: ir.Value, image: Image) -> ir.Value:
    for node in image.between:
        value = editor.clone_on(node, value)
    return value


def image_of(data: ir.Node) -> Image | None:
    """Return the image, channels last, that a convolution reads; ``None`` if no Transpose or Reshape turns it channels
    first.
    """
    between: list[ir.Node] = []
    value = data.outputs[0]
    while node := producer(value, "QuantizeLinear", "DequantizeLinear"):
        parameters = Affine.of(node)
        if parameters is None or not parameters.per_tensor or node.inputs[0] is None:
            return None
        between.insert(0, node)
        value = node.inputs[0]
    maker = producer(value, "Reshape", "Transpose")
    if maker is None or not _makes_channels_first(maker):
        return None
    first = sizes(maker.outputs[0])
    shape = sizes(maker.inputs[0]) if first is None else [first[0], *first[2:], first[1]]
    return Image(maker.inputs[0], shape, maker, between)


def _makes_channels_first(node: ir.Node) -> bool:
    """True if a node converts ``[N, H, W, C]`` to ``[N, C, H, W]``; for one channel a Reshape of the same elements
    does.
    """
    if node.op_type == "Transpose":
        return ints(node, "perm", []) == CHANNELS_FIRST
    after = sizes(node.outputs[0])
    return after is not None and len(after) == 4 and after[1] == 1
