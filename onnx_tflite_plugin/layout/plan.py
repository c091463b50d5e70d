"""Layout plan: one layout per operator slot, at minimum cost.

The plan is chosen before anything is emitted. In the labeling problem (:mod:`.solver`), operators are variables and
tensors are wires. Each layout in which consumers read a tensor, other than the producer's, costs the tensor's bytes and a
constant; if the layouts differ only in axes of size 1, it costs only a small constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.api.layouts import AxisPrice
from onnx_tflite_plugin.api.notation import AxesError
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, HandlerError, InvalidModel, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, definition_location
from onnx_tflite_plugin.layout import labeling, solver
from onnx_tflite_plugin.layout.boundaries import BoundaryValue, Place, boundary_values, tensor_at
from onnx_tflite_plugin.layout.constraints import LayoutConstraint, layout_constraint
from onnx_tflite_plugin.layout.dataflow import Endpoint, EndpointLookup, PlannedTranspose, TensorBytes, dataflow_edges
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts, propagate_layouts
from onnx_tflite_plugin.layout.shared_axes import OperatorLayout, RankError
from onnx_tflite_plugin.layout.states import state_groups
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    layout_of_permutation,
    source_layout,
)
from onnx_tflite_plugin.source.model import Tensor

OperatorPrice = Callable[[AxisPrice, bool, int], int]
CanSqueeze = Callable[[Bound], bool]
KeepsSourceLayout = Callable[[Tensor], bool]


class LayoutPlan(NamedTuple):
    """Layouts per operator slot and per graph input and output.

    ``exact``: the cost is proven minimal. ``chosen_for_speed``: operators that a plan of fewest transposed bytes would
    make slower, with the saved time in byte equivalents. ``differences``: the number of operators, graph inputs and
    outputs, and boundary values whose layout may differ from the local plan (see ``plan_layout``). If it is 0, the plans are
    equal.
    """

    operator_layouts: Mapping[Bound, OperatorLayout]
    slot_layouts: Mapping[tuple[Bound, int], TensorLayout]
    interface: Mapping[Tensor, TensorLayout]
    constraints: Mapping[Bound, LayoutConstraint]
    transposes: tuple[PlannedTranspose, ...]
    chosen_for_speed: tuple[tuple[str, int], ...]
    cost: int
    exact: bool
    method: str
    differences: int

    def layout(self, bound: Bound, slot: int) -> TensorLayout:
        """Return the layout of an operator's slot."""
        tensor = bound.op[slot]
        return self.slot_layouts.get((bound, slot)) or source_layout(tensor.dims)

    def interface_layout(self, tensor: Tensor) -> TensorLayout:
        """Return the layout of a graph input or output."""
        return self.interface.get(tensor) or source_layout(tensor.dims)


