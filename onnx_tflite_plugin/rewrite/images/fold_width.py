"""Fold adjacent columns of an image with few channels into channels.

Integer kernels of convolutions read four input channels at a time, and most of their time is per output position. An image has
few channels and many positions. M adjacent columns of C channels become one column of M * C channels: ``[N, H, W, C]`` is
reshaped to ``[N, H, W/M, M * C]`` without a copy. A convolution with stride s then computes M/s result columns at once. Its
weights are zero for columns that a result column does not read. The sums and the results are the same.

Most multiplications of the folded convolution are by 0. Without VNNI, they take more time than folding saves. With
``--weights-dtype auto``, weights may be int8 only on processors that compute exact sums (see ``assign_dtypes``). An ``If`` on the processor
probe then contains the folded convolution for these processors and the original convolution for other processors. With other
``--weights-dtype``, one convolution is emitted. Weights that become uint8 are folded only if folding is faster for uint8.
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
from onnx_tflite_plugin.rewrite.weights.int8_operands import INT8_MIN, overflows
from onnx_tflite_plugin.rewrite.weights.processor_probe import emit_choice, emit_probe
from onnx_tflite_plugin.source.model import Array

MAX_CHANNELS, MAX_COLUMNS = 4, 16
RESHAPE_COST = 100_000  # cost of the additional nodes, in multiplications


@dataclass(frozen=True)
class Work:
    """The size of a convolution, from which its cost is estimated.

    ``positions``: output positions. ``channels`` and ``features``: input and output channels. ``taps``: elements of the
    kernel.
    """

    positions: int
    channels: int
    features: int
    taps: int

    def cost(self, symmetric: bool) -> int:
        """Return the cost with int8 weights, in multiplications.

        The cost is a heuristic. A multiplication takes 5 ps with AVX512-VNNI. The kernel reads its input in place if the
        numbers of channels are multiples of 4 and the zero points are 0. Otherwise it copies the input first.
        """
        in_place = symmetric and self.channels % 4 == 0 and self.features % 4 == 0 and self.features >= 16
        tap_cost, feature_cost = (60, 15) if in_place else (140, 50)
        summands = self.channels * self.taps
        return self.positions * (1600 + tap_cost * self.taps + feature_cost * self.features + self.features * summands)

    @property
    def cost_of_uint8(self) -> float:
        """The cost with uint8 weights and AVX2, in the unit of ``cost``.

        The kernel always copies its input first.
        """
        summands = self.channels * self.taps
        return self.positions * (2900 + 530 * self.taps + 100 * summands + 5.5 * self.features * summands)


@dataclass(frozen=True)
class Window:
    """The sizes of a convolution of an image ``[N, H, W, C]``.

    ``image`` and ``result``: height, width, channels. ``kernel`` and ``strides``: along height and width. ``pads``: top,
    left, bottom, right. ``symmetric``: the zero points of the weights are 0.
    """

    image: tuple[int, int, int]
    result: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    symmetric: bool

    @classmethod
    def of(cls, conv: QuantizedConv, image: Sequence[int | None] | None) -> Self | None:
        """Return the window of a convolution.

        Return ``None`` if a size is dynamic, or the convolution is dilated or has ``auto_pad``.
        """
        weights = conv.weights.integers
        if image is None or None in image[1:] or weights is None or weights.ndim != 4:
            return None
        if {*ints(conv.node, "dilations", [1, 1])} != {1}:
            return None
        if "auto_pad" in conv.node.attributes:
            return None
        _, height, width, channels = (size or 0 for size in image)
        features, _, kernel_height, kernel_width = weights.shape
        stride_y, stride_x = ints(conv.node, "strides", [1, 1])
        top, left, bottom, right = ints(conv.node, "pads", [0] * 4)
        rows = (height + top + bottom - kernel_height) // stride_y + 1
        columns = (width + left + right - kernel_width) // stride_x + 1
        symmetric = not conv.weights.zero_point.any()
        return cls(
            (height, width, channels), (rows, columns, features), (kernel_height, kernel_width), (stride_y, stride_x),
            (top, left, bottom, right), symmetric,
        )  # fmt: skip

    @property
    def work(self) -> Work:
        (_, _, channels), (rows, columns, features) = self.image, self.result
        return Work(rows * columns, channels, features, self.kernel[0] * self.kernel[1])


@dataclass(frozen=True)
class Folding:
    """The sizes of a folded convolution, along the width.

    Attributes:
        image_columns: number of image columns that are folded into one.
        result_columns: number of result columns that are computed at once, as one folded column.
        first_offset: offset from a folded result column to the first folded image column that it reads.
        kernel_width: number of folded image columns that a folded result column reads.
        pads: left and right padding, in folded columns.
        work: size of the folded convolution.
    """

    image_columns: int
    result_columns: int
    first_offset: int
    kernel_width: int
    pads: tuple[int, int]
    work: Work

    @classmethod
    def of(cls, window: Window, result_columns: int) -> Self | None:
        """Return the folding, or ``None`` if a number of columns is not divisible.

        ``result_columns``: the number of result columns to compute at once.
        """
        (_, image_width, channels), (rows, result_width, features) = window.image, window.result
        stride, left_pad = window.strides[1], window.pads[1]
        image_columns = result_columns * stride
        if result_width % result_columns or image_width % image_columns:
            return None
        first_offset = -left_pad // image_columns
        last_offset = ((result_columns - 1) * stride + window.kernel[1] - 1 - left_pad) // image_columns
        kernel_width = last_offset - first_offset + 1
        pads = -first_offset, result_width // result_columns - image_width // image_columns + last_offset
        positions, taps = rows * result_width // result_columns, window.kernel[0] * kernel_width
        work = Work(positions, image_columns * channels, result_columns * features, taps)
        return cls(image_columns, result_columns, first_offset, kernel_width, pads, work)

    def folded_weights(self, conv: QuantizedConv, window: Window) -> Array:
        """Return the weights of the folded convolution.

        The original weights have shape [o, c, y, x]. The result has shape
        [result_columns * o, image_columns * c, y, kernel_width].
        """
        array, zero_point = conv.weights.integers, conv.weights.zero_point
        assert array is not None
        features, channels, height, original_width = array.shape
        shape = features, self.image_columns, channels, height, self.kernel_width
        zeros = np.broadcast_to(zero_point.reshape(-1, 1, 1, 1, 1), shape)
        folded = np.stack([zeros] * self.result_columns)
        for result_column in range(self.result_columns):
            for tap in range(original_width):
                image_column = result_column * window.strides[1] + tap - window.pads[1]
                folded_tap = image_column // self.image_columns - self.first_offset
                folded[result_column, :, image_column % self.image_columns, :, :, folded_tap] = array[..., tap]
        return folded.reshape(self.result_columns * features, self.image_columns * channels, height, self.kernel_width)


def cheapest_folding(window: Window) -> Folding | None:
    """Return the folding of lowest cost for int8 weights.

    Return ``None`` if no folding saves time.
    """
    if window.image[2] > MAX_CHANNELS:
        return None
    foldings = [folding for columns in range(1, MAX_COLUMNS + 1) if (folding := Folding.of(window, columns))]
    cheapest = min(foldings, key=lambda folding: folding.work.cost(window.symmetric), default=None)
    unfolded_cost = window.work.cost(window.symmetric)
    return cheapest if cheapest and cheapest.work.cost(window.symmetric) + RESHAPE_COST < unfolded_cost else None


class Image(NamedTuple):
    """A channels-last image of shape ``sizes``, [N, H, W, C].

    ``value``: the tensor of the image. Its shape may differ from ``sizes``, but not the order of its elements.
    ``channels_first``: the node that converts ``value`` to [N, C, H, W], if any. ``quantize_nodes``: the nodes after the
    conversion that quantize and dequantize the image, in order.
    """

    value: ir.Value | None
    sizes: Sequence[int | None] | None
    channels_first: ir.Node | None
    quantize_nodes: Sequence[ir.Node]


class Match(NamedTuple):
    """A quantized convolution, its folding, and the image that it reads.

    ``depends_on_processor``: the convolution is folded only on processors with exact int8 products.
    """

    conv: QuantizedConv
    window: Window
    folding: Folding
    image: Image
    depends_on_processor: bool = False


def pattern(model: ir.Model, options: RewriteOptions) -> Iterable[tuple[QuantizedConv, str]]:
    """Return the quantized convolutions, each with the option ``weights_dtype``."""
    convs = [conv for node in nodes_of(model.graph, "Conv") if (conv := QuantizedConv.of(node))]
    return [(conv, options.weights_dtype) for conv in convs]


def check(place: tuple[QuantizedConv, str]) -> Match | Decline:
    """Return the match if folding an image saves time in a convolution."""
    conv, weights_dtype = place
    require(integer(conv.node, "group", 1) == 1)
    image = require_match(image_of(conv.data), "the operand is not a channels-last image")
    window = require_match(Window.of(conv, image.sizes))
    folding = require_match(cheapest_folding(window), "no number of columns divides the width and saves time")
    weights = folding.folded_weights(conv, window)
    stays_int8 = _is_exact(weights) or (weights.dtype == np.int8 and weights_dtype in ("int8", "keep"))
    if stays_int8 or folding.work.cost_of_uint8 < window.work.cost_of_uint8:
        return Match(conv, window, folding, image)
    if weights.dtype == np.int8 and weights_dtype == "auto" and not (weights == INT8_MIN).any():
        return Match(conv, window, folding, image, depends_on_processor=True)
    return Decline("the folded weights must be uint8, so folding saves no time")


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the folded convolution, or an If on the probe with both convolutions."""
    conv = match.conv
    probe = emit_probe(editor) if match.depends_on_processor else None
    with editor.replacing(conv.node):
        if probe is None:
            value = emit_folded(editor, match)
        else:
            [value] = emit_choice(
                editor, probe, lambda: [emit_folded(editor, match)], lambda: [_emit_unfolded(editor, match)]
            )
    editor.replace_value(conv.quantize.outputs[0], value)


