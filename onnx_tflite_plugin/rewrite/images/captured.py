"""A convolution whose result only an If, Loop or Scan takes ends the process in ONNX Runtime before 1.23: its fusion of convolutions
and activations looks for every operand of the only node that follows among the node's explicit ones, and captured values are none
(ConvActivationFusion). A Reshape to the same shape, which moves nothing, stands between.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Editor, nodes_of, rewrite, sizes

_FOLDED = frozenset({"Add", "Mul"})
"""Operators that become part of a convolution in front of them, where the other operand is constant."""


def run(model: ir.Model) -> int:
    """Put a Reshape behind convolutions whose only follower has inner graphs; returns behind how many."""
    convolutions = nodes_of(model.graph.all_nodes(), "Conv")
    owners = _owners(model) if convolutions else {}
    if not owners:
        return 0
    places = [value for node in convolutions if (value := _captured(node, owners)) is not None]
    return rewrite(model, places, _reshape)


Owners = Mapping[ir.Graph | ir.Function | None, ir.Node]


def _owners(model: ir.Model) -> Owners:
    """The node of each inner graph."""
    return {
        attribute.as_graph(): node
        for node in model.graph.all_nodes()
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    }


def _captured(conv: ir.Node, owners: Owners) -> ir.Value | None:
    """The convolution's result, or what it becomes once folded, where one node with inner graphs takes it alone."""
    value, with_graphs = conv.outputs[0], {*owners.values()}
    while not value.is_graph_output() and sizes(value) is not None:
        followers = {_at(use.node, conv.graph, owners) for use in value.uses()}
        if len(followers) != 1:
            return None
        [follower] = followers
        if follower in with_graphs:
            return value
        if follower.op_type not in _FOLDED:
            return None
        value = follower.outputs[0]
    return None


def _at(node: ir.Node, graph: ir.Graph | ir.Function | None, owners: Owners) -> ir.Node:
    """The node itself, or that of the graph in whose inner graphs it is."""
    while node.graph is not graph:
        node = owners[node.graph]
    return node


def _reshape(editor: Editor, value: ir.Value) -> bool:
    node, shape = value.producer(), sizes(value)
    assert node is not None
    assert shape is not None
    with editor.replacing(node, after=True):
        same = editor.emit("Reshape", value, [0] * len(shape))
    same.type, same.shape = value.type, value.shape
    for user, slot in list(value.uses()):
        if user is not same.producer():
            user.replace_input_with(slot, same)
    return True
