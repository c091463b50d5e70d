"""Zeros appended to the channels of a residual connection keep what follows out of the blocked layout, in which convolutions
and sums of their results work. A 1 x 1 convolution by the identity appends them inside it, and takes the sum with it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import DIVISOR, Editor, constant, only_user, producer, rewrite_nodes, sizes

_MOST = 128  # channels beyond which the products cost more than two changes of layout


def run(model: ir.Model) -> int:
    """Replace pads of channels in front of sums with convolutions; returns how many."""
    return rewrite_nodes(model, "Pad", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    front, behind = _channels(node)
    shape = sizes(node.inputs[0])
    total = only_user(node.outputs[0], "Add")
    if shape is None or total is None or not shape[1] or shape[1] % DIVISOR or shape[1] > _MOST or front + behind <= 0:
        return False
    if not any(producer(value, "Conv") for value in total.inputs):
        return False
    weights = np.zeros((front + shape[1] + behind, shape[1], 1, 1), np.float32)
    weights[front : front + shape[1], :, 0, 0] = np.eye(shape[1])
    with editor.replacing(node):
        value = editor.emit("Conv", node.inputs[0], weights, kernel_shape=[1, 1])
    editor.replace_value(node.outputs[0], value)
    return True


def _channels(node: ir.Node) -> tuple[int, int]:
    """Zeros in front of and behind the channels of a float image; (0, 0) where anything else is padded."""
    image = node.inputs[0]
    pads = constant(node.inputs[1])
    value = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(())
    mode = node.attributes.get("mode")
    if image is None or image.dtype != ir.DataType.FLOAT or pads is None or pads.shape != (8,) or len(node.inputs) > 3:
        return 0, 0
    if value is None or value.any() or (mode is not None and mode.as_string() != "constant"):
        return 0, 0
    others = np.delete(pads, (1, 5))
    return (0, 0) if others.any() or pads.min() < 0 else (int(pads[1]), int(pads[5]))
