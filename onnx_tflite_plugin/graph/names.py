"""Names: unique ones, where later uses get the suffix ``#n``, and the different names of graph inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from onnx_tflite_plugin.errors import UnsupportedOption

T = TypeVar("T")


MAX_INTERNAL_NAME = 60
"""Characters of a TFLite name that the names of internal values keep; suffixes follow."""
_BOUNDARIES = (r"[/;:]+(?=.*[A-Za-z])(.*[^/;:].*)", r"\.(?=.*[A-Za-z]{2})(.+)", r"_(?=.*[A-Za-z]{2})(.+)")
"""Beginnings of a shortened name, best first: after a scope, a Python module, a word."""


def shorten_name(name: str) -> str:
    """Return the end of a name, which tells more than its beginning: the scopes of a framework.

    It begins with a whole scope if the last scope is short enough, otherwise with a whole word if there is one.
    """
    if len(name) <= MAX_INTERNAL_NAME:
        return name
    end = name[-MAX_INTERNAL_NAME - 1 :]
    for boundary in _BOUNDARIES:
        if scopes := re.search(boundary, end, re.DOTALL):
            return scopes[1]
    return end[1:].lstrip("/;:")


class UniqueNames:
    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def claim(self, name: str) -> None:
        """Mark a name as used, which may be so already."""
        self._next.setdefault(name, 1)

    def unique(self, wanted: str) -> str:
        """Return ``wanted``, or ``wanted#1``, ``wanted#2``, ... if it is in use."""
        if wanted not in self._next:
            self._next[wanted] = 1
            return wanted
        while True:
            number = self._next[wanted]
            self._next[wanted] += 1
            candidate = f"{wanted}#{number}"
            if candidate not in self._next:
                self._next[candidate] = 1
                return candidate


def unusable_names(new: Sequence[str], taken: Collection[str]) -> list[str]:
    """Return the new names of graph inputs and outputs that are empty, taken, or given twice."""
    return [name for name in new if not name or name in taken or new.count(name) > 1]


def resolve_keys(
    given: Mapping[str, T], names: Sequence[str], stored: Sequence[str], flag: str, positions: int | None = None
) -> dict[str, T]:
    """Return values given by name, by the name of the TFLite tensor, or by position, under the names; other names are
    unchanged.

    ``names`` and ``stored``: both names of each graph input or output. ``positions``: how many of them, from the first, have
    a position. ``flag``: the option, for messages. Raises UnsupportedOption if one of them is given twice.
    """
    resolved: dict[str, T] = {}
    for key, value in given.items():
        name = key
        if key not in names and stored.count(key) == 1:
            name = names[stored.index(key)]
        elif key not in names and key.isdecimal() and int(key) < (len(names) if positions is None else positions):
            name = names[int(key)]
        if name in resolved:
            raise UnsupportedOption(f"{flag} {key}: {name!r} is given twice; give it once, under either name")
        resolved[name] = value
    return resolved
