"""The cases of the built-in handlers, in modules that mirror ``op_handlers``.

Each module has a function ``cases``. The cases of ``op_handlers/X/y.py`` are those of ``X/y.py`` here, and of
``X/y_topic.py`` if there are many. Cases in ``networks`` combine several operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from conformance.case import Case
from onnx_tflite_plugin.renamed import CASES, warn_renamed


@cache
def builtin_cases() -> tuple[Case, ...]:
    """Return every case of the built-in handlers."""
    return tuple(case for name in modules() for case in import_module(name).cases())


def modules() -> Iterator[str]:
    """Yield the full names of the modules with cases."""
    return (module.name for module in walk_packages(__path__, f"{__name__}.") if not module.ispkg)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in CASES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warn_renamed(f"{__name__}.{name}", CASES[name])
        return globals()[CASES[name]]
