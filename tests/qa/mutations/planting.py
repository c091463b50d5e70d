"""Traps of the operators reference, planted as bugs: data that ``test_mutations`` reads.

Nothing on disk is changed. A bug is another declaration (``fields``), another helper function (``patches``, by module and
name, made from the original), other ONNX nodes (``emits``, called instead of ``ctx.ops.<key>`` with what makes the true
one), or another view of the operator (``sees``: methods of the context; ``options``: the file's options overruled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
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
    patches: Mapping[str, Change] = field(default_factory=dict)
    emits: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    sees: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fusions: bool = False

    @property
    def id(self) -> str:
        return f"{self.code}-{self.trap}".replace(" ", "_")

    def mutated(self, handler: Handler) -> Handler:
        """The handler with the bug in it; patches are planted apart."""
        lower = self.fields.get("lower", handler.lower)
        if self.emits or self.sees or self.options:
            return replace(
                handler, **{**self.fields, "lower": lambda ctx, *inputs: lower(_Context(ctx, self), *inputs)}
            )
        return replace(handler, **self.fields)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The helper functions with the bug in them, for as long as it lasts."""
        with ExitStack() as undo:
            for place, change in self.patches.items():
                module, _, path = place.partition(":")
                *owners, name = path.split(".")
                owner = reduce(getattr, owners, import_module(module))
                original = getattr(owner, name)
                undo.callback(setattr, owner, name, original)
                setattr(owner, name, change(original))
            yield


class _Context:
    """A context that answers as the mutation says, else as it is."""

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


def returning(value: Any) -> Change:
    """The helper gives one answer whatever it is asked."""
    return lambda original: lambda *arguments, **named: value


def handing_on(at: int) -> Change:
    """The helper hands one of its arguments on."""
    return lambda original: lambda *arguments, **named: arguments[at]


def with_attributes(**given: Any) -> Callable[..., Any]:
    """The node gets other attributes."""
    return lambda true, *operands, **attributes: true(*operands, **{**attributes, **given})


def left_out(_true: Any, x: Any, *_rest: Any, **_attributes: Any) -> Any:
    """No node: its first operand."""
    return x


def the_files_axis(ctx: Any, axis: int, slot: int = 0) -> int:
    """The axis number as it stands in the file."""
    return int(axis % ctx.op[slot].rank)


def returning_zero(_original: Any) -> Any:
    return lambda ctx: ctx.scalar(0)
