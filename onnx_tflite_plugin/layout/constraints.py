"""Layout constraints of operators.

A flexible operator has shared axes; any other operator has fixed layouts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from onnx_tflite_plugin.api.layouts import Attribute, Implicit, Layout, Terminate, Transparent
from onnx_tflite_plugin.api.notation import AxesError, Group, describe_wrong_order, letters_by_slot, parse_axes
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.layout.shared_axes import (
    LetterPart,
    OperatorLayout,
    RankError,
    SharedAxes,
    check_ranks,
    merge_letters,
    resolve_shared_axes,
)
from onnx_tflite_plugin.layout.tensor_layout import (
    INSERTED,
    AxisPart,
    TensorLayout,
    element_count,
    layout_of_permutation,
    source_layout,
)
from onnx_tflite_plugin.source.model import Operator


class LayoutConstraint(NamedTuple):
    """Layouts that one operator can work in.

    ``declaration``: the handler's declared layout. ``shared_axes``: the axes that a flexible operator's slots share;
    ``None`` for any other operator. ``fixed``: the required layouts of slots; other slots without shared axes keep the
    file's layout. ``aligned``: the host aligns the ranks of broadcast operands. ``allowed``: the layouts of a flexible
    operator, the preferred one first; empty if any layout of ``shared_axes`` is allowed.
    """

    bound: Bound
    declaration: Layout
    shared_axes: SharedAxes | None
    fixed: Mapping[int, TensorLayout]
    aligned: bool = False
    allowed: tuple[OperatorLayout, ...] = ()

    def layout(self, slot: int) -> TensorLayout:
        """Return the layout of a slot that has no shared axes."""
        return self.fixed.get(slot) or source_layout(self.bound.op[slot].dims)

    def is_allowed(self, layout: OperatorLayout) -> bool:
        """True if the operator can work in this layout."""
        if self.shared_axes is None or any(
            self.shared_axes.slot_layout(layout, slot) is None for slot in self.shared_axes.slots
        ):
            return False
        if self.allowed:
            return layout in self.allowed
        return not isinstance(self.declaration, Terminate) or self._ordered_letters(layout) == self._ordered_letters(
            self.shared_axes.source
        )

    def _ordered_letters(self, layout: OperatorLayout) -> list[list[str]]:
        """Return the letters of each slot, with ``*`` for a run of unordered letters."""
        assert self.shared_axes is not None
        ordered_by_slot = []
        for axes in self.shared_axes.slots.values():
            letters = {letter for group in axes.groups for letter in group}
            ordered = [
                "*" if p.letter in self.shared_axes.unordered else p.letter for p in layout if p.letter in letters
            ]
            ordered_by_slot.append(
                [letter for i, letter in enumerate(ordered) if letter != "*" or i == 0 or ordered[i - 1] != "*"]
            )
        return ordered_by_slot


def present_slots(bound: Bound) -> list[int]:
    """Return the slots of all operands and results that are present."""
    op = bound.op
    slots = [*range(len(op.inputs)), *(~k for k in range(len(op.outputs)))]
    return [slot for slot in slots if op.tensor(slot) is not None]


def layout_constraint(bound: Bound, squeeze: bool = False) -> LayoutConstraint:
    """Return the layout constraint that a handler declares for one operator.

    ``squeeze``: squeezable axes of size 1 may be left out. Raises AxesError if the declaration does not fit the
    operands.
    """
    op, declaration, axes = bound.op, bound.declared.layout, bound.declared.axes
    if isinstance(declaration, Implicit):
        if axes is None:
            raise AxesError("layout=Implicit requires axes=, such as axes='n h w c -> n h w c'")
        fixed = implicit_layouts(op, declaration, axes)
        squeezed = _squeeze_constraint(bound, declaration, axes) if squeeze else None
        return squeezed or LayoutConstraint(bound, declaration, None, fixed)
    if isinstance(declaration, Terminate) and not declaration.unordered:
        if axes is not None:
            check_ranks({slot: (groups, op[slot].dims) for slot, groups in _axis_groups(op, axes).items()})
        return LayoutConstraint(bound, declaration, None, {})
    aligned = bound.declared.aligned
    if axes is None and not aligned:
        return LayoutConstraint(bound, declaration, None, {})  # undeclared axes
    groups = default_axes(bound) if axes is None else _axis_groups(op, axes)
    if aligned:
        _check_result_ranks(op, groups)
    shared_axes = resolve_shared_axes(
        {slot: (slot_groups, op[slot].dims) for slot, slot_groups in groups.items()},
        _unordered_letters(declaration),
        every_unit=isinstance(declaration, Transparent) and bound.declared.effects is None,
    )
    return LayoutConstraint(bound, declaration, shared_axes, {}, aligned)


def _unordered_letters(declaration: Layout) -> str:
    """Return the declared unordered letters; ``*`` stands for all letters."""
    if isinstance(declaration, Transparent):
        return "*"
    return declaration.unordered if isinstance(declaration, Attribute | Terminate) else ""


def _check_result_ranks(op: Operator, groups: Collection[int]) -> None:
    """Raise RankError if a result has rank 0, but an operand has axes.

    Old converters store ``[]`` as the shape of a result if they do not know the shape.
    """
    rank = max((op[slot].rank for slot in groups if slot >= 0 and element_count(op[slot].dims) != 1), default=0)
    for tensor in op.outputs:
        if tensor is not None and tensor.rank == 0 < rank:
            raise RankError(f"the file stores no shape for {tensor.name!r}, the result of operands of rank {rank}")


def _axis_groups(op: Operator, axes: str) -> dict[int, Sequence[Group]]:
    """Return the declared axis groups of each present slot."""
    inputs, outputs = parse_axes(axes)
    slots = (*enumerate(inputs), *((~k, groups) for k, groups in enumerate(outputs)))
    return {slot: groups for slot, groups in slots if groups is not None and op.tensor(slot) is not None}


def default_axes(bound: Bound) -> dict[int, Sequence[Group]]:
    """Return the axis groups of all data operands and results, aligned from the right."""
    op, declared = bound.op, bound.declared
    excluded = {*declared.axis_number_slots, *declared.requires_constant, *declared.indexed_by_axis}
    slots = [*range(len(op.inputs)), *(~k for k in range(len(op.outputs)))]
    return {slot: [("...",)] for slot in slots if slot not in excluded and op.tensor(slot) is not None}


def implicit_layouts(op: Operator, declaration: Implicit, axes: str) -> dict[int, TensorLayout]:
    """Return the layout that the ONNX operator requires of each slot."""
    letters = _implicit_letters(op, declaration, axes)
    layouts: dict[int, TensorLayout] = {}
    for slot, slot_letters in letters.items():
        required = declaration.onnx[slot]
        if error := describe_wrong_order(slot, required, slot_letters, axes, declaration.squeezable):
            raise AxesError(error)
        sizes = dict(zip(slot_letters, op[slot].dims, strict=True))
        layouts[slot] = tuple(
            AxisPart(slot_letters.index(letter), 1, sizes[letter]) if letter in sizes else AxisPart(INSERTED, 1, 1)
            for letter in required.split()
        )
    perm = [part.axis for part in layouts.get(0, ())]
    for k, tensor in enumerate(op.outputs):
        if tensor is not None and ~k not in layouts and sorted(perm) == list(range(tensor.rank)):
            layouts[~k] = layout_of_permutation(tensor.dims, perm)
    return layouts


def _implicit_letters(op: Operator, declaration: Implicit, axes: str) -> dict[int, list[str]]:
    """Return the letters of the axes of each slot that has a required layout.

    An axis written as 1 has no letter.
    """
    declared_letters = letters_by_slot(axes)
    letters = {slot: declared_letters.get(slot, []) for slot in declaration.onnx if op.tensor(slot) is not None}
    for slot, slot_letters in letters.items():
        if "..." in slot_letters:
            raise AxesError(
                f"slot {slot}: layout=Implicit requires the layout {declaration.onnx[slot]!r}, but the axes "
                f"{' '.join(slot_letters)!r} do not name its letters; write the letter of each axis in place of '...'"
            )
        if len(slot_letters) != op[slot].rank:
            raise RankError(f"slot {slot}: axes {' '.join(slot_letters)!r} do not fit a tensor of rank {op[slot].rank}")
    return letters


def _squeeze_constraint(bound: Bound, declaration: Implicit, axes: str) -> LayoutConstraint | None:
    """Return a constraint that allows leaving out squeezable axes of size 1.

    Return ``None`` if there are no such axes. A squeezable axis may have several letters, such as ``h j y`` for the heights
    of image, kernel and result; all are mapped to the first. An image of one position preferably remains an image; an image
    of one row preferably becomes a sequence.
    """
    letters = _implicit_letters(bound.op, declaration, axes)
    sizes_by_slot = {
        slot: dict(zip(slot_letters, bound.op[slot].dims, strict=True)) for slot, slot_letters in letters.items()
    }
    unit_axes = [
        axis_letters.split()
        for axis_letters in declaration.squeezable
        if all(sizes.get(letter, 1) == 1 for letter in axis_letters.split() for sizes in sizes_by_slot.values())
    ]
    first_letter = {letter: axis_letters[0] for axis_letters in unit_axes for letter in axis_letters}
    slots = {
        slot: ([(first_letter.get(letter, letter),) for letter in slot_letters], bound.op[slot].dims)
        for slot, slot_letters in letters.items()
    }
    shared_axes = resolve_shared_axes(slots, "")
    if not unit_axes or shared_axes is None:
        return None
    units = frozenset(first_letter.values())
    onnx_letters = [[first_letter.get(letter, letter) for letter in declaration.onnx[slot].split()] for slot in letters]
    image = tuple(LetterPart(letter, size=1 if letter in units else None) for letter in merge_letters(onnx_letters))
    squeezed = [tuple(part for part in image if part.letter != unit) for unit in sorted(units)]
    is_one_position = len(unit_axes) == len(declaration.squeezable)
    allowed = (image, *squeezed) if is_one_position else (*squeezed, image)
    return LayoutConstraint(bound, declaration, replace(shared_axes, units=units), {}, allowed=allowed)
