"""The layout plan: one order per operator slot, chosen at least cost before anything is emitted.

Variables are operators, tensors are wires (:mod:`.solver`). A tensor wanted in an order its producer does not make
costs its bytes and a constant, once per order; orders that differ only in axes of size 1 cost an epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Along
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, HandlerError, InvalidModel, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, definition
from onnx_tflite_plugin.layout import solver
from onnx_tflite_plugin.layout.borders import Place, borders, tensor_at, times
from onnx_tflite_plugin.layout.candidates import Freedom, freedom, slots_of
from onnx_tflite_plugin.layout.frame import AxesError, FrameOrder, RankError
from onnx_tflite_plugin.layout.order import Order, all_axes, axes, count, permuted, source_order, without_unit_axes
from onnx_tflite_plugin.layout.spread import Edges, spread
from onnx_tflite_plugin.layout.states import state_groups
from onnx_tflite_plugin.source.dtypes import bits
from onnx_tflite_plugin.source.model import Tensor

TRANSPOSE_COST = 4096  # bytes: what starting a Transpose costs (8 kB a microsecond)
FLIP_COST = 256  # bytes: a Reshape that moves an axis of size 1, or leaves it out

Bytes = Callable[[Tensor], int]
Prices = Callable[[Along, bool, int], int]
Flat = Callable[[Bound], bool]
Stays = Callable[[Tensor], bool]


class Copy(NamedTuple):
    """A transpose the plan pays for: the tensor, its two orders, bytes, and who makes and who wants it."""

    tensor: Tensor
    start: Order
    end: Order
    bytes: int
    producer: str
    consumers: tuple[str, ...]


class LayoutPlan(NamedTuple):
    """Orders per (operator, slot) and per graph input and output; what it costs, and whether that is provably least.

    ``bought``: operators for whose speed the plan is not the one of fewest bytes, with the byte equivalents each saves.
    ``moved``: how many operators, graph edges and borders of subgraphs may have another order than in a local plan; without
    any, both are the same.
    """

    frames: Mapping[Bound, FrameOrder]
    orders: Mapping[tuple[Bound, int], Order]
    edges: Mapping[Tensor, Order]
    freedoms: Mapping[Bound, Freedom]
    copies: tuple[Copy, ...]
    bought: tuple[tuple[str, int], ...]
    cost: int
    exact: bool
    method: str
    moved: int

    def order(self, bound: Bound, slot: int) -> Order:
        tensor = bound.op[slot]
        return self.orders.get((bound, slot)) or source_order(tensor.dims)

    def edge(self, tensor: Tensor) -> Order:
        return self.edges.get(tensor) or source_order(tensor.dims)


def plan_layout(
    model: BoundModel,
    *,
    bytes_of: Bytes,
    prices: Prices,
    edges: Edges,
    local: bool = False,
    flat: Flat = lambda bound: True,
    stays: Stays = lambda tensor: False,
) -> LayoutPlan:
    """The least-cost plan; with ``local`` every flexible operator keeps source order.

    ``flat``: whether an operator with squeezable axes may be one of a dimension less, and is where that costs nothing.
    ``stays``: whether a state that holds such a tensor keeps source order. Raises HandlerError where a handler's axes do not fit
    its operands.
    """
    freedoms = _freedoms(model, flat)
    groups, pinned = state_groups(model, freedoms, stays)
    freedoms |= {bound: Freedom(bound, freedoms[bound].layout, None, {}) for bound in pinned}
    together = {bound: group[0] for group in groups.values() for bound in group}

    def price(free: Freedom, order: FrameOrder) -> int:
        return _price(free, order, prices, bytes_of)

    crossed = borders(model)
    candidates, offered = spread(model, freedoms, together, edges, local, price, crossed)
    flexible = list(candidates)
    charges = [tuple(price(freedoms[b], order) for order in candidates[b]) for b in flexible]
    free = sorted(offered, key=lambda tensor: (tensor.subgraph, tensor.index))
    charges += [(0,) * len(offered[tensor]) for tensor in free]
    first = len(charges)
    charges += [(0,) * len(border.perms) for border in crossed]
    at = {
        place: _End(first + k, [permuted(tensor_at(place).dims, perm) for perm in border.perms], "border")
        for k, border in enumerate(crossed)
        for place in border.places
    }
    ends = _Ends(
        freedoms,
        candidates,
        {bound: i for i, bound in enumerate(flexible)},
        together,
        {tensor: _End(len(flexible) + i, offered[tensor], "graph edge") for i, tensor in enumerate(free)},
        edges,
        at,
    )
    joints = list(_joints(model, ends))
    wires = tuple(wire for joint in joints for wire in joint.wires(bytes_of))
    solution = solver.solve(solver.LabellingProblem(tuple(charges), wires))
    copies = [copy for joint in joints for copy in joint.copies(solution.labels, bytes_of)]
    chosen = {bound: candidates[bound][solution.labels[i]] for i, bound in enumerate(flexible)}
    chosen |= {bound: chosen[first] for bound, first in together.items()}
    return LayoutPlan(
        frames=chosen,
        orders=_orders(freedoms, chosen)
        | {place: end.order(solution.labels) for place, end in at.items() if not isinstance(place, Tensor)},
        edges={
            **edges.fixed,
            **{tensor: ends.free[tensor].order(solution.labels) for tensor in free},
            **{place: end.order(solution.labels) for place, end in at.items() if isinstance(place, Tensor)},
        },
        freedoms=freedoms,
        copies=tuple(copies),
        bought=_bought(flexible, charges, wires, solution) if copies else (),
        cost=solution.cost,
        exact=solution.exact and not local,
        method="local" if local else solution.method,
        moved=sum(_moved(freedoms[bound], chosen[bound]) for bound in flexible)
        + sum(label > 0 for label in solution.labels[len(flexible) :]),
    )


def _moved(free: Freedom, order: FrameOrder) -> bool:
    """Whether a local plan, in which an operator has what its handler gives or else the file's order, may have another."""
    return len(free.given) > 1 if free.given else free.frame is not None and order != free.frame.source


