"""An image of few channels lies in memory pixel by pixel, and a convolution wants it plane by plane. Read as a single plane
whose rows hold the channels of each pixel side by side, it need not be transposed: a kernel C times as wide, which moves on C
columns where it moved one, adds up the same products.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import Convolution
from onnx_tflite_plugin.rewrite.graph import (
    BLOCK,
    CHANNELS_FIRST,
    Editor,
    constant_shape,
    ints,
    nodes_of,
    producer,
    rewrite_nodes,
    sizes,
)
from onnx_tflite_plugin.source.model import Array


def run(model: ir.Model) -> int:
    """Make planes of the images that float convolutions read; returns how many Transposes that spares."""
    return rewrite_nodes(model, "Transpose", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    shape, result = sizes(node.inputs[0]), node.outputs[0]
    users = [use.node for use in result.uses()]
    if shape is None or ints(node, "perm", []) != CHANNELS_FIRST or not users or result.is_graph_output():
        return False
    _, height, width, channels = shape
    if not width or not channels or not 1 < channels < BLOCK or not all(_reads(user, result) for user in users):
        return False
    with editor.replacing(node):
        plane = editor.emit("Reshape", node.inputs[0], [0, 1, height or -1, width * channels])
    for user in users:
        _widen(editor, user, plane, channels)
    return True


def _reads(node: ir.Node, image: ir.Value) -> bool:
    """Whether a node is a convolution of float images whose kernel covers pixels that lie side by side."""
    convolution = Convolution.of(node) if nodes_of([node], "Conv") and node.inputs[0] is image else None
    if convolution is None or convolution.group != 1 or len(convolution.shape) != 4 or "auto_pad" in node.attributes:
        return False
    if image.dtype != ir.DataType.FLOAT or producer(node.inputs[1], "DequantizeLinear"):
        return False
    return ints(node, "dilations", [1, 1])[1] == 1


def _widen(editor: Editor, node: ir.Node, plane: ir.Value, channels: int) -> None:
    """The convolution of an image as one of its plane."""
    top, left, bottom, right = ints(node, "pads", [0] * 4)
    down, across = ints(node, "strides", [1, 1])
    _, _, tall, wide = constant_shape(node.inputs[1]) or ()

    def columns(array: Array, _: float) -> Array:
        """``[o, c, y, x]`` as ``[o, 1, y, x·c]``."""
        if array.ndim != 4:
            return array
        pixels = array.transpose(0, 2, 3, 1)
        return pixels.reshape(len(pixels), 1, pixels.shape[1], -1)

    node.replace_input_with(0, plane)
    editor.rebuild(node, [1], columns)
    for name, numbers in (
        ("kernel_shape", [tall, wide * channels]),
        ("strides", [down, across * channels]),
        ("pads", [top, left * channels, bottom, right * channels]),
    ):
        node.attributes[name] = ir.AttrInt64s(name, numbers)
