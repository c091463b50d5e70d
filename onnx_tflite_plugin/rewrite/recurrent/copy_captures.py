"""Copy a dequantized value that an inner graph captures.

ONNX Runtime up to 1.32 moves a DequantizeLinear from before a Reshape, Transpose or similar node to after it (QDQPropagation). It looks
for an explicit operand that reads the result of that node, and crashes if an If, Loop or Scan captures the result instead. It does not
move a DequantizeLinear across a Max of one operand, which this rule emits as a copy.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import captured_values
from onnx_tflite_plugin.rewrite.rule import RewriteRule, require, require_match

_MOVEMENTS = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool"})
"""Data-movement operators across which ONNX Runtime moves a DequantizeLinear."""


def check(value: ir.Value) -> ir.Value:
    """Return the value if it is computed by data movements after a DequantizeLinear."""
    node = require_match(value.producer())
    require(node.op_type in _MOVEMENTS)
    while node.op_type in _MOVEMENTS:
        node = require_match(require_match(node.inputs[0]).producer())
    require(node.op_type == "DequantizeLinear")
    return value


def rewrite(editor: Editor, value: ir.Value) -> None:
    """Emit the copy, which only the inner graphs read."""
    node = require_match(value.producer())
    inner_uses = [(user, slot) for user, slot in value.uses() if user.graph is not node.graph]
    with editor.replacing(node, after=True):
        copy = editor.emit("Max", value)
    copy.type, copy.shape = value.type, value.shape
    for user, slot in inner_uses:
        user.replace_input_with(slot, copy)


copy_captures = RewriteRule(captured_values, check, rewrite)
