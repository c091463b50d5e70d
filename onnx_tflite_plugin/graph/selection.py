"""Nodes that compare or select values, so that small errors change results a lot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import converted_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

SELECTING = frozenset(
    {"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "NonMaxSuppression",
     "NonZero", "TopK"}
)  # fmt: skip
"""ONNX operators with results that depend on which of two values is larger."""


def selecting_operators(graph: GraphProto) -> frozenset[int]:
    """Return the indices of TFLite operators with nodes that compare or select values."""
    nodes = (node for node in graph.node if _is_selecting(node))
    return frozenset(index for node in nodes for index in converted_operators(props(node.metadata_props)))


def _is_selecting(node: NodeProto) -> bool:
    return node.op_type in SELECTING or any(any(map(_is_selecting, subgraph.node)) for subgraph in node_subgraphs(node))