def _freedoms(model: BoundModel, flat: Flat) -> dict[Bound, Freedom]:
    freedoms: dict[Bound, Freedom] = {}
    problems = []
    for bound in model.operators():
        try:
            freedoms[bound] = freedom(bound, flat(bound))
        except (AxesError, LookupError) as error:
            problems.append(_misfit(bound, error))
    if problems and all(isinstance(problem, Contradiction) for problem in problems):
        raise InvalidModel(CONTRADICTION, problems)
    if problems:
        raise HandlerError("a handler's axes do not fit its operands:", problems)
    return freedoms


def _misfit(bound: Bound, error: Exception) -> Problem:
    if isinstance(error, RankError) and bound.pack == BUILTIN:
        return Contradiction(bound.label, str(error), "what the operator takes has other axes")
    whose = f"the declaration of {bound.handler.name} in {bound.pack}"
    if bound.pack == BUILTIN:
        return Problem(bound.label, str(error), whose)
    return Failed(bound.pack, f"{error} ({whose}, at {definition(bound.handler.lower)})").problem(bound.label)


def _price(free: Freedom, order: FrameOrder, prices: Prices, bytes_of: Bytes) -> int:
    """What working in this order costs the operator itself."""
    along = free.bound.declared.along
    if along is None or free.frame is None or along.slot not in free.frame.slots:
        return 0
    letters = set(along.letters.split())
    sizes = free.frame.slots[along.slot].sizes
    shown = [p.letter for p in order if sizes.get(p.letter, 1) != 1]
    innermost = shown[len(shown) - len(letters & set(shown)) :]
    return prices(along, set(innermost) <= letters, bytes_of(free.bound.op[along.slot]))


def _orders(freedoms: Mapping[Bound, Freedom], chosen: Mapping[Bound, FrameOrder]) -> dict[tuple[Bound, int], Order]:
    orders: dict[tuple[Bound, int], Order] = {}
    for bound, free in freedoms.items():
        if free.frame is None:
            orders.update({(bound, slot): order for slot, order in free.fixed.items()})
            continue
        for slot in free.frame.slots:
            shown = free.frame.to_slot(chosen[bound], slot)
            assert shown is not None, bound.label
            orders[bound, slot] = shown
    return orders


# --- wires ------------------------------------------------------------------------------------


class _End(NamedTuple):
    """One use of a tensor: the operator's variable, its possible orders, and its name for the report."""

    variable: int | None
    orders: Sequence[Order]
    label: str

    def pin(self, numbers: Mapping[Order, int]) -> solver.Pin:
        return solver.Pin(self.variable, tuple(numbers[order] for order in self.orders))

    def order(self, labels: Sequence[int]) -> Order:
        return self.orders[0 if self.variable is None else labels[self.variable]]


