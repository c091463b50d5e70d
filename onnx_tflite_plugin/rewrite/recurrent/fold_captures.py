"""Values that a loop's or branch's body takes from the graph around it become constants where they are computed from constants.

OpenVINO counts a captured value that a node computes as an input of the body, and does not load the model; it takes
captured initializers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Decline
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule
from onnx_tflite_plugin.source.model import Array

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def pattern(model: ir.Model, options: RewriteOptions) -> Iterator[ir.Value]:
    """Yield the values of nodes that a graph inside the node's own graph uses."""
    captured = {
        value
        for node in model.graph.all_nodes()
        for value in node.inputs
        if value is not None and (maker := value.producer()) is not None and maker.graph is not node.graph
    }
    yield from sorted(captured, key=lambda value: value.name or "")


def check(value: ir.Value) -> tuple[ir.Value, list[ir.Node]] | Decline:
    """Return the value and the nodes that compute it, in order, if they compute it from constants."""
    nodes: dict[ir.Node, None] = {}
    if not _is_computed_from_constants(value, nodes):
        return Decline("the captured value is no constant")
    return value, list(nodes)


def rewrite(editor: Editor, match: tuple[ir.Value, list[ir.Node]]) -> None:
    """Store the value as an initializer."""
    value, nodes = match
    editor.replace_value(value, editor.store(_evaluate(value, nodes, editor.graph.opset_imports), value))


fold_captures = RewriteRule(pattern, check, rewrite)


def _is_computed_from_constants(value: ir.Value, nodes: dict[ir.Node, None]) -> bool:
    """True if the value depends on constants only; adds the nodes that it depends on, operands first."""
    node = value.producer()
    if node is None:
        return value.const_value is not None and not value.is_graph_input()
    if node in nodes:
        return True
    inner = any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())
    if inner or node.domain or node.op_type in _RANDOM:
        return False
    if not all(_is_computed_from_constants(operand, nodes) for operand in node.inputs if operand is not None):
        return False
    nodes[node] = None
    return True


def _evaluate(value: ir.Value, nodes: list[ir.Node], opsets: dict[str, int]) -> Array:
    """Return the value, computed by the reference evaluator one node after the other."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    known: dict[ir.Value, Array] = {}
    for node in nodes:
        operands = [operand for operand in dict.fromkeys(node.inputs) if operand is not None]
        for operand in operands:
            if operand.const_value is not None:
                known[operand] = operand.const_value.numpy()
        proto = ir.to_proto(node)
        graph = onnx.helper.make_graph(
            [proto],
            "node",
            [onnx.ValueInfoProto(name=operand.name) for operand in operands],
            [onnx.ValueInfoProto(name=output.name) for output in node.outputs],
        )
        # The reference evaluator has no DequantizeLinear before opset 19; at 21 it is the same operator.
        opset = max(opsets[""], 21) if node.op_type == "DequantizeLinear" else opsets[""]
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        results = ReferenceEvaluator(model).run(None, {str(operand.name): known[operand] for operand in operands})
        known.update(zip(node.outputs, map(np.asarray, results), strict=True))
    return known[value]
