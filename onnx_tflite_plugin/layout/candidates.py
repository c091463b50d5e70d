"""What each operator can be asked for: the frames of flexible operators, the fixed orders of the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.api.declarations import Attribute, Implicit, Layout, Terminate, Transparent
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.layout.frame import (
    AxesError,
    Frame,
    FrameOrder,
    Group,
    Part,
    RankError,
    make_frame,
    merged,
    parse_axes,
)
from onnx_tflite_plugin.layout.order import INSERTED, Atom, Order, count, permuted, source_order
from onnx_tflite_plugin.source.model import Operator


class Freedom(NamedTuple):
    """How one operator takes part in the plan.

    ``fixed``: orders of its slots where it has no choice; a slot absent there is in source order.
    ``frame``: the shared axes of a flexible operator, else ``None``. ``aligned``: the host aligns broadcast ranks.
    ``given``: the only orders it can work in, the best of equals first; empty where the frame admits any.
    """

    bound: Bound
    layout: Layout
    frame: Frame | None
    fixed: Mapping[int, Order]
    aligned: bool = False
    given: tuple[FrameOrder, ...] = ()

    def order(self, slot: int) -> Order:
        """The order of a slot that the frame does not have."""
        return self.fixed.get(slot) or source_order(self.bound.op[slot].dims)

    def admits(self, order: FrameOrder) -> bool:
        """Whether the operator can work in this frame order."""
        if self.frame is None or any(self.frame.to_slot(order, slot) is None for slot in self.frame.slots):
            return False
        if self.given:
            return order in self.given
        return not isinstance(self.layout, Terminate) or self._skeleton(order) == self._skeleton(self.frame.source)

    def _skeleton(self, order: FrameOrder) -> list[list[str]]:
        """Per slot, its letters with every run of unordered ones as one ``*``."""
        assert self.frame is not None
        rows = []
        for axes in self.frame.slots.values():
            letters = {letter for group in axes.groups for letter in group}
            row = ["*" if p.letter in self.frame.unordered else p.letter for p in order if p.letter in letters]
            rows.append([a for i, a in enumerate(row) if a != "*" or i == 0 or row[i - 1] != "*"])
        return rows


def slots_of(bound: Bound) -> list[int]:
    """The operands and results that are there."""
    op = bound.op
    slots = [*range(len(op.inputs)), *(~k for k in range(len(op.outputs)))]
    return [slot for slot in slots if op.tensor(slot) is not None]


def freedom(bound: Bound, flat: bool = False) -> Freedom:
    """Read a handler's declaration for one instance; ``flat``: squeezable axes of size 1 may be left out.

    Raises AxesError where it does not fit the operands.
    """
    op, layout, axes = bound.op, bound.declared.layout, bound.declared.axes
    if isinstance(layout, Implicit):
        if axes is None:
            raise AxesError("an Implicit layout needs axes")
        fixed = implicit_orders(op, layout, axes)
        return (_flattened(bound, layout, axes) if flat else None) or Freedom(bound, layout, None, fixed)
    if isinstance(layout, Terminate) and not layout.unordered:
        return Freedom(bound, layout, None, {})
    aligned = bound.declared.aligned
    if axes is None and not aligned:
        return Freedom(bound, layout, None, {})  # an instance whose axes cannot be followed
    groups = default_axes(bound) if axes is None else _declared_axes(op, axes)
    if aligned:
        _known_rank(op, groups)
    unordered = (
        "*"
        if isinstance(layout, Transparent)
        else layout.unordered
        if isinstance(layout, Attribute | Terminate)
        else ""
    )
    units = isinstance(layout, Transparent) and bound.declared.effects is None
    frame = make_frame({slot: (g, op[slot].dims) for slot, g in groups.items()}, unordered, units=units)
    return Freedom(bound, layout, frame, {}, aligned)


def _known_rank(op: Operator, groups: Collection[int]) -> None:
    """Old converters store ``[]`` for a result whose shape they did not know; broadcasting would have made a scalar."""
    rank = max((op[slot].rank for slot in groups if slot >= 0 and count(op[slot].dims) != 1), default=0)
    for tensor in op.outputs:
        if tensor is not None and tensor.rank == 0 < rank:
            raise RankError(f"the file stores no shape for {tensor.name!r}, made of operands of rank {rank}")


def _declared_axes(op: Operator, declared: str) -> dict[int, list[Group]]:
    """Groups per present slot. Trailing slots that the text leaves out are not laid out."""
    inputs, outputs = parse_axes(declared)
    slots = {k: g for k, g in enumerate(inputs) if g is not None and op.tensor(k) is not None}
    return slots | {~k: g for k, g in enumerate(outputs) if g is not None and op.tensor(~k) is not None}


def default_axes(bound: Bound) -> dict[int, list[Group]]:
    """All operands that hold data, aligned from the right."""
    op, declared = bound.op, bound.declared
    apart = {*declared.holds_axes, *declared.requires_constant, *declared.indexed_by_axis}
    slots = [*range(len(op.inputs)), *(~k for k in range(len(op.outputs)))]
    return {slot: [("...",)] for slot in slots if slot not in apart and op.tensor(slot) is not None}


def implicit_orders(op: Operator, layout: Implicit, declared: str) -> dict[int, Order]:
    """The order each slot must have for the ONNX operator."""
    letters = _implicit_letters(op, layout, declared)
    optional = {letter for unit in layout.squeezable for letter in unit.split()}
    orders: dict[int, Order] = {}
    for slot, own in letters.items():
        wanted = layout.onnx[slot].split()
        if len(wanted) != len({*wanted}) or not {*own} <= {*wanted} <= {*own} | optional:
            raise AxesError(f"slot {slot}: {layout.onnx[slot]!r} does not reorder the axes declared in {declared!r}")
        sizes = dict(zip(own, op[slot].dims, strict=True))
        orders[slot] = tuple(
            Atom(own.index(letter), 1, sizes[letter]) if letter in sizes else Atom(INSERTED, 1, 1) for letter in wanted
        )
    perm = [atom.axis for atom in orders.get(0, ())]
    for k, tensor in enumerate(op.outputs):
        if tensor is not None and ~k not in orders and sorted(perm) == list(range(tensor.rank)):
            orders[~k] = permuted(tensor.dims, perm)
    return orders


def _implicit_letters(op: Operator, layout: Implicit, declared: str) -> dict[int, list[str]]:
    """The letter of each axis, per slot that has an order of its own; an axis spelled 1 has none."""
    inputs, outputs = parse_axes(declared)
    spelled = {**dict(enumerate(inputs)), **{~k: g for k, g in enumerate(outputs)}}
    present = [slot for slot in layout.onnx if op.tensor(slot) is not None]
    letters = {slot: ["".join(group) for group in spelled.get(slot) or ()] for slot in present}
    for slot, of in letters.items():
        if len(of) != op[slot].rank:
            raise RankError(f"slot {slot}: axes {' '.join(of)!r} do not fit a tensor of rank {op[slot].rank}")
    return letters


def _flattened(bound: Bound, layout: Implicit, declared: str) -> Freedom | None:
    """An operator with squeezable axes of size 1, free to be one of a dimension less; ``None`` for any other.

    The letters of such axes are one here. First comes what is better: an image of a single position stays an image.
    """
    letters = _implicit_letters(bound.op, layout, declared)
    dims = {slot: dict(zip(own, bound.op[slot].dims, strict=True)) for slot, own in letters.items()}
    flat = [
        unit.split()
        for unit in layout.squeezable
        if all(sizes.get(a, 1) == 1 for a in unit.split() for sizes in dims.values())
    ]
    one = {letter: unit[0] for unit in flat for letter in unit}
    slots = {slot: ([(one.get(a, a),) for a in own], bound.op[slot].dims) for slot, own in letters.items()}
    frame = make_frame(slots, "")
    if not flat or frame is None:
        return None
    units = frozenset(one.values())
    rows = [[one.get(a, a) for a in layout.onnx[slot].split()] for slot in letters]
    image = tuple(Part(a, size=1 if a in units else None) for a in merged(rows))
    squeezed = [tuple(part for part in image if part.letter != unit) for unit in sorted(units)]
    given = (*squeezed, image) if len(flat) < len(layout.squeezable) else (image, *squeezed)
    return Freedom(bound, layout, replace(frame, units=units), {}, given=given)
