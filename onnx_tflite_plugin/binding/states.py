"""Readers and writers of each state, known before planning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from onnx_tflite_plugin.api import out
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.source.model import Tensor


def state_users(graph: BoundGraph) -> Iterator[tuple[str | None, Bound]]:
    """Yield (key of the state, operator) for every use of a state in a subgraph.

    The key is declared by the operator that creates the resource. The key is None if another subgraph creates the
    resource, because the resource may then be any state.
    """
    key_of: dict[Tensor, str] = {}
    for bound in graph.operators:
        effects, state_key = bound.declared.effects, bound.declared.state_key
        if effects is None:
            continue
        if state_key is not None and bound.op.tensor(out(0)) is not None:
            key_of[bound.op[out(0)]] = state_key
        for slot in (*effects.reads, *effects.writes):
            yield key_of.get(bound.op[slot]), bound


class StateUsers(NamedTuple):
    """Mapping of each state key to the operators that use the state.

    ``is_complete``: True if no other operators can use these states.
    """

    users: Mapping[str, tuple[Bound, ...]]
    is_complete: bool


def users_by_key(model: BoundModel) -> StateUsers:
    """Return the operators that use each state, and whether these lists are complete.

    The lists are incomplete if a subgraph uses a resource that another subgraph creates, or if the file has several
    signatures, which share states.
    """
    groups: dict[str, list[Bound]] = {}
    is_complete = len({signature.subgraph for signature in model.source.signatures}) <= 1
    for graph in model.graphs:
        for key, bound in state_users(graph):
            is_complete &= key is not None
            groups.setdefault(key or "", []).append(bound)
    return StateUsers({key: tuple(group) for key, group in groups.items()}, is_complete)


def state_tensor(bound: Bound) -> Tensor:
    """Return the tensor with the state's value: a result of a reader, or an operand."""
    return bound.op[state_slot(bound)]


def state_slot(bound: Bound) -> int:
    """Return the slot of the tensor with the state's value.

    Raises LookupError if all tensors of the operator are resources.
    """
    slots: list[int] = [*(~k for k in range(len(bound.op.outputs))), *range(len(bound.op.inputs))]
    for slot in slots:
        tensor = bound.op.tensor(slot)
        if tensor is not None and tensor.dtype != "resource":
            return slot
    raise LookupError(f"{bound.label} has only tensors of dtype resource")


def overwritten_variables(operators: Iterable[Bound]) -> frozenset[Tensor]:
    """Return the variable tensors that operators compute before they are read.

    Their value from the previous run is never used. Pass ``operators`` in the order of execution.
    """
    read, overwritten = set[Tensor](), set[Tensor]()
    for bound in operators:
        read.update(tensor for tensor in bound.op.inputs if tensor is not None and tensor.is_variable)
        computed = (tensor for tensor in bound.op.outputs if tensor is not None and tensor.is_variable)
        overwritten.update(tensor for tensor in computed if tensor not in read)
    return frozenset(overwritten)
