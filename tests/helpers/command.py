"""Type of the fixture that runs the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class CommandResult(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., CommandResult]
