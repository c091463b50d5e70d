"""Candidate layouts of operators, propagated from the slots whose layout is fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.layout.boundaries import BoundaryValue, boundaries_by_tensor
from onnx_tflite_plugin.layout.constraints import LayoutConstraint, present_slots
from onnx_tflite_plugin.layout.shared_axes import OperatorLayout
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    layout_of_permutation,
    layout_permutation,
    source_layout,
)
from onnx_tflite_plugin.source.model import Tensor

MAX_CANDIDATES = 12  # heuristic: candidate layouts per operator; the transposes of attention would produce many more


class InterfaceLayouts(NamedTuple):
    """Layouts of graph inputs and outputs.

    ``fixed``: tensor -> layout. ``free``: tensors that may follow the plan.
    """

    fixed: Mapping[Tensor, TensorLayout]
    free: frozenset[Tensor] = frozenset()


def propagate_layouts(
    model: BoundModel,
    constraints: Mapping[Bound, LayoutConstraint],
    representatives: Mapping[Bound, Bound],
    interface: InterfaceLayouts,
    local: bool,
    price: Callable[[LayoutConstraint, OperatorLayout], int],
    boundaries: Sequence[BoundaryValue] = (),
) -> tuple[dict[Bound, list[OperatorLayout]], dict[Tensor, list[TensorLayout]]]:
    """Return candidate layouts of flexible operators and of free inputs and outputs.

    An operator that no layout reaches keeps the file's layout. The file's layout is also a candidate if any other candidate
    has an operator cost. All users of one state share the candidates of ``representatives[user]``. New permutations are
    appended to ``boundaries``. The solver prefers the first of several candidates of equal cost.
    """
    flexible_operators = [
        bound
        for bound in model.operators()
        if constraints[bound].shared_axes is not None and representatives.get(bound, bound) is bound
    ]
    candidates: dict[Bound, list[OperatorLayout]] = {
        bound: [*constraints[bound].allowed] for bound in flexible_operators
    }
    interface_candidates = {tensor: [source_layout(tensor.dims)] for tensor in interface.free}
    members: dict[Bound, list[Bound]] = {}
    for bound, representative in representatives.items():
        members.setdefault(representative, []).append(bound)
    propagation = _Propagation(
        constraints,
        candidates,
        _users_by_tensor(model),
        interface_candidates,
        representatives,
        members,
        boundaries=boundaries_by_tensor(boundaries),
        visited=set(),
    )
    if not local:
        propagation.propagate_fixed_layouts(model, interface)
    for bound in flexible_operators:
        shared_axes = constraints[bound].shared_axes
        if shared_axes is not None and (
            not candidates[bound] or any(price(constraints[bound], layout) for layout in candidates[bound])
        ):
            propagation.add_candidate(bound, shared_axes.source)
    sorted_candidates = {bound: _sort_candidates(constraints[bound], layouts) for bound, layouts in candidates.items()}
    return sorted_candidates, interface_candidates


def _users_by_tensor(model: BoundModel) -> dict[Tensor, list[tuple[Bound, int]]]:
    """Return the operators that read or compute each tensor, with their slots."""
    users: dict[Tensor, list[tuple[Bound, int]]] = {}
    for bound in model.operators():
        for slot in present_slots(bound):
            users.setdefault(bound.op[slot], []).append((bound, slot))
    return users


def _sort_candidates(constraint: LayoutConstraint, layouts: list[OperatorLayout]) -> list[OperatorLayout]:
    """Return the candidates, preferred ones first.

    Layouts with unit axes in all slots or in none are preferred, and among these the file's layout. The candidates of a
    constraint with ``allowed`` layouts are in order already.
    """
    axes = constraint.shared_axes
    if axes is None or constraint.allowed:
        return layouts
    return sorted(layouts, key=lambda layout: (axes.has_partial_unit(layout), layout != axes.source))


class _Propagation(NamedTuple):
    """State of the propagation.

    ``members``: the operators that each representative stands for. ``visited``: the propagated pairs (tensor, layout).
    """

    constraints: Mapping[Bound, LayoutConstraint]
    candidates: dict[Bound, list[OperatorLayout]]
    users: Mapping[Tensor, Sequence[tuple[Bound, int]]]
    interface_candidates: dict[Tensor, list[TensorLayout]]
    representatives: Mapping[Bound, Bound]
    members: Mapping[Bound, Sequence[Bound]]
    boundaries: Mapping[Tensor, Sequence[BoundaryValue]]
    visited: set[tuple[Tensor, TensorLayout]]

    def propagate_fixed_layouts(self, model: BoundModel, interface: InterfaceLayouts) -> None:
        """Propagate the layouts that operators and graph inputs and outputs require."""
        for bound in model.operators():
            constraint = self.constraints[bound]
            if constraint.shared_axes is None:
                for slot in present_slots(bound):
                    self.propagate_tensor(bound.op[slot], constraint.layout(slot))
            for allowed_layout in constraint.allowed:
                self.propagate_operator(bound, allowed_layout)
        for tensor, layout in interface.fixed.items():
            self.propagate_tensor(tensor, layout)

    def propagate_tensor(self, tensor: Tensor, layout: TensorLayout) -> None:
        """Propagate a layout of a tensor to the flexible operators that use the tensor."""
        pending = [(tensor, layout)]
        while pending:
            tensor, layout = pending.pop()
            if tensor.is_constant or (tensor, layout) in self.visited:
                continue
            self.visited.add((tensor, layout))  # an operator that rejects a layout always rejects it
            interface_layouts = self.interface_candidates.get(tensor)
            if (
                interface_layouts is not None
                and layout not in interface_layouts
                and sorted(layout_permutation(layout) or ()) == list(range(tensor.rank))
            ):
                interface_layouts.append(layout)
            for boundary in self.boundaries.get(tensor, ()):
                pending.extend(self._cross_boundary(boundary, tuple(layout_permutation(layout) or ())))
            for bound, slot in self.users.get(tensor, ()):
                shared_axes = self.constraints[bound].shared_axes
                if shared_axes is not None and slot in shared_axes.slots:
                    operator_layout = shared_axes.operator_layout(layout, slot)
                    if operator_layout is not None:
                        pending.extend(self._append_candidate(bound, operator_layout))

    def _cross_boundary(self, boundary: BoundaryValue, perm: tuple[int, ...]) -> list[tuple[Tensor, TensorLayout]]:
        """Add a permutation to a boundary value, and return its tensors in this layout.

        Return [] if the permutation is not new or cannot be added.
        """
        if perm in boundary.perms or len(boundary.perms) >= MAX_CANDIDATES or sorted(perm) != [*boundary.perms[0]]:
            return []
        boundary.perms.append(perm)
        return [(tensor, layout_of_permutation(tensor.dims, perm)) for tensor in boundary.tensors]

    def propagate_operator(self, bound: Bound, layout: OperatorLayout) -> None:
        """Propagate an operator's layout to all its slots."""
        shared_axes = self.constraints[bound].shared_axes
        if shared_axes is None:
            return
        for slot in shared_axes.slots:
            slot_layout = shared_axes.slot_layout(layout, slot)
            if slot_layout is not None:
                self.propagate_tensor(bound.op[slot], slot_layout)

    def add_candidate(self, bound: Bound, layout: OperatorLayout) -> None:
        """Add a candidate layout to an operator and propagate it."""
        for tensor, slot_layout in self._append_candidate(bound, layout):
            self.propagate_tensor(tensor, slot_layout)

    def _append_candidate(self, bound: Bound, layout: OperatorLayout) -> list[tuple[Tensor, TensorLayout]]:
        """Add a candidate that all users of the state allow; return slot layouts."""
        representative = self.representatives.get(bound, bound)
        layouts = self.candidates[representative]
        group = [self.constraints[member] for member in self.members.get(representative, (representative,))]
        if (
            layout in layouts
            or len(layouts) >= MAX_CANDIDATES
            or not all(constraint.is_allowed(layout) for constraint in group)
        ):
            return []
        layouts.append(layout)
        group_axes = [
            (constraint.bound.op, constraint.shared_axes) for constraint in group if constraint.shared_axes is not None
        ]
        slot_layouts = [
            (op[slot], shared_axes.slot_layout(layout, slot))
            for op, shared_axes in group_axes
            for slot in shared_axes.slots
        ]
        return [(tensor, slot_layout) for tensor, slot_layout in slot_layouts if slot_layout is not None]
