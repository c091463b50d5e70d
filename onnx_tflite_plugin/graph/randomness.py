"""Nodes that generate random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""ONNX operators with different results in each run."""


def random_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph that generate random numbers, also in a subgraph."""
    return (node for node in graph.node if _is_random(node))


def random_operators(graph: GraphProto) -> frozenset[int]:
    """Return the indices of TFLite operators with nodes that generate random numbers."""
    return frozenset(index for node in random_nodes(graph) for index in top_level_operators(props(node.metadata_props)))


def _is_random(node: NodeProto) -> bool:
    return node.op_type in RANDOM or any(any(True for _ in random_nodes(subgraph)) for subgraph in node_subgraphs(node))
