"""What each operator can be asked for: the frames of flexible operators, the fixed orders of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_tflite_plugin.api.declarations import Attribute, Implicit, Layout, Terminate, Transparent, resolve
from onnx_tflite_plugin.bound import Bound
from onnx_tflite_plugin.layout.frame import AxesError, Frame, FrameOrder, Group, make_frame, parse_axes
from onnx_tflite_plugin.layout.order import Order, count, permuted
from onnx_tflite_plugin.source.model import Operator


@dataclass(frozen=True, eq=False)
class Freedom:
    """How one operator takes part in the plan.

    ``fixed``: orders of its slots where it has no choice; a slot absent there is in source order.
    ``frame``: the shared axes of a flexible operator, else ``None``. ``aligned``: the host aligns broadcast ranks.
    """

    bound: Bound
    layout: Layout
    frame: Frame | None
    fixed: Mapping[int, Order]
    aligned: bool = False

    def admits(self, order: FrameOrder) -> bool:
        """Whether the operator can work in this frame order."""
        if self.frame is None or any(self.frame.to_slot(order, slot) is None for slot in self.frame.slots):
            return False
        return not isinstance(self.layout, Terminate) or self._skeleton(order) == self._skeleton(self.frame.source)

    def _skeleton(self, order: FrameOrder) -> list[list[str]]:
        """Per slot, its letters with every run of unordered ones as one ``*``."""
        assert self.frame is not None
        rows = []
        for axes in self.frame.slots.values():
            held = {letter for group in axes.groups for letter in group}
            row = ["*" if p.letter in self.frame.unordered else p.letter for p in order if p.letter in held]
            rows.append([a for i, a in enumerate(row) if a != "*" or i == 0 or row[i - 1] != "*"])
        return rows


def freedom(bound: Bound) -> Freedom:
    """Read a handler's declaration for one instance. Raises AxesError where it does not fit the operands."""
    op, handler = bound.op, bound.handler
    layout: Layout = resolve(handler.layout, op)
    declared: str | None = resolve(handler.axes, op)
    if isinstance(layout, Implicit):
        if declared is None:
            raise AxesError("an Implicit layout needs axes")
        return Freedom(bound, layout, None, implicit_orders(op, layout, declared))
    if isinstance(layout, Terminate) and not layout.unordered:
        return Freedom(bound, layout, None, {})
    aligned = declared is None and handler.axes is None
    if declared is None and handler.axes is not None:
        return Freedom(bound, layout, None, {})  # an instance whose axes cannot be followed
    if aligned:
        _known_rank(op)
    groups = _default_axes(bound) if declared is None else _declared_axes(op, declared)
    unordered = (
        "*"
        if isinstance(layout, Transparent)
        else layout.unordered
        if isinstance(layout, Attribute | Terminate)
        else ""
    )
    frame = make_frame({slot: (g, op[slot].dims) for slot, g in groups.items()}, unordered)
    return Freedom(bound, layout, frame, {}, aligned)


def _known_rank(op: Operator) -> None:
    """Old converters store ``[]`` for a result whose shape they did not know; broadcasting would have made a scalar."""
    rank = max((t.rank for t in op.inputs if t is not None and count(t.dims) != 1), default=0)
    for tensor in op.outputs:
        if tensor is not None and tensor.rank == 0 < rank:
            raise AxesError(f"the file stores no shape for {tensor.name!r}, made of operands of rank {rank}")


def _declared_axes(op: Operator, declared: str) -> dict[int, list[Group]]:
    """Groups per present slot. Trailing slots that the text leaves out are not laid out."""
    inputs, outputs = parse_axes(declared)
    slots = {k: g for k, g in enumerate(inputs) if g is not None and op.tensor(k) is not None}
    return slots | {~k: g for k, g in enumerate(outputs) if g is not None and op.tensor(~k) is not None}


def _default_axes(bound: Bound) -> dict[int, list[Group]]:
    """All operands that hold data, aligned from the right."""
    op, handler = bound.op, bound.handler
    apart = {*handler.holds_axes, *handler.requires_constant, *resolve(handler.indexed_by_axis, op)}
    slots = [*range(len(op.inputs)), *(~k for k in range(len(op.outputs)))]
    return {slot: [("...",)] for slot in slots if slot not in apart and op.tensor(slot) is not None}


def implicit_orders(op: Operator, layout: Implicit, declared: str) -> dict[int, Order]:
    """The order each slot must have for the ONNX operator."""
    inputs, outputs = parse_axes(declared)
    spelled = {**dict(enumerate(inputs)), **{~k: g for k, g in enumerate(outputs)}}
    orders: dict[int, Order] = {}
    for slot, text in layout.onnx.items():
        tensor, groups = op.tensor(slot), spelled.get(slot)
        if tensor is None:
            continue
        wanted = text.split()
        if groups is None or sorted(wanted) != sorted(g[0] for g in groups if g):
            raise AxesError(f"slot {slot}: {text!r} does not reorder the axes declared in {declared!r}")
        orders[slot] = permuted(tensor.dims, [groups.index((letter,)) for letter in wanted])
    perm = [atom.axis for atom in orders.get(0, ())]
    for k, tensor in enumerate(op.outputs):
        if tensor is not None and ~k not in orders and tensor.rank == len(perm):
            orders[~k] = permuted(tensor.dims, perm)
    return orders
