"""HTML of a conversion in a notebook: a table of inputs and outputs, and code."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from onnx_tflite_plugin.checked import format_shape, plural
from onnx_tflite_plugin.presentation.graph_io import GraphValue


def as_html(
    line: str, inputs: Sequence[GraphValue], outputs: Sequence[GraphValue], code: str, notes: Sequence[str] = ()
) -> str:
    """Return a conversion as HTML.

    ``line``: the summary. ``code``: Python code that runs the model. ``notes``: warnings and hints.
    """
    rows = []
    for side, graph_values in (("input", inputs), ("output", outputs)):
        for value in graph_values:
            zero_point = str(value.zero_point[0]) if len(value.zero_point) == 1 else ""
            labels = plural(len(value.labels), "label") if value.labels else ""
            cells = (
                side,
                value.name,
                value.dtype,
                format_shape(value.shape),
                _format_scale(value.scale),
                zero_point,
                value.description,
                labels,
            )
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    headings = ("", "name", "dtype", "shape", "scale", "zero point", "description", "labels")
    heading_html = "".join(f"<th>{text}</th>" for text in headings)
    note_html = "".join(f"<p>{escape(text)}</p>" for text in notes)
    return f"<p>{escape(line)}</p>{note_html}<table><tr>{heading_html}</tr>{''.join(rows)}</table><pre>{escape(code)}</pre>"


def _format_scale(scale: Sequence[float]) -> str:
    if len(scale) == 1:
        return f"{scale[0]:.6g}"
    return f"{len(scale)} scales" if scale else ""
