"""Which operators hold the same state: they must agree on its order, and may choose it together."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.layout.candidates import Freedom
from onnx_tflite_plugin.source.model import Tensor

Groups = Mapping[str, tuple[Bound, ...]]


def state_groups(model: BoundModel, freedoms: Mapping[Bound, Freedom]) -> tuple[Groups, frozenset[Bound]]:
    """Readers and writers per state key, and those to be kept in source order.

    A resource is followed to the operator of its own subgraph that names it. One that comes from elsewhere could be
    any state, so then all states stay in source order; likewise a state whose users see it in different shapes, and those of
    a file with several entries: what one leaves another reads.
    """
    groups: dict[str, list[Bound]] = {}
    users: list[Bound] = []
    unknown = len({signature.subgraph for signature in model.source.signatures}) > 1
    for graph in model.graphs:
        names: dict[Tensor, str] = {}
        for bound in graph.operators:
            effects, state = bound.declared.effects, bound.declared.state
            if effects is None:
                continue
            if state is not None and bound.op.tensor(~0) is not None:
                names[bound.op[~0]] = state
            for slot in (*effects.reads, *effects.writes):
                users.append(bound)
                key = names.get(bound.op[slot])
                unknown |= key is None
                groups.setdefault(key or "", []).append(bound)
    alike = {
        key: tuple(group)
        for key, group in groups.items()
        if not unknown and len({_shape(freedoms[b]) for b in group}) == 1
    }
    together = {bound for group in alike.values() for bound in group}
    return alike, frozenset(bound for bound in users if bound not in together)


def _shape(free: Freedom) -> object:
    """What the letters of an operator's frame measure, to compare users of one state."""
    if free.frame is None:
        return id(free)
    return tuple(tuple(slot.sizes.items()) for slot in free.frame.slots.values())
