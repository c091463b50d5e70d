"""Planted bugs in handlers, as data for ``test_mutations``.

Nothing on disk is changed, and no mistake names a private function. A mistake is another declaration (``fields``), other ONNX nodes
(``emits``, called instead of ``ctx.ops.<key>`` with the function that makes the right one), or another view of the operator (``sees``:
methods of the context; ``options``: overridden options of the file).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.source.model import Options

Change = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Mutation:
    """``killed_by``: ids of cases that must each fail with the bug and pass without it. ``fusions``: whether fusions apply."""

    trap: str
    code: str
    killed_by: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    emits: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    sees: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fusions: bool = False

    @property
    def id(self) -> str:
        return f"{self.code}-{self.trap}".replace(" ", "_")

    def mutate(self, handler: Handler) -> Handler:
        """Return the handler with the bug."""
        lower = self.fields.get("lower", handler.lower)
        if self.emits or self.sees or self.options:
            return replace(
                handler, **{**self.fields, "lower": lambda ctx, *inputs: lower(_Context(ctx, self), *inputs)}
            )
        return replace(handler, **self.fields)


class _Context:
    """A context that returns the mutation's answers, and otherwise delegates."""

    def __init__(self, ctx: Any, mutation: Mutation) -> None:
        self._ctx = ctx
        self._mutation = mutation
        self.ops = _Ops(ctx.ops, mutation.emits)
        self.options = Options(ctx.options.table, {**ctx.options, **mutation.options})

    def __getattr__(self, name: str) -> Any:
        seen = self._mutation.sees.get(name)
        return getattr(self._ctx, name) if seen is None else lambda *arguments: seen(self._ctx, *arguments)


class _Ops:
    def __init__(self, ops: Any, emits: Mapping[str, Callable[..., Any]]) -> None:
        self._ops = ops
        self._emits = emits

    def named(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        true, other = getattr(self._ops, name), self._emits.get(name)
        return true if other is None else lambda *operands, **attributes: other(true, *operands, **attributes)


# --- ways to go wrong -------------------------------------------------------------------------


def with_attributes(**given: Any) -> Callable[..., Any]:
    """Emit the node with other attributes."""
    return lambda true, *operands, **attributes: true(*operands, **{**attributes, **given})


def leave_out(_true: Any, x: Any, *_rest: Any, **_attributes: Any) -> Any:
    """Return the first operand instead of emitting the node."""
    return x


def file_axis(ctx: Any, axis: int, slot: int = 0) -> int:
    """Return the axis number of the file, without mapping it to the layout."""
    return int(axis % ctx.op[slot].rank)
