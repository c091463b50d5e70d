"""ONNX Runtime before 1.23 crashes if a convolution is only read as a capture of an If, Loop or Scan: its fusion of
convolutions and activations (ConvActivationFusion) expects an explicit operand of the next node. A Reshape to the same
shape, which moves no elements, is inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import nodes_of, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match

_FOLDED = frozenset({"Add", "Mul"})
"""Operators with a constant that become part of a convolution before them."""

Owners = Mapping[ir.Graph | ir.Function | None, ir.Node]
"""The node of each inner graph."""


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[tuple[ir.Node, Owners]]:
    """Yield the convolutions of a model that has inner graphs, with the nodes of these."""
    convolutions = nodes_of(model.graph.all_nodes(), "Conv")
    owners = _owners(model) if convolutions else {}
    return [(node, owners) for node in convolutions] if owners else []


def check(place: tuple[ir.Node, Owners]) -> ir.Value:
    """Return the convolution's result, or the folded result, if a node with inner graphs is the only reader."""
    conv, owners = place
    value, with_graphs = conv.outputs[0], {*owners.values()}
    while not value.is_graph_output() and sizes(value) is not None:
        followers = {_enclosing_node(use.node, conv.graph, owners) for use in value.uses()}
        require(len(followers) == 1)
        [follower] = followers
        if follower in with_graphs:
            return value
        require(follower.op_type in _FOLDED)
        value = follower.outputs[0]
    return require_match(None)


def rewrite(editor: Editor, value: ir.Value) -> None:
    """Emit the Reshape after the convolution, for all users."""
    node, shape = require_match(value.producer()), require_match(sizes(value))
    with editor.replacing(node, after=True):
        same = editor.emit("Reshape", value, [0] * len(shape))
    same.type, same.shape = value.type, value.shape
    for user, slot in list(value.uses()):
        if user is not same.producer():
            user.replace_input_with(slot, same)


reshape_before_if = RewriteRule(pattern, check, rewrite)


def _owners(model: ir.Model) -> Owners:
    return {
        attribute.as_graph(): node
        for node in model.graph.all_nodes()
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    }


def _enclosing_node(node: ir.Node, graph: ir.Graph | ir.Function | None, owners: Owners) -> ir.Node:
    """Return the node, or the node of ``graph`` whose inner graph contains it."""
    while node.graph is not graph:
        node = owners[node.graph]
    return node
