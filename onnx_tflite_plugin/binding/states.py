"""Which operators read and write which state: known before anything is planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx_tflite_plugin.binding.bound import Bound, BoundGraph, BoundModel
from onnx_tflite_plugin.source.model import Tensor


def users(graph: BoundGraph) -> Iterator[tuple[str | None, Bound]]:
    """(key of the state, operator) for every operator of a subgraph that reads or writes one.

    A resource is followed to the operator of its own subgraph that names it; one that comes from elsewhere has no key,
    and could be any state.
    """
    names: dict[Tensor, str] = {}
    for bound in graph.operators:
        effects, state = bound.declared.effects, bound.declared.state
        if effects is None:
            continue
        if state is not None and bound.op.tensor(~0) is not None:
            names[bound.op[~0]] = state
        for slot in (*effects.reads, *effects.writes):
            yield names.get(bound.op[slot]), bound


States = tuple[Mapping[str, tuple[Bound, ...]], bool]
"""The users of each state by its key, and whether these are all that there are."""


def by_key(model: BoundModel) -> States:
    """The users of each state, and whether these are all that there are.

    They are not where a resource comes from elsewhere, nor in a file with several entries: what one leaves another reads.
    """
    groups: dict[str, list[Bound]] = {}
    complete = len({signature.subgraph for signature in model.source.signatures}) <= 1
    for graph in model.graphs:
        for key, bound in users(graph):
            complete &= key is not None
            groups.setdefault(key or "", []).append(bound)
    return {key: tuple(group) for key, group in groups.items()}, complete


def held(bound: Bound) -> Tensor:
    """What a reader gives or a writer takes: the tensor that is no resource."""
    return bound.op[held_slot(bound)]


def held_slot(bound: Bound) -> int:
    """Its slot. Raises LookupError for an operator of nothing but resources."""
    slots: list[int] = [*(~k for k in range(len(bound.op.outputs))), *range(len(bound.op.inputs))]
    for slot in slots:
        tensor = bound.op.tensor(slot)
        if tensor is not None and tensor.dtype != "resource":
            return slot
    raise LookupError(f"{bound.label} holds nothing but resources")
