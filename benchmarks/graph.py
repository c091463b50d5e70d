"""Count the nodes of the graph that ONNX Runtime runs after its optimizations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.results import Graph

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

# Operators that compute on integers only. Operators that also support floats under the same name (MaxPool, Concat, Clip)
# count as neither fused nor unfused.
_FUSED = re.compile(r"Q[A-Z]\w*|MatMulInteger\w*|ConvInteger|DynamicQuantize(MatMul|LSTM)|NhwcMaxPool")
_DATA_MOVEMENT = re.compile(
    r"Concat|DepthToSpace|Expand|Flatten|Gather|Identity|Pad|Reorder(In|Out)put|Reshape|Slice|SpaceToDepth|Split"
    r"|Squeeze|Tile|Transpose|Unsqueeze"
)


def count_operators(graph: GraphProto) -> Graph:
    """Return the counts of a graph and its inner graphs."""
    graphs = list(_graphs(graph))
    nodes = [node for subgraph in graphs for node in subgraph.node]
    return Graph(
        fused=sum(_is_fused(node) for node in nodes),
        unfused=sum(_count_unfused(subgraph) for subgraph in graphs),
        transposes=sum(node.op_type == "Transpose" for node in nodes),
        nodes=len(nodes),
    )


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(inner)


def _is_fused(node: NodeProto) -> bool:
    return _FUSED.fullmatch(node.op_type) is not None


def _count_unfused(graph: GraphProto) -> int:
    """Return the number of float operators between dequantization and quantization.

    Data movement is not counted. Dequantization is a DequantizeLinear, or the Cast of a QuantizeLinear result and the
    Mul after it.
    """
    # Kinds of values: "quantized", "cast" (quantized values cast to float) or "float".
    kinds: dict[str, str] = {}
    float_nodes = []
    for node in graph.node:
        operand_kinds = {kinds[name] for name in node.input if name in kinds}
        match node.op_type:
            case "QuantizeLinear":
                kind = "quantized"
            case "DequantizeLinear":
                kind = "float"
            case "Cast" if "quantized" in operand_kinds:
                kind = "cast"
            case "Mul" if "cast" in operand_kinds:
                kind = "float"
            case op_type if operand_kinds and _DATA_MOVEMENT.fullmatch(op_type):
                kind = min(operand_kinds)  # a fixed choice if the operands differ
            case _ if "float" in operand_kinds and not _is_fused(node):
                float_nodes.append(node)
                kind = "float"
            case _:
                continue
        kinds |= dict.fromkeys(node.output, kind)
    values_to_quantize = _values_to_quantize(graph)
    return sum(not values_to_quantize.isdisjoint(node.output) for node in float_nodes)


def _values_to_quantize(graph: GraphProto) -> set[str]:
    """Return the operands of QuantizeLinear and all values upstream of them."""
    upstream_values: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type == "QuantizeLinear":
            upstream_values.add(node.input[0])
        elif not upstream_values.isdisjoint(node.output):
            upstream_values.update(node.input)
    return upstream_values
