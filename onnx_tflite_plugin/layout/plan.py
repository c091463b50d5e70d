"""Layout plan: one layout per operator slot, at minimum cost.

It is chosen before anything is emitted. Variables are operators, tensors are wires (:mod:`.solver`). A tensor consumed
in another layout than its producer's costs its bytes and a constant, once per layout; layouts that differ only in axes
of size 1 cost a small constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.api.layouts import AxisPrice
from onnx_tflite_plugin.api.notation import AxesError
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, HandlerError, InvalidModel, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, definition
from onnx_tflite_plugin.layout import labeling, solver
from onnx_tflite_plugin.layout.boundaries import Place, boundary_values, execution_counts, tensor_at
from onnx_tflite_plugin.layout.constraints import LayoutConstraint, layout_constraint, present_slots
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts, propagate_layouts
from onnx_tflite_plugin.layout.shared_axes import OperatorLayout, RankError
from onnx_tflite_plugin.layout.states import state_groups
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    axis_set,
    drop_unit_axes,
    element_count,
    layout_axes,
    layout_of_permutation,
    source_layout,
)
from onnx_tflite_plugin.source.dtypes import bits
from onnx_tflite_plugin.source.model import Tensor

TRANSPOSE_COST = 4096  # bytes: overhead of starting a Transpose (8 kB per microsecond)
RESHAPE_COST = 256  # bytes: a Reshape that moves or removes an axis of size 1

TensorBytes = Callable[[Tensor], int]
OperatorPrice = Callable[[AxisPrice, bool, int], int]
CanSqueeze = Callable[[Bound], bool]
KeepsSourceLayout = Callable[[Tensor], bool]


class PlannedTranspose(NamedTuple):
    """A transpose in the plan, of one tensor between two layouts."""

    tensor: Tensor
    start: TensorLayout
    end: TensorLayout
    bytes: int
    producer: str
    consumers: tuple[str, ...]


class LayoutPlan(NamedTuple):
    """Layouts per operator slot and per graph input and output.

    ``exact``: the cost is proven minimal. ``chosen_for_speed``: operators for which the plan transposes more bytes than
    the minimum, with the saved time in byte equivalents. ``differences``: the number of operators, graph inputs and
    outputs, and boundary values that may have another layout than in a local plan; if it is 0 both plans are the same.
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
    out squeezable axes of size 1, where that costs nothing. ``keeps_source_layout``: predicate of tensors; a state that
    holds one keeps the file's layout. Raises HandlerError if a handler's axes do not fit its operands.
    """
    constraints = _layout_constraints(model, can_squeeze)
    groups, pinned = state_groups(model, constraints, keeps_source_layout)
    constraints |= {bound: LayoutConstraint(bound, constraints[bound].declaration, None, {}) for bound in pinned}
    representatives = {bound: group[0] for group in groups.values() for bound in group}

    def price(constraint: LayoutConstraint, layout: OperatorLayout) -> int:
        return _layout_cost(constraint, layout, prices, bytes_of)

    boundaries = boundary_values(model)
    candidates, interface_candidates = propagate_layouts(
        model, constraints, representatives, interface, local, price, boundaries
    )
    flexible = list(candidates)
    label_costs = [tuple(price(constraints[bound], layout) for layout in candidates[bound]) for bound in flexible]
    free_tensors = sorted(interface_candidates, key=lambda tensor: (tensor.subgraph, tensor.index))
    label_costs += [(0,) * len(interface_candidates[tensor]) for tensor in free_tensors]
    first_boundary = len(label_costs)
    label_costs += [(0,) * len(boundary.perms) for boundary in boundaries]
    boundary_endpoints = {
        place: _Endpoint(
            first_boundary + k,
            [layout_of_permutation(tensor_at(place).dims, perm) for perm in boundary.perms],
            "boundary",
        )
        for k, boundary in enumerate(boundaries)
        for place in boundary.places
    }
    endpoints = _Endpoints(
        constraints,
        candidates,
        {bound: i for i, bound in enumerate(flexible)},
        representatives,
        {
            tensor: _Endpoint(len(flexible) + i, interface_candidates[tensor], "graph input or output")
            for i, tensor in enumerate(free_tensors)
        },
        interface,
        boundary_endpoints,
    )
    dataflow_edges = list(_edges(model, endpoints))
    wires = tuple(wire for edge in dataflow_edges for wire in edge.wires(bytes_of))
    solution = solver.solve(labeling.LabelingProblem(tuple(label_costs), wires))
    transposes = [transpose for edge in dataflow_edges for transpose in edge.transposes(solution.labels, bytes_of)]
    chosen = {bound: candidates[bound][solution.labels[i]] for i, bound in enumerate(flexible)}
    chosen |= {bound: chosen[representative] for bound, representative in representatives.items()}
    return LayoutPlan(
        operator_layouts=chosen,
        slot_layouts=_slot_layouts(constraints, chosen)
        | {
            place: endpoint.layout(solution.labels)
            for place, endpoint in boundary_endpoints.items()
            if not isinstance(place, Tensor)
        },
        interface={
            **interface.fixed,
            **{tensor: endpoints.interface_endpoints[tensor].layout(solution.labels) for tensor in free_tensors},
            **{
                place: endpoint.layout(solution.labels)
                for place, endpoint in boundary_endpoints.items()
                if isinstance(place, Tensor)
            },
        },
        constraints=constraints,
        transposes=tuple(transposes),
        chosen_for_speed=_choices_for_speed(flexible, label_costs, wires, solution) if transposes else (),
        cost=solution.cost,
        exact=solution.exact and not local,
        method="local" if local else solution.method,
        differences=sum(_differs_from_local(constraints[bound], chosen[bound]) for bound in flexible)
        + sum(label > 0 for label in solution.labels[len(flexible) :]),
    )


def _differs_from_local(constraint: LayoutConstraint, layout: OperatorLayout) -> bool:
    """True if a local plan may use another layout.

    A local plan uses the first allowed layout, or the file's.
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

    It is attributed to the file if the ranks differ from those of a built-in handler.
    """
    if isinstance(error, RankError) and bound.pack == BUILTIN:
        return Contradiction(bound.label, str(error), "the operands do not have the axes that the operator requires")
    declaration = f"the declaration of {bound.handler.name} in {bound.pack}"
    if bound.pack == BUILTIN:
        return Problem(bound.label, str(error), declaration)
    axes = repr(bound.declared.axes)
    shown = "" if axes in str(error) else f", axes={axes}"
    source = bound.handler.axes if callable(bound.handler.axes) else bound.handler.lower
    declared = f"{declaration}{shown}, at {definition(source)}"
    remedy = "; write a letter for each axis, or ... for any number of them" if isinstance(error, RankError) else ""
    return Failed(bound.pack, f"{error}{remedy} ({declared})").problem(bound.label)


def _layout_cost(
    constraint: LayoutConstraint, layout: OperatorLayout, prices: OperatorPrice, bytes_of: TensorBytes
) -> int:
    """Return the cost of the operator in this layout, without transposes."""
    price = constraint.bound.declared.axis_price
    if price is None or constraint.shared_axes is None or price.slot not in constraint.shared_axes.slots:
        return 0
    letters = set(price.letters.split())
    sizes = constraint.shared_axes.slots[price.slot].sizes
    sized_letters = [part.letter for part in layout if sizes.get(part.letter, 1) != 1]
    innermost = sized_letters[len(sized_letters) - len(letters & set(sized_letters)) :]
    return prices(price, set(innermost) <= letters, bytes_of(constraint.bound.op[price.slot]))


def _slot_layouts(
    constraints: Mapping[Bound, LayoutConstraint], chosen: Mapping[Bound, OperatorLayout]
) -> dict[tuple[Bound, int], TensorLayout]:
    """Return the layout of each operator slot for the chosen operator layouts."""
    layouts: dict[tuple[Bound, int], TensorLayout] = {}
    for bound, constraint in constraints.items():
        if constraint.shared_axes is None:
            layouts.update({(bound, slot): layout for slot, layout in constraint.fixed.items()})
            continue
        for slot in constraint.shared_axes.slots:
            slot_layout = constraint.shared_axes.slot_layout(chosen[bound], slot)
            assert slot_layout is not None, bound.label
            layouts[bound, slot] = slot_layout
    return layouts


# --- wires ------------------------------------------------------------------------------------


class _Endpoint(NamedTuple):
    """One use of a tensor.

    ``variable``: the solver's variable of the operator, None if the layout is fixed. ``layouts``: the candidates.
    ``label``: the name in the report.
    """

    variable: int | None
    layouts: Sequence[TensorLayout]
    label: str

    def pin(self, numbers: Mapping[TensorLayout, int]) -> labeling.Pin:
        """Return the solver's pin, with one key per candidate layout."""
        return labeling.Pin(self.variable, tuple(numbers[layout] for layout in self.layouts))

    def layout(self, labels: Sequence[int]) -> TensorLayout:
        """Return the layout under the solver's labels."""
        return self.layouts[0 if self.variable is None else labels[self.variable]]