def plan_layout(
    model: BoundModel,
    *,
    bytes_of: TensorBytes,
    prices: OperatorPrice,
    interface: InterfaceLayouts,
    local: bool = False,
    can_squeeze: CanSqueeze = lambda bound: True,
    keeps_source_layout: KeepsSourceLayout = lambda tensor: False,
) -> LayoutPlan:
    """Return the layout plan of minimum cost.

    ``local``: every flexible operator keeps the file's layout. ``can_squeeze``: predicate of operators that may leave
    out squeezable axes of size 1 at no cost. ``keeps_source_layout``: predicate of tensors whose state
    keeps the file's layout. Raises HandlerError if a handler's axes do not fit its operands.
    """
    constraints = _layout_constraints(model, can_squeeze)
    groups, fixed_users = state_groups(model, constraints, keeps_source_layout)
    constraints |= {bound: LayoutConstraint(bound, constraints[bound].declaration, None, {}) for bound in fixed_users}
    representatives = {bound: group[0] for group in groups.values() for bound in group}

    def price(constraint: LayoutConstraint, layout: OperatorLayout) -> int:
        return _layout_cost(constraint, layout, prices, bytes_of)

    boundaries = boundary_values(model)
    candidates, interface_candidates = propagate_layouts(
        model, constraints, representatives, interface, local, price, boundaries
    )
    flexible_operators = list(candidates)
    # The solver's variables are the flexible operators, then the free graph inputs and outputs, then the boundary values.
    endpoints = EndpointLookup(
        constraints,
        candidates,
        variables={bound: variable for variable, bound in enumerate(flexible_operators)},
        representatives=representatives,
        interface_endpoints=_interface_endpoints(interface_candidates, len(flexible_operators)),
        interface=interface,
        boundaries=_boundary_endpoints(boundaries, len(flexible_operators) + len(interface_candidates)),
    )
    edges = list(dataflow_edges(model, endpoints))
    problem = labeling.LabelingProblem(
        (
            *(tuple(price(constraints[bound], layout) for layout in candidates[bound]) for bound in flexible_operators),
            *((0,) * len(endpoint.layouts) for endpoint in endpoints.interface_endpoints.values()),
            *((0,) * len(boundary.perms) for boundary in boundaries),
        ),
        tuple(wire for edge in edges for wire in edge.wires(bytes_of)),
    )
    solution = solver.solve(problem)
    labels = solution.labels
    transposes = [transpose for edge in edges for transpose in edge.transposes(labels, bytes_of)]
    operator_layouts = {
        bound: candidates[bound][label] for bound, label in zip(flexible_operators, labels, strict=False)
    }
    operator_layouts |= {bound: operator_layouts[representative] for bound, representative in representatives.items()}
    interface_layouts = {tensor: endpoint.layout(labels) for tensor, endpoint in endpoints.interface_endpoints.items()}
    boundary_layouts = {place: endpoint.layout(labels) for place, endpoint in endpoints.boundaries.items()}
    return LayoutPlan(
        operator_layouts=operator_layouts,
        slot_layouts={
            **_slot_layouts(constraints, operator_layouts),
            **{place: layout for place, layout in boundary_layouts.items() if not isinstance(place, Tensor)},
        },
        interface={
            **interface.fixed,
            **interface_layouts,
            **{place: layout for place, layout in boundary_layouts.items() if isinstance(place, Tensor)},
        },
        constraints=constraints,
        transposes=tuple(transposes),
        chosen_for_speed=_choices_for_speed(flexible_operators, problem, solution) if transposes else (),
        cost=solution.cost,
        exact=solution.exact and not local,
        method="local" if local else solution.method,
        differences=sum(
            _differs_from_local(constraints[bound], operator_layouts[bound]) for bound in flexible_operators
        )
        + sum(label > 0 for label in labels[len(flexible_operators) :]),
    )


def _interface_endpoints(
    candidates: Mapping[Tensor, Sequence[TensorLayout]], first_variable: int
) -> dict[Tensor, Endpoint]:
    """Return the endpoints of free graph inputs and outputs, by increasing variable."""
    tensors = sorted(candidates, key=lambda tensor: (tensor.subgraph, tensor.index))
    return {
        tensor: Endpoint(variable, candidates[tensor], "graph input or output")
        for variable, tensor in enumerate(tensors, first_variable)
    }


def _boundary_endpoints(boundaries: Sequence[BoundaryValue], first_variable: int) -> dict[Place, Endpoint]:
    """Return the endpoint of each boundary value, at each place."""
    return {
        place: Endpoint(
            variable, [layout_of_permutation(tensor_at(place).dims, perm) for perm in boundary.perms], "boundary"
        )
        for variable, boundary in enumerate(boundaries, first_variable)
        for place in boundary.places
    }


def _differs_from_local(constraint: LayoutConstraint, layout: OperatorLayout) -> bool:
    """True if a local plan may use another layout.

    A local plan uses the first allowed layout, or the file's layout if every layout is allowed.
    """
    if constraint.allowed:
        return len(constraint.allowed) > 1
    return constraint.shared_axes is not None and layout != constraint.shared_axes.source


