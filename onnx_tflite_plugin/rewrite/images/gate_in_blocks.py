"""A gate, one factor per channel that the network computes, takes the image that it multiplies out of the blocked layout:
kernels there multiply tensors of equal shape alone. As an image of as many pixels, each of them that factor, it works inside.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import BLOCK, DIVISOR, Editor, constant_shape, ints, producer, rewrite_nodes, sizes

Size = int | ir.SymbolicDim

_WITH_CONV = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
"""Activations that a convolution's kernel takes with it."""
_KEEPING = _WITH_CONV | {"AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Resize"}
"""Operators whose result has as many images as their first operand."""
_BROADCASTING = frozenset({"Add", "Mul", "Sub"})


def run(model: ir.Model) -> int:
    """Repeat gates over the images that they multiply; returns how many."""
    batches = _batches(model.graph)
    return rewrite_nodes(model, "Mul", lambda editor, node: _replace(editor, node, batches))


def _replace(editor: Editor, node: ir.Node, batches: Mapping[ir.Value, Size]) -> bool:
    shape = sizes(node.outputs[0])
    if shape is None or len(shape) != 4 or None in shape[1:] or shape[2:] == [1, 1]:
        return False
    channels, height, width = (size or 0 for size in shape[1:])
    gates = [k for k, value in enumerate(node.inputs) if (sizes(value) or [])[1:] == [channels, 1, 1]]
    if len(gates) != 1 or channels < BLOCK or channels % DIVISOR or not _blocked(node):
        return False
    gate, image = node.inputs[gates[0]], node.inputs[1 - gates[0]]
    if gate is None or image is None or gate not in batches or batches[gate] != batches.get(image):
        return False
    with editor.replacing(node):
        repeats = np.array([1, 1, height, width], np.float32)
        repeated = editor.emit(
            "Resize", gate, None, repeats, mode="nearest", coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )  # fmt: skip
    # Shape inference forgets an open batch at Resize, and shapes that are not known to be equal are taken out of the blocks.
    for value in (repeated, image):
        value.shape = ir.Shape([batches[gate], channels, height, width])
    repeated.type = gate.type
    node.replace_input_with(gates[0], repeated)
    return True


def _batches(graph: ir.Graph) -> dict[ir.Value, Size]:
    """How many images each value has: where that is open, the size of the graph's input from which it comes."""
    batches = {value: value.shape[0] for value in graph.inputs if value.shape}
    for node in graph:
        operands = node.inputs if node.op_type in _BROADCASTING else node.inputs[:1]
        counts = {batches.get(value) for value in operands if value is not None and constant_shape(value) is None}
        moved = node.op_type == "Transpose" and ints(node, "perm", [1])[0] == 0
        keeps = moved or node.op_type in _KEEPING or node.op_type in _BROADCASTING
        kept = counts.pop() if keeps and len(counts) == 1 else None
        for value in node.outputs:
            size = value.shape[0] if value.shape else None
            size = size if isinstance(size, int) else kept
            if size is not None:
                batches[value] = size
    return batches


def _blocked(node: ir.Node) -> bool:
    """Whether image and gate come from float convolutions, and the product goes to one."""
    makers = [_convolution(value) for value in node.inputs]
    floats = all(maker is not None and _float(maker.inputs[0]) for maker in makers)
    return floats and any(use.node.op_type == "Conv" for use in node.outputs[0].uses())


def _float(value: ir.Value | None) -> bool:
    """Whether it is one that no integer kernel computes."""
    return value is not None and value.dtype == ir.DataType.FLOAT and producer(value, "DequantizeLinear") is None


def _convolution(value: ir.Value | None) -> ir.Node | None:
    """The convolution that makes a value, by itself or with the activation behind it."""
    activation = producer(value, *_WITH_CONV)
    return producer(activation.inputs[0] if activation else value, "Conv")
