"""Fold the channels of an image into its width, which saves a Transpose.

The image is stored channels last, but a convolution reads channels first. If the C channels of each pixel are treated as C pixels of
a one-channel image, no Transpose is needed. A kernel C times as wide, with C times the stride along the width, computes the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import Convolution
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import BLOCK, CHANNELS_FIRST, constant_shape, ints, nodes_of, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array


class Match(NamedTuple):
    """A Transpose to channels first, and the convolutions that read the image."""

    transpose: ir.Node
    readers: Sequence[ir.Node]
    height: int | None
    width: int
    channels: int


def check(transpose: ir.Node) -> Match:
    """Return the match if only float convolutions read an image of few channels."""
    require(ints(transpose, "perm", []) == CHANNELS_FIRST)
    shape = require_match(sizes(transpose.inputs[0]), "the rank of the image is unknown")
    result = transpose.outputs[0]
    readers = [use.node for use in result.uses()]
    require(readers and not result.is_graph_output(), "the transposed image is unused or a graph output")
    _, height, width, channels = shape
    require(width, "the width is dynamic")
    require(channels and 1 < channels < BLOCK, f"the image has 1 channel, or {BLOCK} or more")
    for reader in readers:
        _require_convolution(reader, result)
    return Match(transpose, readers, height, width or 0, channels or 0)


def rewrite(editor: Editor, match: Match) -> None:
    """Reshape the image to one channel, and widen the kernels that read it."""
    transpose, readers, height, width, channels = match
    with editor.replacing(transpose):
        plane = editor.emit("Reshape", transpose.inputs[0], [0, 1, height or -1, width * channels])
    for reader in readers:
        _widen(editor, reader, plane, channels)


image_channels_to_width = RewriteRule(nodes("Transpose"), check, rewrite)


def _require_convolution(node: ir.Node, image: ir.Value) -> None:
    """Raise Refusal unless a node is a float 2-D convolution of the image.

    The convolution must be ungrouped, with explicit pads, and not dilated along the width.
    """
    convolution = require_match(
        Convolution.of(node) if nodes_of([node], "Conv") and node.inputs[0] is image else None,
        "an operator other than a convolution with constant weights reads the image",
    )
    require(convolution.group == 1 and len(convolution.shape) == 4, "the convolution is grouped, or not 2-D")
    require("auto_pad" not in node.attributes, "the pads are computed (auto_pad)")
    require(
        image.dtype == ir.DataType.FLOAT and not producer(node.inputs[1], "DequantizeLinear"),
        "the convolution is quantized",
    )
    require(ints(node, "dilations", [1, 1])[1] == 1, "the convolution is dilated along the width")


def _widen(editor: Editor, node: ir.Node, plane: ir.Value, channels: int) -> None:
    """Let a convolution read ``plane``, the one-channel image, and widen its kernel."""
    top, left, bottom, right = ints(node, "pads", [0] * 4)
    stride_y, stride_x = ints(node, "strides", [1, 1])
    _, _, kernel_height, kernel_width = constant_shape(node.inputs[1]) or ()

    def merge_channels(array: Array, _: float) -> Array:
        """Return ``[o, c, y, x]`` as ``[o, 1, y, x * c]``."""
        if array.ndim != 4:
            return array
        pixels = array.transpose(0, 2, 3, 1)
        return pixels.reshape(len(pixels), 1, pixels.shape[1], -1)

    node.replace_input_with(0, plane)
    editor.rebuild(node, [1], merge_channels)
    for name, values in (
        ("kernel_shape", [kernel_height, kernel_width * channels]),
        ("strides", [stride_y, stride_x * channels]),
        ("pads", [top, left * channels, bottom, right * channels]),
    ):
        node.attributes[name] = ir.AttrInt64s(name, values)