class _Joint(NamedTuple):
    """A tensor between its producer and its consumers; ``times``: how often it is made, as far as the plan counts."""

    tensor: Tensor
    producer: _End
    consumers: Sequence[_End]
    times: int = 1

    def wires(self, bytes_of: Bytes) -> Iterable[solver.Wire]:
        keys: list[tuple[int, Callable[[Order], object]]] = [
            (bytes_of(self.tensor) + TRANSPOSE_COST, without_unit_axes),
            (FLIP_COST, axes),
        ]
        orders = dict.fromkeys(order for end in (self.producer, *self.consumers) for order in end.orders)
        if len({*map(all_axes, orders)}) > 1:
            keys.append((FLIP_COST, all_axes))
        for weight, key in keys:
            numbers = _numbered(orders, key)
            consumers = tuple(consumer.pin(numbers) for consumer in self.consumers)
            yield solver.Wire(weight * self.times, self.producer.pin(numbers), consumers)

    def copies(self, labels: Sequence[int], bytes_of: Bytes) -> Iterable[Copy]:
        start = self.producer.order(labels)
        wanted: dict[Order, list[_End]] = {}
        for consumer in self.consumers:
            order = consumer.order(labels)
            if without_unit_axes(order) != without_unit_axes(start):
                wanted.setdefault(without_unit_axes(order), []).append(consumer)
        for ends in wanted.values():
            users = tuple(end.label for end in ends)
            yield Copy(self.tensor, start, ends[0].order(labels), bytes_of(self.tensor), self.producer.label, users)


def _numbered(orders: Iterable[Order], key: Callable[[Order], object]) -> dict[Order, int]:
    """A number for each order, the same where ``key`` is: numbers are compared faster than what they stand for."""
    numbers: dict[object, int] = {}
    return {order: numbers.setdefault(key(order), len(numbers)) for order in orders}


def _bought(
    flexible: Sequence[Bound],
    charges: Sequence[Sequence[int]],
    wires: tuple[solver.Wire, ...],
    solution: solver.Solution,
) -> tuple[tuple[str, int], ...]:
    """Operators that would work in a dearer order if only transposes counted, and what each saves by the plan."""
    if not any(map(any, charges)):
        return ()
    plain = solver.solve(solver.LabellingProblem(tuple((0,) * len(prices) for prices in charges), wires))
    saved = [prices[x] - prices[y] for prices, x, y in zip(charges, plain.labels, solution.labels, strict=True)]
    return tuple((bound.label, gain) for bound, gain in zip(flexible, saved, strict=False) if gain > 0)


class _Ends(NamedTuple):
    """Looks up who makes and who takes a tensor."""

    freedoms: Mapping[Bound, Freedom]
    candidates: Mapping[Bound, Sequence[FrameOrder]]
    number: Mapping[Bound, int]
    together: Mapping[Bound, Bound]
    free: Mapping[Tensor, _End]
    edges: Edges
    borders: Mapping[Place, _End]

    def operator(self, bound: Bound, slot: int) -> _End:
        border = self.borders.get((bound, slot))
        if border is not None:
            return border._replace(label=bound.label)
        freedom = self.freedoms[bound]
        if freedom.frame is None or slot not in freedom.frame.slots:
            return _End(None, [freedom.order(slot)], bound.label)
        first = self.together.get(bound, bound)
        shown = [freedom.frame.to_slot(order, slot) for order in self.candidates[first]]
        return _End(self.number[first], [order for order in shown if order is not None], bound.label)

    def edge(self, tensor: Tensor, label: str) -> _End:
        free = self.free.get(tensor) or self.borders.get(tensor)
        if free is not None:
            return free._replace(label=label)
        return _End(None, [self.edges.fixed.get(tensor) or source_order(tensor.dims)], label)


def _joints(model: BoundModel, ends: _Ends) -> Iterable[_Joint]:
    repeated = times(model)
    for graph in model.graphs:
        producers = {tensor: ends.edge(tensor, "graph input") for tensor in graph.inputs}
        consumers: dict[Tensor, list[_End]] = {}
        for bound in graph.operators:
            for slot in slots_of(bound):
                tensor = bound.op[slot]
                if slot < 0:
                    producers[tensor] = ends.operator(bound, slot)
                elif not tensor.constant:
                    consumers.setdefault(tensor, []).append(ends.operator(bound, slot))
        for tensor in graph.outputs:
            consumers.setdefault(tensor, []).append(ends.edge(tensor, "graph output"))
        for tensor, users in consumers.items():
            if tensor in producers:
                yield _Joint(tensor, producers[tensor], users, repeated.get(graph.subgraph.index, 1))


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes that a tensor moves; unknown sizes count as 1, and elements of unknown size as 4 bytes."""
    return count(tensor.dims) * (bits(tensor.dtype) or 32) // 8
