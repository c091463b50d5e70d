"""Possible outcomes of a fuzzed file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["equal", "different", "excused", "uncompared", "invalid", "refused", "bug"]

KINDS: dict[Kind, str] = {
    "equal": "converted, and LiteRT agrees",
    "different": "converted, and LiteRT computes something else",
    "excused": "converted, and LiteRT computes something else for a reason that excuses.py names",
    "uncompared": "converted, but LiteRT does not run it",
    "invalid": "InvalidModel",
    "refused": "another ConversionError",
    "bug": "an exception, an error attributed to a handler, a model that does not load, or too much time or memory",
}


@dataclass(frozen=True)
class Outcome:
    """Outcome of a file.

    ``sort``: the exception type, or the limit that was exceeded. ``where``: file and line.
    """

    kind: Kind
    sort: str = ""
    where: str = ""
    text: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, ...]:
        """Return the outcome without numbers and names, to compare errors."""
        text = re.sub(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.e+-]*|\[[^]]*\]", "…", self.text)
        return self.kind, self.sort, self.where, text[:80]

    @property
    def line(self) -> str:
        return f"{self.kind} {self.sort} {self.where} {self.seconds:.1f} s: {self.text}"

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Outcome:
        return cls(*fields)
