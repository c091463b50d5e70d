"""Copy a dequantized value that is reshaped or transposed and then captured by an inner graph.

ONNX Runtime (1.32 and before) moves DequantizeLinear after Reshape, Transpose and similar nodes (QDQPropagation). It looks for the
reader among explicit operands, and crashes if an If, Loop or Scan captures the result. It does not move a DequantizeLinear after a
Max of one operand.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import captured_values
from onnx_tflite_plugin.rewrite.rule import RewriteRule, require, require_match

_MOVEMENTS = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool"})
"""Data-movement operators after which ONNX Runtime moves a DequantizeLinear."""


def check(value: ir.Value) -> ir.Value:
    """Return the value if it is dequantized, and then only moved by operators of ``_MOVEMENTS``."""
    node = require_match(value.producer())
    require(node.op_type in _MOVEMENTS)
    while node.op_type in _MOVEMENTS:
        node = require_match(require_match(node.inputs[0]).producer())
    require(node.op_type == "DequantizeLinear")
    return value


def rewrite(editor: Editor, value: ir.Value) -> None:
    """Emit the copy, and let only the inner graphs read it."""
    node = require_match(value.producer())
    inner_uses = [(user, slot) for user, slot in value.uses() if user.graph is not node.graph]
    with editor.replacing(node, after=True):
        copy = editor.emit("Max", value)
    copy.type, copy.shape = value.type, value.shape
    for user, slot in inner_uses:
        user.replace_input_with(slot, copy)


copy_captures = RewriteRule(captured_values, check, rewrite)
