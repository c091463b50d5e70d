"""Sums and activations between convolutions work in the blocked layout, a Clip behind them does not, nor do Max and Min: what is
bounded leaves the blocks and comes back for the next convolution. A convolution takes a Clip with it, so one by channel with
weights of 1 is put in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import DIVISOR, Editor, constant, nodes_of, only_user, producer, rewrite, sizes
from onnx_tflite_plugin.source.model import Array

_BOUNDS = ("Clip", "Max", "Min")
_WITH_CONV = ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
"""Activations that a convolution takes with it."""
_READERS = frozenset({"Add", "AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Resize"})
"""Operators that read blocks."""


def run(model: ir.Model) -> int:
    """Put convolutions between sums or activations and their bounds; returns how many."""
    return rewrite(model, nodes_of(model.graph, *_BOUNDS), _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    image, bounds, shape = node.inputs[0], _bounds(node), sizes(node.outputs[0])
    if image is None or bounds is None or only_user(image, node.op_type) is None:
        return False
    if shape is None or len(shape) != 4 or not shape[1] or shape[1] % DIVISOR or shape[2:] == [1, 1]:
        return False
    if not _in_blocks(image, shape) or not _read_in_blocks(node):
        return False
    with editor.replacing(node):
        ones = np.ones((shape[1], 1, 1, 1), np.float32)
        value = editor.emit("Conv", image, ones, kernel_shape=[1, 1], group=shape[1])
        value = editor.emit("Clip", value, *bounds)
    editor.replace_value(node.outputs[0], value)
    return True


def _bounds(node: ir.Node) -> Sequence[ir.Value | Array | None] | None:
    """The least and the largest number that a node lets pass; ``None`` where they are no constants, or several."""
    others = list(node.inputs[1:])
    if node.op_type == "Clip":
        return None if any(value is not None and constant(value) is None for value in others) else others
    number = constant(others[0]) if len(others) == 1 else None
    if number is None or number.size != 1:
        return None
    bound = np.asarray(number.reshape(()))
    return [bound] if node.op_type == "Max" else [None, bound]


def _in_blocks(image: ir.Value, shape: list[int | None]) -> bool:
    """Whether a value is the sum of two float images, one of them a convolution's, or the activation of one."""
    if image.dtype not in (None, ir.DataType.FLOAT):
        return False
    activation, total = producer(image, *_WITH_CONV), producer(image, "Add")
    if activation is not None:
        return producer(activation.inputs[0], "Conv") is not None
    if total is None or any(sizes(value) not in (shape, None) or constant(value) is not None for value in total.inputs):
        return False
    return any(producer(value, "Conv") for value in total.inputs)


def _read_in_blocks(node: ir.Node) -> bool:
    """Whether a float result is read by what works in blocks, and not quantized."""
    users = {use.node.op_type for use in node.outputs[0].uses()}
    return node.outputs[0].dtype == ir.DataType.FLOAT and bool(users & _READERS) and "QuantizeLinear" not in users
