"""Which operators hold the same state: they must agree on its order, and may choose it together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import by_key, held
from onnx_tflite_plugin.layout.candidates import Freedom
from onnx_tflite_plugin.source.model import Tensor

Groups = Mapping[str, tuple[Bound, ...]]


def state_groups(
    model: BoundModel, freedoms: Mapping[Bound, Freedom], stays: Callable[[Tensor], bool]
) -> tuple[Groups, frozenset[Bound]]:
    """Readers and writers per state key, and those to be kept in source order.

    Where not every user of a state is known all states stay in source order; likewise a state whose users see it in different
    shapes, and one of which anything ``stays``.
    """
    groups, complete = by_key(model)
    alike = {
        key: group
        for key, group in groups.items()
        if complete and len({_shape(freedoms[b]) for b in group}) == 1 and not any(stays(held(b)) for b in group)
    }
    together = {bound for group in alike.values() for bound in group}
    users = {bound for group in groups.values() for bound in group}
    return alike, frozenset(users - together)


def _shape(free: Freedom) -> object:
    """What the letters of an operator's frame measure, to compare users of one state."""
    if free.frame is None:
        return id(free)
    return tuple(tuple(slot.sizes.items()) for slot in free.frame.slots.values())
