"""Running the command line in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Ran(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
