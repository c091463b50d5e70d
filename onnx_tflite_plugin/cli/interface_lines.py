"""Lines that describe graph inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import format_shape
from onnx_tflite_plugin.cli.output import MAX_NAME_LENGTH, limit_lines, shorten

if TYPE_CHECKING:
    from onnx_tflite_plugin.presentation.graph_io import GraphValue

_MAX_VALUES = 8  # maximum number of listed values
_MAX_LINE_LENGTH = 100  # maximum length of a line with all values
_MIN_GROUP = 3  # minimum number of values with consecutive numbers that share a line
_MAX_TYPE_WIDTH = 30


def interface_lines(graph_values: Sequence[GraphValue]) -> list[str]:
    """Return names, dtypes and shapes in columns, with the lines of their metadata."""
    from onnx_tflite_plugin.presentation.author_metadata import metadata_lines

    names = [shorten(graph_value.name) or "''" for graph_value in graph_values]
    types = [f"{graph_value.dtype} {format_shape(graph_value.shape)}" for graph_value in graph_values]
    facts = []
    for graph_value in graph_values:
        quantization_text = quantization(graph_value.scale, graph_value.zero_point, graph_value.axis)
        facts.append((quantization_text, *metadata_lines(graph_value)))
    groups = group_numbered(names, [(type_, *more) for type_, more in zip(types, facts, strict=True)])
    labels = [(_name_range(names, group), _repeated_type(types, group)) for group in groups]
    widths = [
        min(limit, max((len(label[k]) for label in labels), default=0))
        for k, limit in enumerate((MAX_NAME_LENGTH, _MAX_TYPE_WIDTH))
    ]
    lines = []
    for group, (name, type_) in zip(groups, labels, strict=True):
        quantization_text, *more = facts[group[0]]
        lines.append(f"{name:{widths[0]}}  {type_:{widths[1]}}  {quantization_text}".rstrip())
        lines += [f"  {text}" for text in more]
    return limit_lines(lines, 2 * _MAX_VALUES)


def brief_interface(graph_values: Sequence[GraphValue]) -> list[str]:
    """Return lines with names, dtypes and shapes: a single line if it is short.

    Otherwise each value has a line, up to a limit. Values with equal types and consecutive numbers, such as caches, share
    a line.
    """
    names = [shorten(graph_value.name) or "''" for graph_value in graph_values]
    types = [f"{graph_value.dtype} {format_shape(graph_value.shape)}" for graph_value in graph_values]
    line = ", ".join(f"{name} {type_}" for name, type_ in zip(names, types, strict=True))
    if len(line) <= _MAX_LINE_LENGTH and len(names) <= _MAX_VALUES:
        return [line] if names else []
    groups = group_numbered(names, types)
    lines = [
        f"{_name_range(names, group)}{':' if len(group) > 1 else ''} {_repeated_type(types, group)}" for group in groups
    ]
    return limit_lines(lines, _MAX_VALUES, "convert -v shows more")


def group_numbered(names: Sequence[str], facts: Sequence[object]) -> list[list[int]]:
    """Return the positions of names in groups, in order.

    Names with equal facts and consecutive last numbers form a group: ``k_0``, ``k_1``, …
    """
    members: dict[tuple[object, ...], list[int]] = {}
    for position, (name, fact) in enumerate(zip(names, facts, strict=True)):
        start, number, end = _split_number(name)
        members.setdefault((start, end, fact, "" if number else position), []).append(position)
    groups = []
    for group in members.values():
        numbers = [_split_number(names[position])[1] for position in group]
        is_consecutive = all(numbers) and [int(n) for n in numbers] == [int(numbers[0]) + k for k in range(len(group))]
        groups += [group] if is_consecutive and len(group) >= _MIN_GROUP else [[position] for position in group]
    return sorted(groups)


def _split_number(name: str) -> tuple[str, str, str]:
    """Return the text before, in and after the last number of a name."""
    match = re.fullmatch(r"(.*?)(\d*)(\D*)", name, re.DOTALL)
    assert match is not None
    return match[1], match[2], match[3]


def _name_range(names: Sequence[str], group: Sequence[int]) -> str:
    return names[group[0]] if len(group) == 1 else f"{names[group[0]]} … {names[group[-1]]}"


def _repeated_type(types: Sequence[str], group: Sequence[int]) -> str:
    return types[group[0]] if len(group) == 1 else f"{len(group)} × {types[group[0]]}"


def quantization(scale: Sequence[float], zero_point: Sequence[int], axis: int) -> str:
    """Return scale and zero point as text; empty for a tensor without quantization."""
    if len(scale) > 1:
        return f"{len(scale)} scales along axis {axis}"
    return f"scale {scale[0]:.6g}, zero point {zero_point[0]}" if scale else ""
