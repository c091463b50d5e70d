"""Nodes that compare or select values, so that small errors change results a lot."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

SELECTING = frozenset(
    {"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "NonMaxSuppression",
     "NonZero", "TopK"}
)  # fmt: skip
"""ONNX operators with results that depend on which of two values is larger."""
_CONDITIONS = {"And", "Or", "Not", *SELECTING}


def selecting_operators(graph: GraphProto) -> frozenset[int]:
    """Return the indices of TFLite operators with nodes that compare or select values.

    Comparisons that only choose between two implementations of the same operator do not count.
    """
    choices = _implementation_choices(graph)
    nodes = (node for node in graph.node if _is_selecting(node) and choices.isdisjoint(node.output))
    return frozenset(index for node in nodes for index in top_level_operators(props(node.metadata_props)))


def _is_selecting(node: NodeProto) -> bool:
    return node.op_type in SELECTING or any(any(map(_is_selecting, subgraph.node)) for subgraph in node_subgraphs(node))


def _implementation_choices(graph: GraphProto) -> set[str]:
    """Return the values that only choose between implementations of one operator.

    These are the conditions of If nodes, and the values that they depend on. Only values that stem from the same TFLite
    operators as the If are included.
    """
    producers = {name: node for node in graph.node for name in node.output}
    choices: set[str] = set()
    for if_node in (node for node in graph.node if node.op_type == "If"):
        pending = [if_node.input[0]]
        while pending:
            name = pending.pop()
            node = producers.get(name)
            if node is not None and node.op_type in _CONDITIONS and _operators(node) == _operators(if_node):
                choices.add(name)
                pending += node.input
    return choices


def _operators(node: NodeProto) -> Collection[int]:
    return top_level_operators(props(node.metadata_props))
