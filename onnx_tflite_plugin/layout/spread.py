"""The orders an operator may work in: those that its neighbours make or want, from the slots whose order is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.layout.borders import Border, by_tensor
from onnx_tflite_plugin.layout.candidates import Freedom, slots_of
from onnx_tflite_plugin.layout.frame import FrameOrder
from onnx_tflite_plugin.layout.order import Order, perm_of, permuted, source_order
from onnx_tflite_plugin.source.model import Tensor

MOST_CANDIDATES = 12  # orders per operator; attention's renamings would multiply without a bound


class Edges(NamedTuple):
    """What is asked of graph inputs and outputs: fixed orders by tensor, and tensors free to follow the plan."""

    fixed: Mapping[Tensor, Order]
    free: frozenset[Tensor] = frozenset()


def spread(
    model: BoundModel,
    freedoms: Mapping[Bound, Freedom],
    together: Mapping[Bound, Bound],
    edges: Edges,
    local: bool,
    price: Callable[[Freedom, FrameOrder], int],
    crossed: Sequence[Border] = (),
) -> tuple[dict[Bound, list[FrameOrder]], dict[Tensor, list[Order]]]:
    """Frame orders per flexible operator, and orders per free graph edge, spread from the slots whose order is given.

    What no order reaches works in the file's order, and so may what costs extra in an order that does. Operators that
    hold one state choose ``together``, under the first of them; ``crossed`` borders are given the orders that they may have.
    Label 0, which wins a tie, shows units in all slots or none, and is else the file's order where that is a candidate.
    """
    flexible = [b for b in model.operators() if freedoms[b].frame is not None and together.get(b, b) is b]
    candidates: dict[Bound, list[FrameOrder]] = {bound: [*freedoms[bound].given] for bound in flexible}
    users: dict[Tensor, list[tuple[Bound, int]]] = {}
    for bound in model.operators():
        for slot in slots_of(bound):
            users.setdefault(bound.op[slot], []).append((bound, slot))
    offered = {tensor: [source_order(tensor.dims)] for tensor in edges.free}
    members: dict[Bound, list[Bound]] = {}
    for bound, first in together.items():
        members.setdefault(first, []).append(bound)
    reach = _Spread(freedoms, candidates, users, offered, together, members, by_tensor(crossed), set())
    if not local:
        for bound in model.operators():
            free = freedoms[bound]
            if free.frame is None:
                for slot in slots_of(bound):
                    reach.offer(bound.op[slot], free.order(slot))
            for given in free.given:
                reach.show(bound, given)
        for tensor, order in edges.fixed.items():
            reach.offer(tensor, order)
    for bound in flexible:
        frame = freedoms[bound].frame
        if frame is not None and (
            not candidates[bound] or any(price(freedoms[bound], order) for order in candidates[bound])
        ):
            reach.take(bound, frame.source)
    for bound, orders in candidates.items():
        frame = freedoms[bound].frame
        if frame is not None and not freedoms[bound].given:
            orders.sort(key=lambda order, frame=frame: (frame.uneven(order), order != frame.source))  # type: ignore[misc]
    return candidates, offered


class _Spread(NamedTuple):
    freedoms: Mapping[Bound, Freedom]
    candidates: dict[Bound, list[FrameOrder]]
    users: Mapping[Tensor, Sequence[tuple[Bound, int]]]
    offered: dict[Tensor, list[Order]]
    together: Mapping[Bound, Bound]
    members: Mapping[Bound, Sequence[Bound]]
    borders: Mapping[Tensor, Sequence[Border]]
    told: set[tuple[Tensor, Order]]

    def offer(self, tensor: Tensor, order: Order) -> None:
        """Somebody makes or wants ``tensor`` in this order: its flexible users may work in it."""
        waiting = [(tensor, order)]
        while waiting:
            tensor, order = waiting.pop()
            if tensor.constant or (tensor, order) in self.told:
                continue
            self.told.add((tensor, order))  # its users never take later what they do not take now
            seen = self.offered.get(tensor)
            if seen is not None and order not in seen and sorted(perm_of(order) or ()) == list(range(tensor.rank)):
                seen.append(order)
            for border in self.borders.get(tensor, ()):
                waiting.extend(self._cross(border, tuple(perm_of(order) or ())))
            for bound, slot in self.users.get(tensor, ()):
                frame = self.freedoms[bound].frame
                if frame is not None and slot in frame.slots:
                    wanted = frame.to_frame(order, slot)
                    if wanted is not None:
                        waiting.extend(self._add(bound, wanted))

    def _cross(self, border: Border, perm: tuple[int, ...]) -> list[tuple[Tensor, Order]]:
        """An order on one side of a border is one on the other side."""
        if perm in border.perms or len(border.perms) >= MOST_CANDIDATES or sorted(perm) != [*border.perms[0]]:
            return []
        border.perms.append(perm)
        return [(tensor, permuted(tensor.dims, perm)) for tensor in border.tensors]

    def show(self, bound: Bound, order: FrameOrder) -> None:
        frame = self.freedoms[bound].frame
        if frame is None:
            return
        for slot in frame.slots:
            shown = frame.to_slot(order, slot)
            if shown is not None:
                self.offer(bound.op[slot], shown)

    def take(self, bound: Bound, order: FrameOrder) -> None:
        for tensor, shown in self._add(bound, order):
            self.offer(tensor, shown)

    def _add(self, bound: Bound, order: FrameOrder) -> list[tuple[Tensor, Order]]:
        first = self.together.get(bound, bound)
        orders = self.candidates[first]
        alike = [self.freedoms[member] for member in self.members.get(first, (first,))]
        if order in orders or len(orders) >= MOST_CANDIDATES or not all(free.admits(order) for free in alike):
            return []
        orders.append(order)
        frames = [(free.bound.op, free.frame) for free in alike if free.frame is not None]
        shown = [(op[slot], frame.to_slot(order, slot)) for op, frame in frames for slot in frame.slots]
        return [(tensor, seen) for tensor, seen in shown if seen is not None]
