"""The cases of the built-in handlers, one file a family as in ``op_handlers``."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..case import Case

FAMILIES = (
    "control",
    "conversion",
    "convolution",
    "elementwise",
    "matrix",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "shape",
    "slicing",
    "variables",
)


@cache
def builtin() -> tuple[Case, ...]:
    """Every case of the built-in handlers."""
    return tuple(case for family in FAMILIES for case in import_module(f".{family}", __name__).cases())
