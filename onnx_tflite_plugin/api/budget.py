"""How many bytes the arrays may take that a conversion makes beside the file's own: a small file may ask for many.

States begin with an array of zeros, CALL_ONCE is folded, tables and places are counted out: each is made after
:func:`spend` has agreed. The bound is for one conversion, all its arrays together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from onnx_tflite_plugin.api.refusal import Refused

BYTES = 1 << 30
ENVIRONMENT = "ONNX_TFLITE_PLUGIN_BUDGET"

_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


class OverBudget(Refused):
    """An array is not made, for it would take more than is left."""


def asked() -> int:
    """The bound in bytes: the environment's where it is a number, else 1 GiB."""
    text = os.environ.get(ENVIRONMENT, "")
    return int(text) if text.isdecimal() else BYTES


@contextmanager
def budget() -> Iterator[None]:
    """A bound for what is made inside."""
    token = _left.set([asked()])
    try:
        yield
    finally:
        _left.reset(token)


def spend(elements: int, itemsize: int, what: str = "an array") -> None:
    """Take an array of so many elements of ``itemsize`` bytes out of the budget. Raises OverBudget naming ``what``."""
    left = _left.get()
    size = elements * itemsize
    if size > (asked() if left is None else left[0]):
        limit = f"the arrays of one conversion may take {asked()} in all: {ENVIRONMENT}=BYTES allows more"
        raise OverBudget(f"{what} would take {size} bytes; {limit}")
    if left is not None:
        left[0] -= size
