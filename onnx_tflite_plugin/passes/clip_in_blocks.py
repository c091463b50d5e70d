"""A sum between convolutions works in the blocked layout, a Clip behind it does not: what is clipped leaves the blocks and comes
back for the next convolution. A convolution takes a Clip with it, so one by channel with weights of 1 is put in between.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.graph import DIVISOR, Editor, constant, only_user, producer, rewrite_nodes, sizes

_READERS = frozenset({"Add", "AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Resize"})
"""Operators that read blocks."""


def run(model: ir.Model) -> int:
    """Put convolutions between sums and Clips; returns how many."""
    return rewrite_nodes(model, "Clip", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    total = producer(node.inputs[0], "Add")
    bounds = [value for value in node.inputs[1:] if value is not None]
    if total is None or only_user(total.outputs[0], "Clip") is None or any(constant(value) is None for value in bounds):
        return False
    shape = sizes(node.outputs[0])
    if shape is None or len(shape) != 4 or not shape[1] or shape[1] % DIVISOR or shape[2:] == [1, 1]:
        return False
    if not _between_convolutions(total, node, shape):
        return False
    with editor.replacing(node):
        ones = np.ones((shape[1], 1, 1, 1), np.float32)
        value = editor.emit("Conv", total.outputs[0], ones, kernel_shape=[1, 1], group=shape[1])
    node.replace_input_with(0, value)
    return True


def _between_convolutions(total: ir.Node, clip: ir.Node, shape: list[int | None]) -> bool:
    """Whether two float images are added, one of them a convolution's, and somebody reads the result in blocks."""
    floats = total.outputs[0].dtype in (None, ir.DataType.FLOAT) and clip.outputs[0].dtype == ir.DataType.FLOAT
    alike = all(sizes(value) in (shape, None) and constant(value) is None for value in total.inputs)
    convolved = any(producer(value, "Conv") for value in total.inputs)
    users = {use.node.op_type for use in clip.outputs[0].uses()}
    return floats and alike and convolved and bool(users & _READERS) and "QuantizeLinear" not in users
