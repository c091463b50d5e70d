"""Store a value as an initializer if the body of a loop or branch captures it and it is computed from constants.

OpenVINO counts a captured value that a node computes as an input of the body, and does not load the model. It supports captured
initializers.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.graph.constants import NotConstant, evaluate_constant, producing_nodes
from onnx_tflite_plugin.graph.randomness import RANDOM
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import captured_values
from onnx_tflite_plugin.rewrite.rule import RewriteRule


def check(value: ir.Value) -> ir.Value | Decline:
    """Return the value if it is computed from constants by plain operators."""
    try:
        nodes, _ = producing_nodes(value)
    except NotConstant:
        return Decline("the captured value is not a constant")
    if not all(map(_is_repeatable, nodes)):
        return Decline(
            "the captured value is not a constant: it depends on random numbers, an inner graph or another domain"
        )
    return value


def rewrite(editor: Editor, value: ir.Value) -> None:
    """Store the value as an initializer."""
    array = evaluate_constant(value, editor.graph.opset_imports, "a value that the body of a loop captures")
    editor.replace_value(value, editor.store(array, value))


fold_captures = RewriteRule(captured_values, check, rewrite)


def _is_repeatable(node: ir.Node) -> bool:
    """True if a node is deterministic, of the standard domain and without inner graphs."""
    has_graphs = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    return not (has_graphs or node.domain or node.op_type in RANDOM)
