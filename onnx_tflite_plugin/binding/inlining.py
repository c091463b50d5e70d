"""Inlining of called subgraphs, so that their operators can be planned and fused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import count

from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.errors import Problem, TooLarge
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor

Location = tuple[int, int]
"""(subgraph, operator) in the file."""

MAX_ADDED_OPERATORS = 20_000
"""Maximum number of operators that inlining may add. Nested calls can multiply the number of operators."""


@dataclass(frozen=True, eq=False)
class InlinedOperator(Operator):
    """A copy of an operator of a called subgraph.

    ``callers``: locations of the enclosing calls, the outermost first.
    """

    callers: tuple[Location, ...] = ()


@dataclass(frozen=True, eq=False)
class InlinedTensor(Tensor):
    """A copy of a tensor of a called subgraph. Copies differ in ``number``."""

    number: int = 0

    def __hash__(self) -> int:
        return hash((self.subgraph, self.index, self.number))


def call_path(op: Operator) -> tuple[Location, ...]:
    """Return the locations of enclosing calls, outermost first, and of the operator."""
    return (*(op.callers if isinstance(op, InlinedOperator) else ()), (op.subgraph, op.index))


class Inlining:
    """Inlining of the calls of one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._max_operators = MAX_ADDED_OPERATORS + sum(len(graph.operators) for graph in model.subgraphs)
        self._expanded = 0
        self._copies = count(1)
        self._is_expandable = cache(_is_expandable)

    def operators(self, bound: Bound, enclosing_subgraphs: Collection[int]) -> Sequence[Operator] | None:
        """Return the operators that replace a call; ``None`` if the call is kept.

        A call is kept if its handler does not declare ``inlined_subgraph``, or if the subgraph is stateful or does not
        compute one of its outputs. A call is also kept if one of its tensors has another dtype, shape or quantization in
        the subgraph. A recursive call to one of the ``enclosing_subgraphs``, which contain ``bound``, is kept too. Raises
        TooLarge if the model expands to too many operators.
        """
        option = bound.handler.inlined_subgraph
        index = bound.op.options.get(option) if option else None
        if not isinstance(index, int) or not 0 <= index < len(self._model.subgraphs) or index in enclosing_subgraphs:
            return None
        graph = self._model.subgraphs[index]
        tensors = _pair_boundary(bound.op, graph) if self._is_expandable(graph) else None
        if tensors is None:
            return None
        self._expanded += len(graph.operators)
        if self._expanded > self._max_operators:
            raise _too_many_operators(bound, index, self._max_operators)
        return self._copy_operators(bound.op, graph, tensors)

    def _copy_operators(self, call: Operator, graph: Subgraph, tensors: dict[Tensor, Tensor]) -> list[Operator]:
        """Return copies of the subgraph's operators.

        ``tensors`` maps tensors of the subgraph to tensors of the call. Copies of other tensors are added to it.
        """

        def map_tensor(tensor: Tensor | None) -> Tensor | None:
            if tensor is None or tensor.is_constant:
                return tensor
            if tensor not in tensors:
                values = {field.name: getattr(tensor, field.name) for field in fields(Tensor)}
                tensors[tensor] = InlinedTensor(**values, number=next(self._copies))
            return tensors[tensor]

        def copy_operator(op: Operator) -> Operator:
            values = {field.name: getattr(op, field.name) for field in fields(Operator)}
            slots = {"inputs": tuple(map(map_tensor, op.inputs)), "outputs": tuple(map(map_tensor, op.outputs))}
            return InlinedOperator(**{**values, **slots}, callers=call_path(call))

        return [copy_operator(op) for op in graph.operators]


def _too_many_operators(call: Bound, index: int, max_operators: int) -> TooLarge:
    reason = (
        f"inlining subgraph {index} and its nested calls expands the model to more than {max_operators:,} operators"
    )
    hint = "convert a submodel with --outputs, or a model with fewer nested calls"
    return TooLarge("the model expands to too many operators:", [Problem(call.label, reason, hint)])


def _is_expandable(graph: Subgraph) -> bool:
    """True if the subgraph is stateless and computes each of its outputs once."""
    computed = {tensor for inner in graph.operators for tensor in inner.outputs if tensor is not None}
    distinct = len(set(graph.outputs)) == len(graph.outputs) and len(set(graph.inputs)) == len(graph.inputs)
    return distinct and computed.issuperset(graph.outputs) and not any(t.is_variable for t in graph.tensors)


def _pair_boundary(op: Operator, graph: Subgraph) -> dict[Tensor, Tensor] | None:
    """Return {subgraph tensor: tensor of the call}; None if the tensors do not match."""
    subgraph_tensors, call_tensors = (*graph.inputs, *graph.outputs), (*op.inputs, *op.outputs)
    if len(graph.inputs) != len(op.inputs) or len(graph.outputs) != len(op.outputs):
        return None
    pairs = {}
    for subgraph_tensor, call_tensor in zip(subgraph_tensors, call_tensors, strict=True):
        if call_tensor is None or not _are_equivalent(subgraph_tensor, call_tensor):
            return None
        pairs[subgraph_tensor] = call_tensor
    return pairs


def _are_equivalent(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.dims, a.quantization) == (b.dtype, b.dims, b.quantization) and not b.is_variable
