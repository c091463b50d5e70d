"""Readers and writers of each state, known before planning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.source.model import Tensor


def state_users(graph: BoundGraph) -> Iterator[tuple[str | None, Bound]]:
    """Yield (key of the state, operator) for every use of a state in a subgraph.

    A resource is traced to the operator of the same subgraph that names it. A resource from elsewhere has no key and
    may be any state.
    """
    key_of: dict[Tensor, str] = {}
    for bound in graph.operators:
        effects, state = bound.declared.effects, bound.declared.state
        if effects is None:
            continue
        if state is not None and bound.op.tensor(~0) is not None:
            key_of[bound.op[~0]] = state
        for slot in (*effects.reads, *effects.writes):
            yield key_of.get(bound.op[slot]), bound


States = tuple[Mapping[str, tuple[Bound, ...]], bool]
"""Users of each state by key, and True if these are all its users."""


def users_by_key(model: BoundModel) -> States:
    """Return the users of each state, and True if these are all its users.

    The value is False if a resource comes from elsewhere, or if the file has several signatures, which share states.
    """
    groups: dict[str, list[Bound]] = {}
    complete = len({signature.subgraph for signature in model.source.signatures}) <= 1
    for graph in model.graphs:
        for key, bound in state_users(graph):
            complete &= key is not None
            groups.setdefault(key or "", []).append(bound)
    return {key: tuple(group) for key, group in groups.items()}, complete


def state_tensor(bound: Bound) -> Tensor:
    """Return the tensor that a reader returns or a writer takes.

    The tensor is not a resource.
    """
    return bound.op[state_slot(bound)]


def state_slot(bound: Bound) -> int:
    """Return the slot of the state's tensor.

    Raises LookupError for an operator with only resources.
    """
    slots: list[int] = [*(~k for k in range(len(bound.op.outputs))), *range(len(bound.op.inputs))]
    for slot in slots:
        tensor = bound.op.tensor(slot)
        if tensor is not None and tensor.dtype != "resource":
            return slot
    raise LookupError(f"{bound.label} has only tensors of dtype resource")
