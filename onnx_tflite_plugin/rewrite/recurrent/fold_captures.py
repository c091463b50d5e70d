"""Store captured values that are computed from constants as initializers.

OpenVINO does not load a model in which the body of a loop or branch captures a computed value: it counts the value as an
additional input of the body. It supports captured initializers.
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
    """Return the value if it is computed from constants by deterministic operators."""
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
    """True for a deterministic node of the standard domain without inner graphs."""
    has_graphs = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    return not (has_graphs or node.domain or node.op_type in RANDOM)
