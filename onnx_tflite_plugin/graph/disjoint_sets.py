"""Disjoint sets of operator indices, such as operators that share nodes."""

from __future__ import annotations


class DisjointSets:
    """Disjoint sets of numbers, each represented by its smallest number."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def representative(self, number: int) -> int:
        """Return the smallest number of the set that contains ``number``."""
        while (parent := self._parents.get(number, number)) != number:
            number = parent
        return number

    def join(self, first: int, second: int) -> None:
        """Merge the sets that contain the two numbers."""
        low, high = sorted((self.representative(first), self.representative(second)))
        self._parents[high] = low
