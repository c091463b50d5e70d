"""Minimization of a file: tables and numbers are removed as long as the outcome does not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

Same = Callable[[bytes], bool]


def minimise(data: bytes, original: bytes, same: Same, seconds: float = 30.0) -> bytes:
    """Return the file with as many changes undone, and as many other bytes zeroed, as ``same`` allows.

    ``original``: what it was mutated from; where their sizes differ, as a structural mutation's do, it is of no help.
    """
    end = time.monotonic() + seconds
    best = bytearray(data)
    if len(original) == len(data):
        for start, stop in _differing(data, original):
            if time.monotonic() > end:
                break
            trial = bytearray(best)
            trial[start:stop] = original[start:stop]
            if same(bytes(trial)):
                best = trial
    width = len(best) // 2
    while width >= 4:
        for start in range(8, len(best), width):
            if time.monotonic() > end:
                return bytes(best)
            trial = bytearray(best)
            trial[start : start + width] = bytes(len(trial[start : start + width]))
            if trial != best and same(bytes(trial)):
                best = trial
        width //= 2
    return bytes(best)


def _differing(one: bytes, other: bytes) -> Iterator[tuple[int, int]]:
    """Return the ranges of bytes in which two files differ."""
    start = None
    for at, (a, b) in enumerate(zip(one, other, strict=True)):
        if a != b and start is None:
            start = at
        elif a == b and start is not None:
            yield start, at
            start = None
    if start is not None:
        yield start, len(one)
