"""Lines about the author's metadata of a graph input or output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx_tflite_plugin.checked import list_first, plural
from onnx_tflite_plugin.graph.names import OMISSION
from onnx_tflite_plugin.presentation.graph_io import GraphValue, dequantize_range

_MAX_LABELS = 3  # maximum number of listed labels
_MAX_LABEL_LENGTH = 24
_MAX_SCALE_ERROR = 0.02  # maximum relative difference between a scale and 1 / std, such as 1 / 128 and 1 / 127.5


def metadata_lines(graph_value: GraphValue) -> Iterator[str]:
    """Yield lines that describe the author's metadata of a graph input or output."""
    facts = [*_value_facts(graph_value)]
    if facts:
        kind = [] if graph_value.kind in ("", "feature") else [graph_value.kind]
        yield ", ".join([*kind, *facts])
    if graph_value.labels:
        # separated by semicolons, because a label may contain commas
        first_labels = "; ".join(_shorten_label(label) for label in graph_value.labels[:_MAX_LABELS])
        more = "; …" if len(graph_value.labels) > _MAX_LABELS else ""
        yield f"{plural(len(graph_value.labels), 'label')}: {first_labels}{more}"
    if graph_value.files:
        yield f"associated files: {list_first(graph_value.files, _MAX_LABELS)}"


def _value_facts(graph_value: GraphValue) -> Iterator[str]:
    """Yield normalization, range and score threshold, as far as they are known."""
    normalizes = any(graph_value.mean) or any(std != 1 for std in graph_value.std)
    takes_pixels = False
    if graph_value.mean and graph_value.std and normalizes:
        formula = f"(x - {_format_numbers(graph_value.mean)}) / {_format_numbers(graph_value.std)}"
        takes_pixels = _takes_pixels(graph_value)
        if takes_pixels:
            yield f"pass pixels 0 to 255: the scale already normalizes them, {formula}"
        else:
            yield f"normalized {formula}"
    if graph_value.range is not None and not takes_pixels:
        low, high = _real_range(graph_value) or graph_value.range
        noun = "values" if (low, high) == graph_value.range else "real values"
        yield f"{noun} {_format_numbers(low)} to {_format_numbers(high)}"
    if graph_value.threshold is not None:
        yield f"score threshold {graph_value.threshold:g}"


def _real_range(graph_value: GraphValue) -> tuple[tuple[float], tuple[float]] | None:
    """Return the dequantized range if the metadata's range is the range of the dtype.

    Return None for any other range, and for images, whose values are pixels.
    """
    if graph_value.kind == "image":
        return None
    return dequantize_range(graph_value.range, graph_value.dtype, graph_value.scale, graph_value.zero_point)


def _takes_pixels(graph_value: GraphValue) -> bool:
    """True if scale and zero point normalize, so that quantized values are pixels."""
    if (graph_value.kind, graph_value.dtype) != ("image", "uint8") or len(graph_value.scale) != 1:
        return False
    means_match = all(abs(mean - graph_value.zero_point[0]) <= 1 for mean in graph_value.mean)
    return means_match and all(abs(std * graph_value.scale[0] - 1) <= _MAX_SCALE_ERROR for std in graph_value.std)


def _format_numbers(values: Sequence[float]) -> str:
    texts = [f"{value:g}" for value in dict.fromkeys(values)]
    return texts[0] if len(texts) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"


def _shorten_label(label: str) -> str:
    """Return a label without its middle if it is long."""
    if len(label) <= _MAX_LABEL_LENGTH:
        return label
    start = (_MAX_LABEL_LENGTH - 1) // 2
    return f"{label[:start]}{OMISSION}{label[start + 1 - _MAX_LABEL_LENGTH :]}"