fold_width = RewriteRule(pattern, check, rewrite)


def _is_exact(weights: Array) -> bool:
    """True for int8 weights [o, c, y, x] whose sums overflow on no processor."""
    if weights.dtype != np.int8 or (weights == INT8_MIN).any():
        return False
    return not overflows(np.moveaxis(weights, 1, -1).reshape(len(weights), -1))


def emit_folded(editor: Editor, match: Match) -> ir.Value:
    """Emit the folded convolution. Return its quantized result."""
    conv, window, folding = match.conv, match.window, match.folding
    (height, width, channels), (rows, columns, features) = window.image, window.result
    weights = folding.folded_weights(conv, window)
    shape = [-1, height, width // folding.image_columns, folding.image_columns * channels]
    value = editor.emit("Transpose", editor.emit("Reshape", match.image.value, shape), perm=CHANNELS_FIRST)
    value = _emit_quantize_nodes(editor, value, match.image)
    operands = [editor.dequantize(conv.weights.tile(folding.result_columns, weights))]
    if conv.bias is not None:
        operands.append(editor.dequantize(conv.bias.tile(folding.result_columns)))
    value = editor.emit(
        "Conv", value, *operands, like=conv.node, kernel_shape=weights.shape[2:], strides=[window.strides[0], 1],
        pads=[window.pads[0], folding.pads[0], window.pads[2], folding.pads[1]], group=1,
    )  # fmt: skip
    value = editor.clone_on(conv.quantize, value)
    value = editor.emit("Transpose", value, perm=CHANNELS_LAST)
    value = editor.emit("Reshape", value, [-1, rows, columns, features])
    return editor.emit("Transpose", value, perm=CHANNELS_FIRST)


def _emit_unfolded(editor: Editor, match: Match) -> ir.Value:
    """Emit the original convolution. Return its quantized result."""
    conv = match.conv
    operands = [editor.dequantize(affine) for affine in (conv.weights, conv.bias) if affine is not None]
    image = match.image
    assert image.channels_first is not None
    assert image.value is not None
    value = editor.clone_on(image.channels_first, image.value)
    value = editor.emit("Conv", _emit_quantize_nodes(editor, value, image), *operands, like=conv.node)
    return editor.clone_on(conv.quantize, value)


def _emit_quantize_nodes(editor: Editor, value: ir.Value, image: Image) -> ir.Value:
    for node in image.quantize_nodes:
        value = editor.clone_on(node, value)
    return value


def image_of(data: ir.Node) -> Image | None:
    """Return the channels-last image that is converted for a convolution.

    ``data``: the DequantizeLinear before the convolution. Return ``None`` if the image is not converted to channels
    first.
    """
    quantize_nodes: list[ir.Node] = []
    value = data.outputs[0]
    while node := producer(value, "QuantizeLinear", "DequantizeLinear"):
        parameters = Affine.of(node)
        if parameters is None or not parameters.per_tensor or node.inputs[0] is None:
            return None
        quantize_nodes.insert(0, node)
        value = node.inputs[0]
    producer_node = producer(value, "Reshape", "Transpose")
    if producer_node is None or not _converts_to_channels_first(producer_node):
        return None
    shape = sizes(producer_node.outputs[0])
    channels_last = sizes(producer_node.inputs[0]) if shape is None else [shape[0], *shape[2:], shape[1]]
    return Image(producer_node.inputs[0], channels_last, producer_node, quantize_nodes)


def _converts_to_channels_first(node: ir.Node) -> bool:
    """True if a node converts [N, H, W, C] to [N, C, H, W].

    The node is a Transpose, or a Reshape of an image of one channel.
    """
    if node.op_type == "Transpose":
        return ints(node, "perm", []) == CHANNELS_FIRST
    shape = sizes(node.outputs[0])
    return shape is not None and len(shape) == 4 and shape[1] == 1