class _Edge(NamedTuple):
    """A tensor with its producer and its consumers.

    ``executions``: the estimated number of executions of its subgraph.
    """

    tensor: Tensor
    producer: _Endpoint
    consumers: Sequence[_Endpoint]
    executions: int = 1

    def wires(self, bytes_of: TensorBytes) -> Iterable[labeling.Wire]:
        """Yield the solver's wires of the edge.

        There is one for transposes, and one or two for reshapes of unit axes.
        """
        keys: list[tuple[int, Callable[[TensorLayout], object]]] = [
            (bytes_of(self.tensor) + TRANSPOSE_COST, drop_unit_axes),
            (RESHAPE_COST, layout_axes),
        ]
        layouts = dict.fromkeys(layout for end in (self.producer, *self.consumers) for layout in end.layouts)
        if len({*map(axis_set, layouts)}) > 1:
            keys.append((RESHAPE_COST, axis_set))
        for weight, key in keys:
            numbers = _number_by_key(layouts, key)
            consumers = tuple(consumer.pin(numbers) for consumer in self.consumers)
            yield labeling.Wire(weight * self.executions, self.producer.pin(numbers), consumers)

    def transposes(self, labels: Sequence[int], bytes_of: TensorBytes) -> Iterable[PlannedTranspose]:
        """Yield the transposes that the labels require.

        There is one per layout that differs from the producer's.
        """
        start = self.producer.layout(labels)
        consumers_by_layout: dict[TensorLayout, list[_Endpoint]] = {}
        for consumer in self.consumers:
            layout = consumer.layout(labels)
            if drop_unit_axes(layout) != drop_unit_axes(start):
                consumers_by_layout.setdefault(drop_unit_axes(layout), []).append(consumer)
        for consumers in consumers_by_layout.values():
            labels_of_consumers = tuple(end.label for end in consumers)
            yield PlannedTranspose(
                self.tensor,
                start,
                consumers[0].layout(labels),
                bytes_of(self.tensor),
                self.producer.label,
                labels_of_consumers,
            )


