"""Rows of ``convert -vv``: declined fusions and rewrites, operators, and times."""

from __future__ import annotations

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
    """Return the rows that ``-vv`` adds to those of ``-v``.

    ``seconds``: the duration of each stage.
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
    """Yield a row per TFLite operator or fused group: handler, tensor, ONNX nodes."""
    from onnx_tflite_plugin.graph.node_metadata import converted_operators, source_name

    node_counts, handlers = count_nodes(conversion)
    names: dict[tuple[int, ...], str] = {}
    for node in conversion.model.graph:
        names.setdefault(converted_operators(node.metadata_props), source_name(node.metadata_props))
    for operators, counts in sorted(node_counts.items()):
        label = f"op {format_ranges(operators)}" if operators else "no operator"
        source = f"{handlers[operators]} {shorten(names[operators])!r}: " if operators else ""
        yield Row(label, [source + format_counts([*counts.items()], limit=len(counts))])
