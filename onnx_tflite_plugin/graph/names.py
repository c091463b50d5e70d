"""Unique names: the first use keeps the name, later ones get the suffix ``#n``."""

from __future__ import annotations


class UniqueNames:
    def __init__(self) -> None:
        self._next: dict[str, int] = {}

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
