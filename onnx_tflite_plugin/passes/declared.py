"""What is said of a pass without importing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
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

    def run(self, model: ir.Model, present: Set[str] | None = None) -> int:
        """The ``run`` of the module of that name, imported here: most models need few of them.

        ``present``: the operators of the main graph, where they are known.
        """
        if not self.needs <= (operators(model) if present is None else present):
            return 0
        rewrite: Callable[[ir.Model], int] = import_module(f"{self.folder}.{self.name}").run
        return rewrite(model)


def run_all(passes: Iterable[Pass], model: ir.Model) -> dict[str, int]:
    """One after the other; returns, by name, in how many places each changed the model."""
    changed: dict[str, int] = {}
    present = operators(model)
    for one in passes:
        changed[one.name] = one.run(model, present)
        if changed[one.name]:
            present = operators(model)
    return changed


def operators(model: ir.Model) -> Set[str]:
    """Those of the main graph."""
    return {node.op_type for node in model.graph}
