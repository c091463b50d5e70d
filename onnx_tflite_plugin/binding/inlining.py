"""A call of one subgraph gives way to the operators of that subgraph, so that they are planned and fused with the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace

from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor

Place = tuple[int, int]
"""(subgraph, operator) in the file."""

MOST = 100_000
"""Operators that calls may give way to in one model; subgraphs that call each other may multiply without end."""


@dataclass(frozen=True, eq=False)
class Placed(Operator):
    """An operator in place of a call. ``within``: the places of the calls that it stands within, the outermost first."""

    within: tuple[Place, ...] = ()


def places(op: Operator) -> tuple[Place, ...]:
    """Where the file has the calls that an operator stands within, and itself."""
    return (*(op.within if isinstance(op, Placed) else ()), (op.subgraph, op.index))


class Inlining:
    """The calls of one model that give way."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._left = MOST

    def operators(self, bound: Bound, within: Collection[int]) -> Sequence[Operator] | None:
        """The operators that stand for a call, on its operands and results; ``None`` where it stays a call.

        It stays one where its handler does not declare ``inlines``, where its operands are not alike those of the
        subgraph, where a result is not computed there, and where the subgraph remembers anything. ``within``: subgraphs
        being inlined.
        """
        option = bound.handler.inlines
        index = bound.op.options.get(option) if option else None
        if not isinstance(index, int) or not 0 <= index < len(self._model.subgraphs) or index in within:
            return None
        graph = self._model.subgraphs[index]
        tensors = _paired(bound.op, graph)
        if tensors is None or any(tensor.is_variable for tensor in graph.tensors):
            return None
        self._left -= len(graph.operators)
        return None if self._left < 0 else _placed(bound.op, graph, tensors)


def _placed(call: Operator, graph: Subgraph, tensors: dict[Tensor, Tensor]) -> list[Operator]:
    """The subgraph's operators in place of a call, on other tensors: those given, and copies of those in between."""

    def here(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.constant:
            return tensor
        if tensor not in tensors:
            tensors[tensor] = replace(tensor)
        return tensors[tensor]

    def placed(op: Operator) -> Operator:
        known = {field.name: getattr(op, field.name) for field in fields(Operator)}
        slots = {"inputs": tuple(map(here, op.inputs)), "outputs": tuple(map(here, op.outputs))}
        return Placed(**{**known, **slots}, within=places(call))

    return [placed(op) for op in graph.operators]


def _paired(op: Operator, graph: Subgraph) -> dict[Tensor, Tensor] | None:
    """The subgraph's inputs and outputs with the call's tensors; ``None`` where they do not match one to one."""
    computed = {tensor for inner in graph.operators for tensor in inner.outputs if tensor is not None}
    outputs = set(graph.outputs)
    if len(outputs) < len(graph.outputs) or not outputs <= computed or len(set(graph.inputs)) < len(graph.inputs):
        return None
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
