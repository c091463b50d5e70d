"""Minimization of a file: fewer changed bytes with the same outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

Same = Callable[[bytes], bool]


def minimise(data: bytes, original: bytes, same: Same, seconds: float = 30.0) -> bytes:
    """Return the smallest change of a file for which ``same`` is true.

    Changes are undone, and other bytes are zeroed. ``original``: the file before the mutation. It is unused if the
    sizes differ, as after a mutation of tables.
    """
    end = time.monotonic() + seconds
    smallest = bytearray(data)
    if len(original) == len(data):
        for start, stop in _differing_ranges(data, original):
            if time.monotonic() > end:
                break
            trial = bytearray(smallest)
            trial[start:stop] = original[start:stop]
            if same(bytes(trial)):
                smallest = trial
    width = len(smallest) // 2
    while width >= 4:
        for start in range(8, len(smallest), width):
            if time.monotonic() > end:
                return bytes(smallest)
            trial = bytearray(smallest)
            trial[start : start + width] = bytes(len(trial[start : start + width]))
            if trial != smallest and same(bytes(trial)):
                smallest = trial
        width //= 2
    return bytes(smallest)


def _differing_ranges(first: bytes, second: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of bytes in which two files of equal size differ."""
    start = None
    for position, (a, b) in enumerate(zip(first, second, strict=True)):
        if a != b and start is None:
            start = position
        elif a == b and start is not None:
            yield start, position
            start = None
    if start is not None:
        yield start, len(first)
