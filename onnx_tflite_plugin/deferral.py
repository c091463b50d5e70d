"""Deferred import of sympy, which onnx_ir imports and few conversions need.

Importing sympy takes as long as converting a small model. One module of onnx_ir uses sympy, for symbolic sizes. That module
and sympy are imported lazily: they are executed on first access to one of their names (``importlib.util.LazyLoader``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

DEFERRED_MODULES = ("sympy", "onnx_ir._symbolic_shapes")


class Finder:
    """Module finder that loads ``DEFERRED_MODULES`` on first use."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the lazy spec of a deferred module; None for any other module.

        See ``importlib.abc.MetaPathFinder.find_spec``.
        """
        if name not in DEFERRED_MODULES:
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def install() -> None:
    """Install the finder once per process, before onnx_ir is imported."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