def _layout_constraints(model: BoundModel, can_squeeze: CanSqueeze) -> dict[Bound, LayoutConstraint]:
    """Return the constraint of each operator.

    Raises HandlerError or InvalidModel for axes that do not fit the operands.
    """
    constraints: dict[Bound, LayoutConstraint] = {}
    problems = []
    for bound in model.operators():
        try:
            constraints[bound] = layout_constraint(bound, can_squeeze(bound))
        except (AxesError, LookupError) as error:
            problems.append(_misfit_problem(bound, error))
    if problems and all(isinstance(problem, Contradiction) for problem in problems):
        raise InvalidModel(CONTRADICTION, problems)
    if problems:
        raise HandlerError("a handler's axes do not fit its operands:", problems)
    return constraints


def _misfit_problem(bound: Bound, error: Exception) -> Problem:
    """Return the problem of an operator whose declared axes do not fit its operands.

    A rank that a built-in handler does not declare is attributed to the file.
    """
    if isinstance(error, RankError) and bound.pack == BUILTIN:
        return Contradiction(bound.label, str(error), "the operands do not have the axes that the operator requires")
    declaration = f"the declaration of {bound.handler.name} in {bound.pack}"
    if bound.pack == BUILTIN:
        return Problem(bound.label, str(error), declaration)
    axes = repr(bound.declared.axes)
    axes_text = "" if axes in str(error) else f", axes={axes}"
    source = bound.handler.axes if callable(bound.handler.axes) else bound.handler.lower
    declared = f"{declaration}{axes_text}, at {definition_location(source)}"
    remedy = f"; {error.remedy}" if isinstance(error, RankError) else ""
    return Failed(bound.pack, f"{error}{remedy} ({declared})").problem(bound.label)


def _layout_cost(
    constraint: LayoutConstraint, layout: OperatorLayout, prices: OperatorPrice, bytes_of: TensorBytes
) -> int:
    """Return the operator's own cost in a layout, without transposes."""
    price = constraint.bound.declared.axis_price
    if price is None or constraint.shared_axes is None or price.slot not in constraint.shared_axes.slots:
        return 0
    letters = set(price.letters.split())
    sizes = constraint.shared_axes.slots[price.slot].sizes
    sized_letters = [part.letter for part in layout if sizes.get(part.letter, 1) != 1]
    innermost_letters = sized_letters[len(sized_letters) - len(letters & set(sized_letters)) :]
    is_innermost = set(innermost_letters) <= letters
    return prices(price, is_innermost, bytes_of(constraint.bound.op[price.slot]))


def _slot_layouts(
    constraints: Mapping[Bound, LayoutConstraint], operator_layouts: Mapping[Bound, OperatorLayout]
) -> dict[tuple[Bound, int], TensorLayout]:
    """Return the layout of each operator slot."""
    layouts: dict[tuple[Bound, int], TensorLayout] = {}
    for bound, constraint in constraints.items():
        if constraint.shared_axes is None:
            layouts.update({(bound, slot): layout for slot, layout in constraint.fixed.items()})
            continue
        for slot in constraint.shared_axes.slots:
            slot_layout = constraint.shared_axes.slot_layout(operator_layouts[bound], slot)
            assert slot_layout is not None, bound.label
            layouts[bound, slot] = slot_layout
    return layouts


def _choices_for_speed(
    flexible_operators: Sequence[Bound], problem: labeling.LabelingProblem, solution: solver.Solution
) -> tuple[tuple[str, int], ...]:
    """Return the operators that a plan of fewest transposes would make slower.

    Each operator comes with its saving, in byte equivalents.
    """
    if not any(map(any, problem.prices)):
        return ()
    without_prices = labeling.LabelingProblem(tuple((0,) * len(prices) for prices in problem.prices), problem.wires)
    fewest_transposes = solver.solve(without_prices)
    savings = [
        prices[fewest_label] - prices[label]
        for prices, fewest_label, label in zip(problem.prices, fewest_transposes.labels, solution.labels, strict=True)
    ]
    return tuple(
        (bound.label, saving) for bound, saving in zip(flexible_operators, savings, strict=False) if saving > 0
    )
