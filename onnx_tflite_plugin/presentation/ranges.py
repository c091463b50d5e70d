"""Operator indices as text."""

from __future__ import annotations

from collections.abc import Sequence


def format_ranges(operators: Sequence[int]) -> str:
    """Return operator indices as text; consecutive indices are a range: ``3–14, 17``."""
    runs: list[list[int]] = []
    for number in sorted(operators):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(_format_run(run) for run in runs)


def _format_run(run: Sequence[int]) -> str:
    if len(run) < 3:
        return ", ".join(map(str, run))
    return f"{run[0]}–{run[-1]}"
