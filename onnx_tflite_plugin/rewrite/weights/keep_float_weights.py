"""Prevent ONNX Runtime from quantizing the float weights of Conv, Gemm and MatMul.

Since 1.21, ONNX Runtime quantizes float weights of such a node to int8 if the node is between a DequantizeLinear and a QuantizeLinear.
All channels then share one scale (WeightBiasQuantization). It does not quantize the weights if the node reads the result of a Mul. The
activations are therefore dequantized with a scale of 1 and multiplied by their scale, which yields the same floats. ONNX Runtime would
remove a multiplication by 1, so activations with a scale of 1 are dequantized with a scale of 2 and halved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import constant, constant_shape, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes_of_all_graphs, require, require_match

_ACTIVATIONS = ("Clip", "Relu")
_MOVEMENTS = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators across which ONNX Runtime first propagates QuantizeLinear and DequantizeLinear."""


class Match(NamedTuple):
    """A DequantizeLinear, and the ``reader`` of its result.

    The reader is the node with the float weights, or the first of the data-movement nodes before it.
    """

    reader: ir.Node
    dequantize: ir.Node


def check(node: ir.Node) -> Match:
    """Return the match if ONNX Runtime would quantize the weights of a node."""
    reader = node
    while (movement := producer(reader.inputs[0], *_MOVEMENTS)) is not None:
        reader = movement
    dequantize = require_match(producer(reader.inputs[0], "DequantizeLinear"))
    scale = constant(dequantize.inputs[1])
    per_tensor = sizes(dequantize.inputs[1]) in ([], [1]) if scale is None else scale.size == 1
    weights = node.inputs[1]
    require(producer(weights, "DequantizeLinear") is None, "the weights are quantized already")
    require(constant_shape(weights) is not None, "the weights are not constant")
    require(per_tensor, "the activations have per-axis scales")
    require(_is_quantized(node), "the result is not quantized")
    return Match(reader, dequantize)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit a separate DequantizeLinear, and a Mul, for the reader.

    Other nodes keep the original DequantizeLinear, since ONNX Runtime may compute them by integer kernels.
    """
    integers, scale, *zero_point = match.dequantize.inputs
    array = constant(scale)
    new_scale, factor = (2, np.full((), 0.5, np.float32)) if array is not None and array.item() == 1 else (1, scale)
    with editor.replacing(match.reader):
        scaled = editor.emit("DequantizeLinear", integers, np.full((), new_scale, np.float32), *zero_point)
        floats = editor.emit("Mul", scaled, factor)
    match.reader.replace_input_with(0, floats)


keep_float_weights = RewriteRule(nodes_of_all_graphs("Conv", "ConvTranspose", "Gemm", "MatMul"), check, rewrite)


def _is_quantized(node: ir.Node) -> bool:
    """True if a node's result is quantized, directly or after an activation.

    An Add may follow a MatMul, because ONNX Runtime fuses MatMul and Add to a Gemm.
    """
    op_types = ("QuantizeLinear", *_ACTIVATIONS, *_MOVEMENTS)
    user = _only_reader(node.outputs[0], *op_types, *(("Add",) if node.op_type == "MatMul" else ()))
    while user is not None and user.op_type != "QuantizeLinear":
        user = _only_reader(user.outputs[0], *op_types)
    return user is not None


def _only_reader(value: ir.Value, *op_types: str) -> ir.Node | None:
    """Return the only node that reads a value if it has one of these operators.

    The value may also be a graph output, which does not prevent ONNX Runtime from quantizing the weights.
    """
    users = {node for node, _ in value.uses()}
    return next((node for node in users if node.op_type in op_types), None) if len(users) == 1 else None
