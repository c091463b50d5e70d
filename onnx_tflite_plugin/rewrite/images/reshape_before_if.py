"""Insert a Reshape after a convolution whose result only inner graphs read.

The inner graphs are those of an If, Loop or Scan. ONNX Runtime before 1.23 crashes without the Reshape: its fusion of convolutions
and activations (ConvActivationFusion) expects the result to be an explicit operand of the next node. The Reshape keeps the shape,
and copies no elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match

_FOLDED_INTO_CONV = frozenset({"Add", "Mul"})
"""Operators that ONNX Runtime folds into a convolution before them."""

Owners = Mapping[ir.Graph | ir.Function | None, ir.Node]
"""The node that owns each inner graph."""


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Node, Owners]]:
    """Return the convolutions, each with the owners of inner graphs in the model."""
    convolutions = nodes_of(model.graph.all_nodes(), "Conv")
    owners = _graph_owners(model) if convolutions else {}
    return [(node, owners) for node in convolutions] if owners else []


def check(place: tuple[ir.Node, Owners]) -> ir.Value:
    """Return the convolution's result if its only reader is a node with inner graphs.

    If ONNX Runtime folds an Add or Mul into the convolution, return the result of the Add or Mul instead.
    """
    conv, owners = place
    value, nodes_with_graphs = conv.outputs[0], {*owners.values()}
    while not value.is_graph_output() and sizes(value) is not None:
        readers = {_enclosing_node(use.node, conv.graph, owners) for use in value.uses()}
        require(len(readers) == 1)
        [reader] = readers
        if reader in nodes_with_graphs:
            return value
        require(reader.op_type in _FOLDED_INTO_CONV)
        value = reader.outputs[0]
    return require_match(None)


def rewrite(editor: Editor, value: ir.Value) -> None:
    """Emit the Reshape after the convolution, and let all other users read its result."""
    node, shape = require_match(value.producer()), require_match(sizes(value))
    with editor.replacing(node, after=True):
        copy = editor.emit("Reshape", value, [0] * len(shape))
    copy.type, copy.shape = value.type, value.shape
    for user, slot in list(value.uses()):
        if user is not copy.producer():
            user.replace_input_with(slot, copy)


reshape_before_if = RewriteRule(pattern, check, rewrite)


def _graph_owners(model: ir.Model) -> Owners:
    return {
        attribute.as_graph(): node
        for node in model.graph.all_nodes()
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    }


def _enclosing_node(node: ir.Node, graph: ir.Graph | ir.Function | None, owners: Owners) -> ir.Node:
    """Return the node of ``graph`` that is ``node``, or has it in an inner graph."""
    while node.graph is not graph:
        node = owners[node.graph]
    return node
