"""Operators that hold the same state, which must agree on its layout."""

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
    """Return the users of each state, and the operators with the file's layout.

    All states keep the file's layout if some user of a state is unknown. A single state keeps it if its shape differs
    between its users, or if ``keeps_source_layout`` is true for one of its tensors.
    """
    groups, complete = users_by_key(model)
    shared_groups = {
        key: group
        for key, group in groups.items()
        if complete
        and len({_slot_sizes(constraints[bound]) for bound in group}) == 1
        and not any(keeps_source_layout(state_tensor(bound)) for bound in group)
    }
    shared_users = {bound for group in shared_groups.values() for bound in group}
    users = {bound for group in groups.values() for bound in group}
    return shared_groups, frozenset(users - shared_users)


def _slot_sizes(constraint: LayoutConstraint) -> object:
    """Return a key that is equal for users of a state with equal axis sizes."""
    if constraint.shared_axes is None:
        return id(constraint)
    return tuple(tuple(slot.sizes.items()) for slot in constraint.shared_axes.slots.values())
