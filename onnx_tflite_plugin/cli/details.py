"""Rows of ``convert -vv``: declined fusions and rewrites, operators, and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.operator_lines import count_nodes
from onnx_tflite_plugin.cli.output import Row, format_counts, shorten
from onnx_tflite_plugin.presentation.ranges import format_ranges
from onnx_tflite_plugin.rewrite import find_rule

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion


def detail_rows(conversion: Conversion, seconds: Mapping[str, float]) -> list[Row]:
    """Return the rows that ``-vv`` adds to the rows of ``-v``.

    ``seconds``: stage -> duration.
    """
    report = conversion.report
    times = ", ".join(f"{stage} {1e3 * duration:.0f} ms" for stage, duration in seconds.items())
    rows = [
        Row("not fused", report.fusions_declined),
        Row("not applied", [*_declined_lines(report.passes_declined)]),
        *_operator_rows(conversion),
        Row("times", [times] if times else []),
    ]
    return [row for row in rows if row.lines]


def _declined_lines(declined: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield the summary of each rewrite that did not apply, and a line per reason."""
    for name, reasons in declined.items():
        yield f"{name} ({find_rule(name).summary}):"
        yield from (f"  {plural(count, 'place')}: {reason}" for reason, count in reasons.items())


def _operator_rows(conversion: Conversion) -> Iterator[Row]:
    """Yield a row per TFLite operator or fused group: handler, tensor, ONNX nodes.

    The first row counts the nodes without a TFLite operator, grouped by the common part of their names.
    """
    from onnx_tflite_plugin.graph.node_metadata import source_name, top_level_operators

    node_counts, handlers = count_nodes(conversion)
    names: dict[tuple[int, ...], str] = {}
    added_nodes: dict[str, Counter[str]] = {}
    for node in conversion.model.graph:
        operators = top_level_operators(node.metadata_props)
        names.setdefault(operators, source_name(node.metadata_props))
        if not operators:
            added_nodes.setdefault((node.name or "").rpartition("/")[0], Counter())[node.op_type] += 1
    yield Row("whole model", [f"{shorten(name)!r}: {_list_counts(counts)}" for name, counts in added_nodes.items()])
    for operators, counts in sorted(node_counts.items()):
        if operators:
            source = f"{handlers[operators]} {shorten(names[operators])!r}"
            yield Row(f"op {format_ranges(operators)}", [f"{source}: {_list_counts(counts)}"])


def _list_counts(counts: Counter[str]) -> str:
    """Return the number of nodes of each type."""
    return format_counts([*counts.items()], limit=len(counts))
