"""Planted bugs in handlers, as data for ``test_mutations``.

No file is changed, and few bugs use private functions. A bug is a wrong declaration (``fields``), wrong ONNX nodes (``emits``:
functions called instead of ``ctx.ops.<key>``, with the original as first argument), or a wrong view of the operator (``sees``:
replaced methods of the context; ``options``: overridden options of the file).
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
    """A planted bug.

    ``bug``: its description. ``killed_by``: ids of cases that must fail with it and pass without it.
    """

    bug: str
    code: str
    killed_by: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    emits: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    sees: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fusions: bool = False

    @property
    def id(self) -> str:
        return f"{self.code}-{self.bug}".replace(" ", "_")

    def mutate(self, handler: Handler) -> Handler:
        """Return the handler with the bug."""
        lower = self.fields.get("lower", handler.lower)
        if self.emits or self.sees or self.options:
            return replace(
                handler, **{**self.fields, "lower": lambda ctx, *inputs: lower(_Context(ctx, self), *inputs)}
            )
        return replace(handler, **self.fields)


class _Context:
    """A context with the mutation's methods; everything else is delegated."""

    def __init__(self, ctx: Any, mutation: Mutation) -> None:
        self._ctx = ctx
        self._mutation = mutation
        self.ops = _Ops(ctx.ops, mutation.emits)
        self.options = Options(ctx.options.table, {**ctx.options, **mutation.options})

    def __getattr__(self, name: str) -> Any:
        method = self._mutation.sees.get(name)
        return getattr(self._ctx, name) if method is None else lambda *arguments: method(self._ctx, *arguments)


class _Ops:
    def __init__(self, ops: Any, emits: Mapping[str, Callable[..., Any]]) -> None:
        self._ops = ops
        self._emits = emits

    def named(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        original, wrong = getattr(self._ops, name), self._emits.get(name)
        return original if wrong is None else lambda *operands, **attributes: wrong(original, *operands, **attributes)


# --- common bugs ------------------------------------------------------------------------------


def with_attributes(**wrong: Any) -> Callable[..., Any]:
    """Emit the node with wrong attributes."""
    return lambda emit, *operands, **attributes: emit(*operands, **{**attributes, **wrong})


def leave_out(_emit: Any, x: Any, *_rest: Any, **_attributes: Any) -> Any:
    """Return the first operand instead of emitting the node."""
    return x


def file_axis(ctx: Any, axis: int, slot: int = 0) -> int:
    """Return the axis number of the file, without mapping it to the layout."""
    return int(axis % ctx.op[slot].rank)
