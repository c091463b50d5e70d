"""Lines about the ONNX nodes of TFLite operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_tflite_plugin.cli.output import format_counts

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion

_MIN_NODES = 3  # minimum number of compute nodes in a decomposed operator
_AUXILIARY = frozenset(
    {
        "Cast",
        "DequantizeLinear",
        "Expand",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Nodes that change the dtype or the shape of values, or select some of them."""


def decomposed_lines(conversion: Conversion) -> Iterator[str]:
    """Yield a line for each kind of decomposed operator: its count and its ONNX nodes.

    Auxiliary nodes are neither counted nor listed. A line ends with the handler's reason, if it explains its nodes.
    """
    kinds: Counter[tuple[str, str, tuple[tuple[str, int], ...]]] = Counter()
    node_counts, handlers = count_nodes(conversion)
    reasons = _decomposition_reasons(conversion)
    codes: dict[tuple[int, ...], str] = {
        (op.index,): op.code for op in conversion.source.main.operators if op.code in conversion.report.operators
    }
    for operators, counts in node_counts.items():
        handler = handlers[operators]
        compute_nodes = tuple((kind, count) for kind, count in counts.items() if kind not in _AUXILIARY)
        if handler and sum(count for _, count in compute_nodes) >= _MIN_NODES:
            code = codes.get(operators, handler.upper())  # fused operators have no code; their handler has a name
            kinds[code, handler, compute_nodes] += 1
    for (code, handler, compute_nodes), count in kinds.most_common():
        reason = f". {reasons[handler]}" if handler in reasons else ""
        yield f"{count} {code}: {format_counts(compute_nodes)}{' each' if count > 1 else ''}{reason}"


def _decomposition_reasons(conversion: Conversion) -> dict[str, str]:
    """Return handler -> first sentence of its explanation."""
    from onnx_tflite_plugin.graph.node_metadata import source_handler
    from onnx_tflite_plugin.lowering.emitter import NOTE

    reasons: dict[str, str] = {}
    for node in conversion.model.graph:
        if note := node.meta.get(NOTE):
            handler = source_handler(node.metadata_props)[0].rpartition(":")[2]
            reasons.setdefault(handler, str(note).partition(". ")[0].removesuffix("."))
    return reasons


def count_nodes(
    conversion: Conversion,
) -> tuple[dict[tuple[int, ...], Counter[str]], dict[tuple[int, ...], str]]:
    """Return source operators -> node counts, and source operators -> handler name."""
    from onnx_tflite_plugin.graph.node_metadata import source_handler, top_level_operators

    node_counts: dict[tuple[int, ...], Counter[str]] = {}
    handlers: dict[tuple[int, ...], str] = {}
    for node in conversion.model.graph:
        metadata = node.metadata_props
        operators = top_level_operators(metadata)
        node_counts.setdefault(operators, Counter())[node.op_type] += 1
        handlers.setdefault(operators, source_handler(metadata)[0].rpartition(":")[2])
    return node_counts, handlers
