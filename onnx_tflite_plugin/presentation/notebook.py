"""Conversion in a notebook: a table of inputs and outputs, and the code that runs the model."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from onnx_tflite_plugin.presentation.graph_io import Edge


def as_html(line: str, inputs: Sequence[Edge], outputs: Sequence[Edge], code: str, warnings: Sequence[str] = ()) -> str:
    """Return the HTML of a conversion: ``line`` summarizes it, ``code`` runs the model."""
    rows = []
    for side, edges in (("input", inputs), ("output", outputs)):
        for edge in edges:
            sizes = ", ".join("?" if size is None else str(size) for size in edge.shape)
            scale = (
                f"{edge.scale[0]:.6g}" if len(edge.scale) == 1 else f"{len(edge.scale)} scales" if edge.scale else ""
            )
            zero_point = str(edge.zero_point[0]) if len(edge.zero_point) == 1 else ""
            labels = f"{len(edge.labels)} label{'s' if len(edge.labels) > 1 else ''}" if edge.labels else ""
            cells = (side, edge.name, edge.dtype, f"[{sizes}]", scale, zero_point, edge.description, labels)
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    headings = ("", "name", "dtype", "shape", "scale", "zero point", "description", "labels")
    heading_html = "".join(f"<th>{text}</th>" for text in headings)
    warning_html = "".join(f"<p>warning: {escape(text)}</p>" for text in warnings)
    return f"<p>{escape(line)}</p>{warning_html}<table><tr>{heading_html}</tr>{''.join(rows)}</table><pre>{escape(code)}</pre>"
