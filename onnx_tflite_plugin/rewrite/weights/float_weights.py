"""Float weights stay float. Between a DequantizeLinear and a QuantizeLinear ONNX Runtime quantizes them itself, to int8 with one
scale for all channels (WeightBiasQuantization, since 1.21), where the file has float arithmetic between quantized parts. It does not
look behind a Mul, so the operand is dequantized with a scale of 1 and multiplied by its own: the same floats. Where its own is 1 the
product with it would be dropped before, and it is dequantized with 2 and halved.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, constant, constant_shape, nodes_of, producer, rewrite, sizes

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_ACTIVATIONS = ("Clip", "Relu")
_MOVES = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")  # it carries Q and DQ across these first


def run(model: ir.Model) -> int:
    """Change every product of float weights whose weights would be quantized, in all graphs."""
    places = [node for node in nodes_of(model.graph.all_nodes(), *_PRODUCTS) if _would_be_quantized(node)]
    return rewrite(model, places, _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    """The operand dequantized in two nodes, for this product alone: others may be integer kernels with what is there."""
    first = _first(node)
    data = producer(first.inputs[0], "DequantizeLinear")
    if data is None:  # another product was behind the same nodes
        return False
    integers, scale, *point = data.inputs
    given = constant(scale)
    step, factor = (2, np.full((), 0.5, np.float32)) if given is not None and given.item() == 1 else (1, scale)
    with editor.replacing(first):
        whole = editor.emit("DequantizeLinear", integers, np.full((), step, np.float32), *point)
        floats = editor.emit("Mul", whole, factor)
    first.replace_input_with(0, floats)
    return True


def _would_be_quantized(node: ir.Node) -> bool:
    data = producer(_first(node).inputs[0], "DequantizeLinear")
    return data is not None and _per_tensor(data) and _float(node.inputs[1]) and _quantized(node)


def _first(node: ir.Node) -> ir.Node:
    """The first of the nodes that move a product's first operand; the product where there are none."""
    while (mover := producer(node.inputs[0], *_MOVES)) is not None:
        node = mover
    return node


def _per_tensor(node: ir.Node) -> bool:
    scale = constant(node.inputs[1])
    return (sizes(node.inputs[1]) in ([], [1])) if scale is None else scale.size == 1


def _float(weights: ir.Value | None) -> bool:
    """Whether weights are constant as floats, or once constants are folded."""
    return producer(weights, "DequantizeLinear") is None and constant_shape(weights) is not None


def _quantized(node: ir.Node) -> bool:
    """Whether a product's result is quantized, behind activations or none; ONNX Runtime makes a Gemm of MatMul and Add."""
    between = (*_ACTIVATIONS, *_MOVES)
    user = _user(node.outputs[0], "QuantizeLinear", *between, *(("Add",) if node.op_type == "MatMul" else ()))
    while user is not None and user.op_type != "QuantizeLinear":
        user = _user(user.outputs[0], "QuantizeLinear", *between)
    return user is not None


def _user(value: ir.Value, *op_types: str) -> ir.Node | None:
    """The only node that reads a value, be it a graph output too: ONNX Runtime does not ask."""
    users = {node for node, _ in value.uses()}
    return next((node for node in users if node.op_type in op_types), None) if len(users) == 1 else None
