"""A float scale and offset per channel that stand in front of an activation, as batch normalization does in networks that
normalize before they convolve, fold into no convolution. One depthwise 1 x 1 convolution does both inside the blocked layout,
and takes the activation with it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import BROADCASTING, CHANNELWISE
from onnx_tflite_plugin.rewrite.graph import DIVISOR, Editor, constant, only_user, producer, rewrite_nodes, sizes
from onnx_tflite_plugin.source.model import Array

_BLOCKED = ("Conv", "Concat", *CHANNELWISE, *BROADCASTING)


def run(model: ir.Model) -> int:
    """Replace Mul and Add with constants per channel by a convolution each; returns how many pairs."""
    return rewrite_nodes(model, "Mul", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    follower = only_user(node.outputs[0], "Add")
    shape = sizes(node.outputs[0])
    if follower is None or shape is None or len(shape) != 4 or not shape[1] or shape[1] % DIVISOR:
        return False
    value, factor = _operands(node, shape[1])
    _, offset = _operands(follower, shape[1])
    maker = producer(value, *_BLOCKED)
    if value is None or factor is None or offset is None or maker is None or value.dtype != ir.DataType.FLOAT:
        return False
    if shape[2:] == [1, 1] or sizes(value) != shape:
        return False
    with editor.replacing(follower):
        weights = factor.reshape(-1, 1, 1, 1)
        scaled = editor.emit("Conv", value, weights, offset, kernel_shape=[1, 1], group=shape[1])
    editor.replace_value(follower.outputs[0], scaled)
    return True


def _operands(node: ir.Node, channels: int) -> tuple[ir.Value | None, Array | None]:
    """What is computed, and the float32 constant, one number for each channel; ``None`` where it is none."""
    for value, other in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        array = constant(other)
        if array is None and (cast := producer(other, "Cast")):
            array = constant(cast.inputs[0])
        if array is not None and array.shape in ((channels, 1, 1), (1, channels, 1, 1)):
            return value, np.ascontiguousarray(array.reshape(-1), np.float32)
    return None, None
