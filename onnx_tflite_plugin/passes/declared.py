"""What is said of a pass without importing it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir


class Pass(NamedTuple):
    """The module ``name`` of the package ``folder``, whose ``run`` changes a model in place and returns in how many places.

    ``exact``: the same results, but for the last digits of float32; integers that are made of them stay as they are.
    Exact passes run always, the others under ``--optimize speed``. ``needs``: operators of the main graph; where one of them is
    missing it changes nothing.
    """

    folder: str
    name: str
    summary: str
    exact: bool
    needs: frozenset[str] = frozenset()

    def run(self, model: ir.Model) -> int:
        """The ``run`` of the module of that name, imported here: most models need few of them."""
        if not self.needs <= {node.op_type for node in model.graph}:
            return 0
        rewrite: Callable[[ir.Model], int] = import_module(f"{self.folder}.{self.name}").run
        return rewrite(model)
