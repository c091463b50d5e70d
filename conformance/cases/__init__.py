"""The cases of the built-in handlers: each file here is a family, as in ``op_handlers``, with a function ``cases``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from ..case import Case


@cache
def builtin() -> tuple[Case, ...]:
    """Every case of the built-in handlers."""
    families = sorted(module.name for module in iter_modules(__path__))
    return tuple(case for family in families for case in import_module(f".{family}", __name__).cases())
