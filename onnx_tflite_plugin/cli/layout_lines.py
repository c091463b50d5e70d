"""Lines about the layout plan and the Transposes of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.cli.output import format_size, limit_lines, limit_names, shorten

if TYPE_CHECKING:
    from onnx_tflite_plugin.report import Report, TransposedTensor

_BYTES_PER_MICROSECOND = 8000  # unit of the plan's prices
_PLANS = {
    "least": "optimal",
    "heuristic": "heuristic, not proven optimal",
    "local": "the file's layout everywhere (--layout-plan local)",
}


def describe_inner(report: Report) -> str:
    """Return the number of nodes in inner graphs as text; empty if there are none."""
    count = sum(report.inner_nodes.values())
    return f", {count} of them inside {_containers(report)}" if count else ""


def _containers(report: Report) -> str:
    """Return the types of the nodes that may have inner graphs as text."""
    return " and ".join(name for name in ("If", "Loop", "Scan") if name in report.nodes) or "inner graphs"


def layout_lines(report: Report) -> Iterator[str]:
    """Yield lines about the layout plan and the origin of the Transpose nodes.

    The first number is the number of Transpose nodes in the model; the other numbers add up to it.
    """
    in_file = report.operators.get("TRANSPOSE", 0)
    file_text = f", in place of the TFLite file's {in_file}" if in_file else ""
    yield f"{_PLANS.get(report.layout, report.layout)}: {_count_transposes(report)}{file_text}"
    yield from (
        f"  {line}"
        for line in limit_lines([_transpose_line(transposed, report) for transposed in report.transposed], 5)
    )
    if report.transposed_for_speed:
        gains = [
            f"{_shorten_label(label)} saves about {_format_gain(gain)}" for label, gain in report.transposed_for_speed
        ]
        yield f"  larger tensors transposed to save time: {', '.join(limit_lines(gains, 2))}"


def _count_transposes(report: Report) -> str:
    """Return the number of Transpose nodes in the model, and the origins that add up to it."""
    total, inner_count = report.nodes.get("Transpose", 0), report.inner_nodes.get("Transpose", 0)
    total_text = plural(total, "Transpose") if total else "no Transpose"
    inner = f" ({inner_count} inside {_containers(report)})" if inner_count else ""
    sources = list(_transpose_sources(report, total))
    if len(sources) == 1:
        count, _, origin = sources[0].partition(" ")
        if count == str(total):
            return f"{total_text} {origin}{inner}"
    return f"{total_text}{inner}: {', '.join(sources)}" if sources else total_text


def _transpose_sources(report: Report, total: int) -> Iterator[str]:
    """Yield the origins of the Transpose nodes with their numbers."""
    if inserted_count := min(len(report.transposed), report.transposes):
        yield f"{inserted_count} inserted"
    if report.transposes > inserted_count:
        operators = limit_names([_shorten_label(label) for label in report.operator_transposes], 2) or "operators"
        yield f"{report.transposes - inserted_count} from {operators}"
    if total > report.transposes:
        yield f"{total - report.transposes} added by rewrites for speed"
    elif total < report.transposes:
        yield f"{report.transposes - total} removed by rewrites"


def _format_gain(gain: int) -> str:
    """Return a gain in the plan's price units as a duration."""
    microseconds = gain / _BYTES_PER_MICROSECOND
    return f"{microseconds:.2g} µs" if microseconds < 99.5 else f"{microseconds / 1000:.2g} ms"


def _transpose_line(transposed: TransposedTensor, report: Report) -> str:
    consumers = [_shorten_label(label) for label in transposed.consumers]
    users = limit_names(consumers, 2)
    start, _, end = transposed.perm.partition(" -> ")
    shape_text = ""
    if start.startswith("["):  # the shape in which split axes are transposed
        shape_text, start = f"as {start}, ", ",".join(str(axis) for axis in range(start.count(",") + 1))
    edge_text = f"{_shorten_label(transposed.producer)} → {users}"
    change = f"{shape_text}axes {start} → {end}"
    size = format_size(transposed.bytes) + (" if dynamic dimensions are 1" if transposed.is_dynamic else "")
    outcome = ""
    if transposed.is_removed:  # fewer Transposes: the rewrite saved it
        outcome = ", removed" if report.nodes.get("Transpose", 0) < report.transposes else ", replaced"
        outcome += " by a rewrite"
    return f"{edge_text}: {change}, {size}, {shorten(transposed.tensor)!r}{outcome}"


def _shorten_label(label: str) -> str:
    """Return ``op 12 CONV_2D v3 'name'`` without version and name."""
    operator, separator, _ = label.partition(" '")
    words = operator.split()
    if separator and words[-1].startswith("v") and words[-1][1:].isdigit():
        words = words[:-1]
    return shorten(" ".join(words))
