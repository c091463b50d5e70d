"""Groups of operators that share ONNX nodes; the page counts each node once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.disjoint_sets import DisjointSets
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import source_handler, top_level_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.presentation.ranges import format_ranges
from onnx_tflite_plugin.source.model import Operator
from onnx_tflite_plugin.verify.times.profile import format_names

if TYPE_CHECKING:
    import onnx
    from onnx import NodeProto

_MAX_KINDS = 3  # maximum number of operator kinds in the name of a group


@dataclass(frozen=True)
class Group:
    """Operators that share nodes, in execution order.

    Most groups have one operator. ``nodes``: the types of its nodes in the main graph. ``handler``: the handler that
    lowered the first shared node; empty for a group of one operator. ``inner``: the types of its nodes in inner graphs.
    """

    operators: tuple[Operator, ...]
    nodes: tuple[str, ...] = ()
    handler: str = ""
    inner: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        return self.operators[0].index

    @property
    def operator_range(self) -> str:
        """Return the numbers of the operators: ``3–14``."""
        return format_ranges([op.index for op in self.operators])

    @property
    def code(self) -> str:
        """Return the codes of the operators, or the handler that fused many kinds."""
        codes = format_names([op.code for op in self.operators])
        if len(codes) > _MAX_KINDS:
            return f"{self.handler.upper() or 'fused'} ({len(self.operators)} operators)"
        return ", ".join(codes)


def group_operators(operators: Sequence[Operator], onnx: onnx.ModelProto) -> list[Group]:
    """Return the groups of operators, in the order of their last operators.

    Two operators are in one group if a node was lowered from both of them.
    """
    sets = DisjointSets()
    handlers: dict[int, str] = {}
    nodes_by_source: list[tuple[int, NodeProto]] = []
    for node in onnx.graph.node:
        metadata = props(node.metadata_props)
        sources = top_level_operators(metadata)
        if not sources:
            continue
        nodes_by_source.append((sources[0], node))
        for source in sources[1:]:
            sets.join(sources[0], source)
            handlers.setdefault(source, source_handler(metadata)[0].rpartition(":")[2])
    members: dict[int, list[Operator]] = defaultdict(list)
    nodes: dict[int, list[str]] = defaultdict(list)
    inner: dict[int, list[str]] = defaultdict(list)
    for op in operators:
        members[sets.representative(op.index)].append(op)
    for index, node in nodes_by_source:
        nodes[sets.representative(index)].append(node.op_type)
        inner[sets.representative(index)] += _inner_nodes(node)
    groups = []
    for representative, ops in members.items():
        handler = next((handlers[op.index] for op in ops if op.index in handlers), "")
        groups.append(Group(tuple(ops), tuple(nodes[representative]), handler, tuple(inner[representative])))
    return sorted(groups, key=lambda group: group.operators[-1].index)


def nodes_without_operator(onnx: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Return the types of nodes without a TFLite operator, and of their inner nodes."""
    nodes = [node for node in onnx.graph.node if not top_level_operators(props(node.metadata_props))]
    return [node.op_type for node in nodes], [op_type for node in nodes for op_type in _inner_nodes(node)]


def _inner_nodes(node: NodeProto) -> list[str]:
    """Return the types of all nodes in the inner graphs of a node."""
    return [inner.op_type for subgraph in node_subgraphs(node) for inner, _ in nodes_with_container(subgraph)]


def nodes_with_container(graph: onnx.GraphProto, container: str = "") -> Iterator[tuple[onnx.NodeProto, str]]:
    """Yield all nodes with the type of the containing node, "" in the main graph."""
    for node in graph.node:
        yield node, container
        for subgraph in node_subgraphs(node):
            yield from nodes_with_container(subgraph, node.op_type)


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and all inner graphs."""
    yield graph
    for node in graph.node:
        for subgraph in node_subgraphs(node):
            yield from all_graphs(subgraph)