def _number_by_key(layouts: Iterable[TensorLayout], key: Callable[[TensorLayout], object]) -> dict[TensorLayout, int]:
    """Return a number per layout, the same for equal keys.

    Numbers are faster to compare than keys.
    """
    numbers: dict[object, int] = {}
    return {layout: numbers.setdefault(key(layout), len(numbers)) for layout in layouts}


def _choices_for_speed(
    flexible: Sequence[Bound],
    label_costs: Sequence[Sequence[int]],
    wires: tuple[labeling.Wire, ...],
    solution: solver.Solution,
) -> tuple[tuple[str, int], ...]:
    """Return the operators that a plan of fewest transposes would make slower.

    Each has its saving, in byte equivalents.
    """
    if not any(map(any, label_costs)):
        return ()
    transposes_only = solver.solve(labeling.LabelingProblem(tuple((0,) * len(costs) for costs in label_costs), wires))
    savings = [
        costs[x] - costs[y] for costs, x, y in zip(label_costs, transposes_only.labels, solution.labels, strict=True)
    ]
    return tuple((bound.label, saving) for bound, saving in zip(flexible, savings, strict=False) if saving > 0)


class _Endpoints(NamedTuple):
    """Lookup of producers and consumers of tensors."""

    constraints: Mapping[Bound, LayoutConstraint]
    candidates: Mapping[Bound, Sequence[OperatorLayout]]
    variables: Mapping[Bound, int]
    representatives: Mapping[Bound, Bound]
    interface_endpoints: Mapping[Tensor, _Endpoint]
    interface: InterfaceLayouts
    boundaries: Mapping[Place, _Endpoint]

    def operator(self, bound: Bound, slot: int) -> _Endpoint:
        """Return the endpoint of an operator's slot."""
        boundary = self.boundaries.get((bound, slot))
        if boundary is not None:
            return boundary._replace(label=bound.label)
        constraint = self.constraints[bound]
        if constraint.shared_axes is None or slot not in constraint.shared_axes.slots:
            return _Endpoint(None, [constraint.layout(slot)], bound.label)
        representative = self.representatives.get(bound, bound)
        layouts = [constraint.shared_axes.slot_layout(layout, slot) for layout in self.candidates[representative]]
        return _Endpoint(
            self.variables[representative], [layout for layout in layouts if layout is not None], bound.label
        )

    def interface_endpoint(self, tensor: Tensor, label: str) -> _Endpoint:
        """Return the endpoint of a graph input or output."""
        endpoint = self.interface_endpoints.get(tensor) or self.boundaries.get(tensor)
        if endpoint is not None:
            return endpoint._replace(label=label)
        return _Endpoint(None, [self.interface.fixed.get(tensor) or source_layout(tensor.dims)], label)


def _edges(model: BoundModel, endpoints: _Endpoints) -> Iterable[_Edge]:
    """Yield the dataflow edges of all subgraphs."""
    executions = execution_counts(model)
    for graph in model.graphs:
        inputs = set(graph.inputs)
        producers: dict[Tensor, _Endpoint] = {}
        consumers: dict[Tensor, list[_Endpoint]] = {}
        for bound in graph.operators:
            for slot in present_slots(bound):
                tensor = bound.op[slot]
                if slot < 0:
                    producers[tensor] = endpoints.operator(bound, slot)
                elif not tensor.is_constant:
                    consumers.setdefault(tensor, []).append(endpoints.operator(bound, slot))
        # For an operator in isolation, the graph may have many inputs and outputs that the operator does not touch.
        for tensor in graph.outputs:
            if tensor in producers or tensor in inputs:
                consumers.setdefault(tensor, []).append(endpoints.interface_endpoint(tensor, "graph output"))
        for tensor, users in consumers.items():
            producer = producers.get(tensor)
            if producer is None and tensor in inputs:
                producer = endpoints.interface_endpoint(tensor, "graph input")
            if producer is not None:
                yield _Edge(tensor, producer, users, executions.get(graph.subgraph.index, 1))


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes that a transpose of the tensor moves.

    Dynamic sizes count as 1, elements of dynamic size as 4 bytes.
    """
    return element_count(tensor.dims) * (bits(tensor.dtype) or 32) // 8
