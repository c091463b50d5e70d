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
    missing it changes nothing. ``takes_weights_dtype``: ``run`` has a second parameter, the ``--weights-dtype`` of the conversion.
    """

    folder: str
    name: str
    summary: str
    exact: bool
    needs: frozenset[str] = frozenset()
    takes_weights_dtype: bool = False

    def run(self, model: ir.Model, present: Set[str] | None = None, weights_dtype: str = "auto") -> int:
        """The ``run`` of the module of that name, imported here: most models need few of them.

        ``present``: the operators of the main graph, where they are known. ``weights_dtype``: the option of that name.
        """
        if not self.needs <= (operators(model) if present is None else present):
            return 0
        rewrite: Callable[..., int] = import_module(f"{self.folder}.{self.name}").run
        return rewrite(model, weights_dtype) if self.takes_weights_dtype else rewrite(model)


def run_all(passes: Iterable[Pass], model: ir.Model, weights_dtype: str = "auto") -> dict[str, int]:
    """One after the other; returns, by name, in how many places each changed the model."""
    changed: dict[str, int] = {}
    present = operators(model)
    for one in passes:
        changed[one.name] = one.run(model, present, weights_dtype)
        if changed[one.name]:
            present = operators(model)
    return changed


def operators(model: ir.Model) -> Set[str]:
    """Those of the main graph."""
    return {node.op_type for node in model.graph}
