"""Lines that describe graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.cli.output import limit_lines, plural, shorten

if TYPE_CHECKING:
    from onnx_tflite_plugin.presentation.graph_io import Edge

_MOST = 8
_LONG = 100  # characters of a line
_LABELS = 3  # shown of the list


def interface_lines(edges: Sequence[Edge]) -> list[str]:
    """Return names, dtypes and shapes in columns, with the lines of their metadata."""
    names = [shorten(edge.name) or "''" for edge in edges]
    types = [f"{edge.dtype} {shape(edge.shape)}" for edge in edges]
    widths = min(24, max(map(len, names), default=0)), min(30, max(map(len, types), default=0))
    lines = []
    for edge, name, type_ in zip(edges, names, types, strict=True):
        meaning = quantization(edge.scale, edge.zero_point, edge.axis)
        lines.append(f"{name:{widths[0]}}  {type_:{widths[1]}}  {meaning}".rstrip())
        lines += [f"  {text}" for text in metadata_lines(edge)]
    return limit_lines(lines, 2 * _MOST)


def brief_interface(edges: Sequence[Edge]) -> list[str]:
    """Return names, dtypes and shapes: on one line if it is short, otherwise on a line each, of the first eight or nine."""
    texts = [f"{shorten(edge.name) or repr('')} {edge.dtype} {shape(edge.shape)}" for edge in edges]
    line = ", ".join(texts)
    if len(line) <= _LONG and len(texts) <= _MOST:
        return [line] if texts else []
    return limit_lines(texts, _MOST, "convert -v shows more")


def shape(sizes: Sequence[int | str | None]) -> str:
    """Return the shape as text: ``[batch, 224, 224, 3]``; a dynamic dimension without a name is a question mark."""
    return "[" + ", ".join("?" if size is None else str(size) for size in sizes) + "]"


def quantization(scale: Sequence[float], zero_point: Sequence[int], axis: int) -> str:
    """Return scale and zero point as text; empty if not quantized."""
    if len(scale) > 1:
        return f"{len(scale)} scales along axis {axis}"
    return f"scale {scale[0]:.6g}, zero point {zero_point[0]}" if scale else ""


def metadata_lines(edge: Edge) -> Iterator[str]:
    """Yield lines for the metadata."""
    facts = []
    if edge.mean and edge.std and (any(edge.mean) or any(one != 1 for one in edge.std)):
        facts.append(f"normalized (x - {_numbers(edge.mean)}) / {_numbers(edge.std)}")
    if edge.range is not None:
        low, high = real_range(edge) or edge.range
        facts.append(f"{'values' if (low, high) == edge.range else 'real values'} {_numbers(low)} to {_numbers(high)}")
    if edge.threshold is not None:
        facts.append(f"score threshold {edge.threshold:g}")
    if facts:
        yield ", ".join([*([edge.kind] if edge.kind not in ("", "feature") else []), *facts])
    if edge.labels:
        first = "; ".join(shorten(label, 24) for label in edge.labels[:_LABELS])  # a label may hold commas
        yield f"{plural(len(edge.labels), 'label')}: {first}" + ("; …" if len(edge.labels) > _LABELS else "")


def real_range(edge: Edge) -> tuple[tuple[float], tuple[float]] | None:
    """Return the dequantized range if the author states that of the dtype; None for images, whose values are pixels."""
    limits = {"uint8": (0, 255), "int8": (-128, 127)}.get(edge.dtype)
    if edge.kind == "image" or edge.range is None or limits is None or len(edge.scale) != 1:
        return None
    if {*edge.range[0]} != {limits[0]} or {*edge.range[1]} != {limits[1]}:
        return None
    low, high = (float(f"{edge.scale[0] * (value - edge.zero_point[0]):.3g}") for value in limits)
    return (low,), (high,)


def _numbers(values: Sequence[float]) -> str:
    texts = [f"{value:g}" for value in dict.fromkeys(values)]
    return texts[0] if len(texts) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"
