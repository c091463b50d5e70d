"""Memory budget for arrays that a conversion creates.

A small file may request huge arrays. Initial states, folded CALL_ONCE subgraphs and lookup tables are therefore created
only after :func:`spend_budget` has succeeded. The limit applies to the sum of all arrays of one conversion.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onnx_tflite_plugin.api.refusal import Refusal

DEFAULT_BUDGET_BYTES = 1 << 30
ENVIRONMENT_VARIABLE = "ONNX_TFLITE_PLUGIN_BUDGET"

_remaining: ContextVar[list[int] | None] = ContextVar("remaining", default=None)


class OverBudget(Refusal):
    """An array exceeds the remaining budget. ``hint`` says how to increase the limit."""

    def __init__(self, reason: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(reason)


def budget_bytes() -> int:
    """Return the limit in bytes: 1 GiB, or the number in ``ENVIRONMENT_VARIABLE``."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "")
    return int(text) if text.isdecimal() else DEFAULT_BUDGET_BYTES


@contextmanager
def budget() -> Iterator[None]:
    """Start a new budget, which all arrays of the ``with`` block share."""
    token = _remaining.set([budget_bytes()])
    try:
        yield
    finally:
        _remaining.reset(token)


def spend_budget(elements: int, itemsize: int, what: str = "an array") -> None:
    """Deduct the size of an array from the budget. Call it before creating the array.

    ``elements``: number of elements. ``itemsize``: bytes per element. Raises OverBudget if the array exceeds the remaining
    budget; ``what`` is the subject of the message.
    """
    remaining = _remaining.get()
    size = elements * itemsize
    if size > (budget_bytes() if remaining is None else remaining[0]):
        limit = f"the limit for all arrays of a conversion is {format_bytes(budget_bytes())}"
        raise OverBudget(
            f"{what} would take {format_bytes(size)}; {limit}", f"{ENVIRONMENT_VARIABLE}=BYTES raises the limit"
        )
    if remaining is not None:
        remaining[0] -= size


def format_bytes(size: int) -> str:
    """Return a number of bytes as text, in GB if it is large: ``17.2 GB``."""
    return f"{size / 1e9:.3g} GB" if size >= 10**8 else f"{size} bytes"
