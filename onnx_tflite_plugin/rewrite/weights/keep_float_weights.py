"""Between a DequantizeLinear and a QuantizeLinear ONNX Runtime quantizes float weights itself, to int8 with one scale for all channels
(WeightBiasQuantization, since 1.21), where the file has float arithmetic between quantized operators. It does not match
after a Mul. The operand is therefore dequantized with a scale of 1 and multiplied by its scale, which gives the same
floats. If its scale is 1, ONNX Runtime would drop the multiplication first; the operand is then dequantized with a
scale of 2 and halved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, constant_shape, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes_of_all_graphs, require, require_match

_ACTIVATIONS = ("Clip", "Relu")
_MOVES = (
    "MaxPool",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)  # Q and DQ are propagated across these first


class Match(NamedTuple):
    """The node that reads the result of ``dequantize``: the product, or the first data-movement node before it."""

    node: ir.Node
    dequantize: ir.Node


def check(product: ir.Node) -> Match:
    """Return the match, if the runtime would quantize the weights of a product."""
    first = product
    while (mover := producer(first.inputs[0], *_MOVES)) is not None:
        first = mover
    dequantize = require_match(producer(first.inputs[0], "DequantizeLinear"))
    scale = constant(dequantize.inputs[1])
    per_tensor = sizes(dequantize.inputs[1]) in ([], [1]) if scale is None else scale.size == 1
    weights = product.inputs[1]
    require(producer(weights, "DequantizeLinear") is None, "the weights are quantized already")
    require(constant_shape(weights) is not None, "the weights are not constant")
    require(per_tensor, "the data has a scale per axis")
    require(_is_quantized(product), "the result is not quantized")
    return Match(first, dequantize)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit DequantizeLinear and Mul for this product only: others may be integer kernels that read the same data."""
    integers, scale, *point = match.dequantize.inputs
    given = constant(scale)
    step, factor = (2, np.full((), 0.5, np.float32)) if given is not None and given.item() == 1 else (1, scale)
    with editor.replacing(match.node):
        whole = editor.emit("DequantizeLinear", integers, np.full((), step, np.float32), *point)
        floats = editor.emit("Mul", whole, factor)
    match.node.replace_input_with(0, floats)


keep_float_weights = RewriteRule(nodes_of_all_graphs("Conv", "ConvTranspose", "Gemm", "MatMul"), check, rewrite)


def _is_quantized(node: ir.Node) -> bool:
    """True if a product's result is quantized, with or without activations; ONNX Runtime merges MatMul and Add to Gemm."""
    between = (*_ACTIVATIONS, *_MOVES)
    user = _only_reader(node.outputs[0], "QuantizeLinear", *between, *(("Add",) if node.op_type == "MatMul" else ()))
    while user is not None and user.op_type != "QuantizeLinear":
        user = _only_reader(user.outputs[0], "QuantizeLinear", *between)
    return user is not None


def _only_reader(value: ir.Value, *op_types: str) -> ir.Node | None:
    """Return the only node that reads a value. It may be a graph output too: ONNX Runtime ignores that."""
    users = {node for node, _ in value.uses()}
    return next((node for node in users if node.op_type in op_types), None) if len(users) == 1 else None
