"""A call of one subgraph gives way to the operators of that subgraph, so that they are planned and fused with the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import count

from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.errors import Problem, TooLarge
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor

Place = tuple[int, int]
"""(subgraph, operator) in the file."""

MOST_ADDED = 20_000
"""Operators that calls may expand to beyond those that the file holds; subgraphs that call each other multiply without end."""


@dataclass(frozen=True, eq=False)
class Placed(Operator):
    """An operator in place of a call. ``within``: the places of the calls that it stands within, the outermost first."""

    within: tuple[Place, ...] = ()


@dataclass(frozen=True, eq=False)
class Copied(Tensor):
    """A copy of a called subgraph's tensor; its ``number`` keeps the hashes of copies apart."""

    number: int = 0

    def __hash__(self) -> int:
        return hash((self.subgraph, self.index, self.number))


def places(op: Operator) -> tuple[Place, ...]:
    """Where the file has the calls that an operator stands within, and itself."""
    return (*(op.within if isinstance(op, Placed) else ()), (op.subgraph, op.index))


class Inlining:
    """The calls of one model that give way."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._most = MOST_ADDED + sum(len(graph.operators) for graph in model.subgraphs)
        self._expanded = 0
        self._copies = count(1)
        self._expandable = cache(_expandable)

    def operators(self, bound: Bound, within: Collection[int]) -> Sequence[Operator] | None:
        """The operators that stand for a call, on its operands and results; ``None`` where it stays a call.

        It stays one where its handler does not declare ``inlines``, where its operands are not alike those of the
        subgraph, where a result is not computed there, and where the subgraph remembers anything. ``within``: subgraphs
        being inlined. Raises TooLarge where calls expand to too many operators.
        """
        option = bound.handler.inlines
        index = bound.op.options.get(option) if option else None
        if not isinstance(index, int) or not 0 <= index < len(self._model.subgraphs) or index in within:
            return None
        graph = self._model.subgraphs[index]
        tensors = _paired(bound.op, graph) if self._expandable(graph) else None
        if tensors is None:
            return None
        self._expanded += len(graph.operators)
        if self._expanded > self._most:
            raise _too_many(bound, index, self._most)
        return self._placed(bound.op, graph, tensors)

    def _placed(self, call: Operator, graph: Subgraph, tensors: dict[Tensor, Tensor]) -> list[Operator]:
        """The subgraph's operators in place of a call, on other tensors: those given, and copies of those in between."""

        def here(tensor: Tensor | None) -> Tensor | None:
            if tensor is None or tensor.constant:
                return tensor
            if tensor not in tensors:
                known = {field.name: getattr(tensor, field.name) for field in fields(Tensor)}
                tensors[tensor] = Copied(**known, number=next(self._copies))
            return tensors[tensor]

        def placed(op: Operator) -> Operator:
            known = {field.name: getattr(op, field.name) for field in fields(Operator)}
            slots = {"inputs": tuple(map(here, op.inputs)), "outputs": tuple(map(here, op.outputs))}
            return Placed(**{**known, **slots}, within=places(call))

        return [placed(op) for op in graph.operators]


def _too_many(call: Bound, index: int, most: int) -> TooLarge:
    reason = (
        f"its subgraph {index} takes its place, and calls that subgraphs repeat come to more than {most:,} operators"
    )
    hint = "convert a part of the model with --outputs, or a model whose subgraphs call each other less often"
    return TooLarge("the model expands to too many operators:", [Problem(call.label, reason, hint)])


def _expandable(graph: Subgraph) -> bool:
    """True if the subgraph keeps no state and computes each of its outputs, once."""
    computed = {tensor for inner in graph.operators for tensor in inner.outputs if tensor is not None}
    distinct = len(set(graph.outputs)) == len(graph.outputs) and len(set(graph.inputs)) == len(graph.inputs)
    return distinct and computed.issuperset(graph.outputs) and not any(t.is_variable for t in graph.tensors)


def _paired(op: Operator, graph: Subgraph) -> dict[Tensor, Tensor] | None:
    """The subgraph's inputs and outputs with the call's tensors; ``None`` where they do not match one to one."""
    inner, outer = (*graph.inputs, *graph.outputs), (*op.inputs, *op.outputs)
    if len(graph.inputs) != len(op.inputs) or len(graph.outputs) != len(op.outputs):
        return None
    pairs = {}
    for mine, theirs in zip(inner, outer, strict=True):
        if theirs is None or not _alike(mine, theirs):
            return None
        pairs[mine] = theirs
    return pairs


def _alike(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.dims, a.quantization) == (b.dtype, b.dims, b.quantization) and not b.is_variable
