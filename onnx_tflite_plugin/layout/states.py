"""Readers and writers of one state, which must agree on its layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import state_tensor, users_by_key
from onnx_tflite_plugin.layout.constraints import LayoutConstraint
from onnx_tflite_plugin.source.model import Tensor

Groups = Mapping[str, tuple[Bound, ...]]


def state_groups(
    model: BoundModel, constraints: Mapping[Bound, LayoutConstraint], keeps_source_layout: Callable[[Tensor], bool]
) -> tuple[Groups, frozenset[Bound]]:
    """Return the users of each state with a planned layout; users of other states.

    A state keeps the file's layout if its shape differs between users, or if ``keeps_source_layout`` is true for one of
    its tensors. If the users of some state are not all known, every state keeps the file's layout.
    """
    groups, is_complete = users_by_key(model)
    planned_groups = {
        key: group
        for key, group in groups.items()
        if is_complete
        and len({_slot_sizes(constraints[bound]) for bound in group}) == 1
        and not any(keeps_source_layout(state_tensor(bound)) for bound in group)
    }
    planned_users = {bound for group in planned_groups.values() for bound in group}
    users = {bound for group in groups.values() for bound in group}
    return planned_groups, frozenset(users - planned_users)


def _slot_sizes(constraint: LayoutConstraint) -> object:
    """Return a key that is equal for users of a state with equal axis sizes."""
    if constraint.shared_axes is None:
        return id(constraint)
    return tuple(tuple(slot.sizes.items()) for slot in constraint.shared_axes.slots.values())
