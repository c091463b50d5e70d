"""Operator indices as text."""

from __future__ import annotations

from collections.abc import Sequence


def format_ranges(operators: Sequence[int]) -> str:
    """Return operator indices as text; consecutive indices are a range: ``3–14, 17``."""
    ranges: list[list[int]] = []
    for number in sorted(operators):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(_format_range(numbers) for numbers in ranges)


def _format_range(numbers: Sequence[int]) -> str:
    if len(numbers) < 3:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]}–{numbers[-1]}"
