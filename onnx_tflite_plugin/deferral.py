"""Puts off what importing onnx_ir brings and few conversions need: sympy takes as long to import as a small model to convert.

onnx_ir computes with symbolic sizes by sympy, in one module. Both are imported as usual, and run when somebody reads the
first name of theirs (``importlib.util.LazyLoader``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

DEFERRED = ("sympy", "onnx_ir._symbolic_shapes")


class Finder:
    """Finds the modules of ``DEFERRED`` as Python does, and has them loaded on first use."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """As ``importlib.abc.MetaPathFinder.find_spec``; ``None`` for any other module."""
        if name not in DEFERRED:
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def install() -> None:
    """Once a process, before onnx_ir is imported; harmless after that."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
