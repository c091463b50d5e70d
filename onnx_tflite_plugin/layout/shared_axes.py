"""Axes that an operator's slots share.

The layout of an operator is converted to the layouts of its slots, and back. The methods ``slot_layout`` and
``operator_layout`` cover elementwise operators, reductions, slices, transposes, reshapes and squeezes, which differ
only in their axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.api.notation import AxesError, Group, suggest_spaces
from onnx_tflite_plugin.layout.tensor_layout import INSERTED, AxisPart, TensorLayout, coalesce, has_adjacent_parts
from onnx_tflite_plugin.source.model import Dims


class LetterPart(NamedTuple):
    """An axis letter, or a part of its axis.

    ``size``: ``None`` for the whole axis, 1 for a unit axis that is inserted in slots without it.
    """

    letter: str
    stride: int = 1
    size: int | None = None


OperatorLayout = tuple[LetterPart, ...]

UNIT = "unit "  # prefix of the letters of axes written as 1


RANK_REMEDY = "write a letter for each axis, or ... for any number of them"


class RankError(AxesError):
    """The rank of an operand differs from its declared axes.

    The file is at fault if the declaration fits other operators.
    """

    def __init__(self, text: str, remedy: str = RANK_REMEDY) -> None:
        super().__init__(text)
        self.remedy = remedy


class SlotAxes(NamedTuple):
    """The letters of each axis of a slot, and the size of each letter there."""

    groups: tuple[Group, ...]
    sizes: Mapping[str, int | None]

    def inner_size(self, axis: int, letter: str) -> int:
        """Return the number of elements per step of a letter: W for h in the axis (h w)."""
        group = self.groups[axis]
        return prod(self.sizes[inner] or 1 for inner in group[group.index(letter) + 1 :])


@dataclass(frozen=True)
class SharedAxes:
    """Axes of an operator, with their letters in source order.

    ``unordered``: letters that a layout may split. ``units``: letters of size 1 without a meaning to the operator. A
    layout may leave them out, or insert them in slots that lack them.
    """

    letters: tuple[str, ...]
    slots: Mapping[int, SlotAxes]
    unordered: frozenset[str]
    units: frozenset[str] = frozenset()

    @property
    def source(self) -> OperatorLayout:
        """Return the layout of the file."""
        return tuple(LetterPart(letter) for letter in self.letters)

    def has_partial_unit(self, layout: OperatorLayout) -> bool:
        """True if only some slots have a unit axis, which costs an Unsqueeze or a Squeeze."""
        return any(part.size is None and part.letter.startswith(UNIT) for part in layout)

    def slot_layout(self, layout: OperatorLayout, slot: int) -> TensorLayout | None:
        """Return the slot's layout; ``None`` if it would separate parts of an axis."""
        key = layout, slot
        if key not in self._slot_layouts:
            self._slot_layouts[key] = self._compute_slot_layout(layout, slot)
        return self._slot_layouts[key]

    @cached_property
    def _slot_layouts(self) -> dict[tuple[OperatorLayout, int], TensorLayout | None]:
        """Return the cached results of :meth:`slot_layout`."""
        return {}

    def _compute_slot_layout(self, layout: OperatorLayout, slot: int) -> TensorLayout | None:
        axes = self.slots[slot]
        axis_of = {letter: axis for axis, group in enumerate(axes.groups) for letter in group}
        parts: list[AxisPart] = []
        for letter, stride, size in layout:
            if letter not in axis_of:
                if size == 1 and letter in self.units:
                    parts.append(AxisPart(INSERTED, 1, 1))
                continue
            axis, letter_size = axis_of[letter], axes.sizes[letter]
            if letter_size == 1 or size is None:
                stride, size = 1, letter_size
            parts.append(AxisPart(axis, stride * axes.inner_size(axis, letter), size))
        tensor_layout = coalesce(parts)
        return tensor_layout if has_adjacent_parts(tensor_layout) else None

    def operator_layout(self, layout: TensorLayout, slot: int) -> OperatorLayout | None:
        """Return the operator layout for which the slot has ``layout``.

        A letter that the slot lacks is placed after its predecessor in ``letters``. A unit axis that the layout omits
        is not restored. Return ``None`` if the layout splits a letter that must not be split.
        """
        axes = self.slots[slot]
        letters = {letter for group in axes.groups for letter in group}
        parts: list[LetterPart] = []
        for axis_part in layout:
            is_inserted = axis_part.axis == INSERTED
            letter_parts = self._unit_for_inserted_axis(letters) if is_inserted else self._letter_parts(axes, axis_part)
            if letter_parts is None:
                return None
            parts.extend(p for p in letter_parts if p not in parts)
        for i, letter in enumerate(self.letters):
            if letter in letters & self.units:
                continue
            if all(p.letter != letter for p in parts):
                predecessor = self.letters[:i][-1:]
                position = max((position for position, p in enumerate(parts, 1) if p.letter in predecessor), default=0)
                parts.insert(position, LetterPart(letter))
        return tuple(parts)

    def _unit_for_inserted_axis(self, letters: set[str]) -> list[LetterPart]:
        """Return one unit axis that the slot lacks, or [] if there is none."""
        return [
            LetterPart(letter, size=1) for letter in self.letters if letter.startswith(UNIT) and letter not in letters
        ][:1]

    def _letter_parts(self, axes: SlotAxes, axis_part: AxisPart) -> list[LetterPart] | None:
        """Return the letter parts of an axis part; ``None`` if they are not allowed."""
        group = axes.groups[axis_part.axis]
        if len(group) == 1:
            is_whole = axis_part.size == axes.sizes[group[0]]
            return (
                [LetterPart(group[0])] if is_whole else self._split_letter(group[0], axis_part.stride, axis_part.size)
            )
        if axis_part.size is None:
            return [LetterPart(letter) for letter in group]
        parts: list[LetterPart] = []
        for letter in group:
            inner_size, size = axes.inner_size(axis_part.axis, letter), axes.sizes[letter] or 1
            start, end = max(inner_size, axis_part.stride), min(inner_size * size, axis_part.stride * axis_part.size)
            if end <= start:
                continue
            if start == inner_size and end == inner_size * size:
                parts.append(LetterPart(letter))
                continue
            split = None if end % start else self._split_letter(letter, start // inner_size, end // start)
            if split is None:
                return None
            parts.extend(split)
        return parts

    def _split_letter(self, letter: str, stride: int, size: int | None) -> list[LetterPart] | None:
        return [LetterPart(letter, stride, size)] if letter in self.unordered and size is not None else None


def resolve_shared_axes(
    slots: Mapping[int, tuple[Sequence[Group], Dims]], unordered: str, *, every_unit: bool = False
) -> SharedAxes | None:
    """Return the shared axes; ``None`` if the sizes of a group cannot be derived.

    Axes written as ``1`` are units. ``every_unit``: so is every letter of size 1. Raises AxesError if the declaration does not
    fit the operands' ranks or sizes.
    """
    expanded = {slot: _expand_groups(groups, dims, slot) for slot, (groups, dims) in slots.items()}
    sizes_by_letter: dict[str, set[int | None]] = {}
    for slot, groups in expanded.items():
        for group, size in zip(groups, slots[slot][1], strict=True):
            if len(group) == 1:
                sizes_by_letter.setdefault(group[0], set()).add(size)
    slot_axes: dict[int, SlotAxes] = {}
    for slot, groups in expanded.items():
        letter_sizes = _solve_sizes(groups, slots[slot][1], sizes_by_letter)
        if letter_sizes is None:
            return None
        slot_axes[slot] = SlotAxes(tuple(groups), letter_sizes)
    letters = merge_letters([[letter for group in groups for letter in group] for groups in expanded.values()])
    equal_size_letters = {
        letter
        for letter in letters
        if len({s.sizes[letter] for s in slot_axes.values() if letter in s.sizes} - {1}) <= 1
    }
    declared = set(unordered.split())
    splittable = {
        a for a in equal_size_letters if unordered == "*" or a in declared or (a.startswith(".") and "..." in declared)
    }
    unit_letters = {a for a in equal_size_letters if all(slot.sizes.get(a, 1) == 1 for slot in slot_axes.values())}
    return SharedAxes(
        letters,
        slot_axes,
        frozenset(splittable),
        frozenset(a for a in unit_letters if every_unit or a.startswith(UNIT)),
    )


def check_ranks(slots: Mapping[int, tuple[Sequence[Group], Dims]]) -> None:
    """Raise RankError for a slot whose rank differs from that of its declared axes."""
    for slot, (groups, dims) in slots.items():
        _expand_groups(groups, dims, slot)


def _expand_groups(groups: Sequence[Group], dims: Dims, slot: int) -> list[Group]:
    """Return the groups with letters in place of ``...`` and each ``1``.

    The letters for ``...`` are numbered from the right, as in broadcasting.
    """
    ellipsis_rank = len(dims) - sum(group != ("...",) for group in groups)
    result: list[Group] = []
    for axis, group in enumerate(groups):
        if group == ("...",):
            result.extend((f".{ellipsis_rank - 1 - i}",) for i in range(ellipsis_rank))
        else:
            result.append(group or (f"{UNIT}{slot}:{axis}",))
    if len(result) != len(dims):
        declared = " ".join(map(_format_group, groups))
        tensor = f"operand {slot}" if slot >= 0 else f"output {~slot}"
        names = [name for group in groups for name in group]
        remedy = suggest_spaces(names) if [len(name) for name in names] == [len(dims)] else ""
        raise RankError(f"axes {declared!r} of {tensor} do not fit a tensor of rank {len(dims)}", remedy or RANK_REMEDY)
    return result


def _format_group(group: Group) -> str:
    """Return a group as in a declaration: a letter, letters in parentheses, or 1."""
    if not group:
        return "1"
    return group[0] if len(group) == 1 else f"({' '.join(group)})"


def _solve_sizes(
    groups: Sequence[Group], dims: Dims, sizes_by_letter: Mapping[str, set[int | None]]
) -> dict[str, int | None] | None:
    """Return letter sizes; ``None`` if a group has several dynamic dimensions."""
    sizes: dict[str, int | None] = {}
    for group, size in zip(groups, dims, strict=True):
        unknown = [
            letter for letter in group if len(sizes_by_letter.get(letter, ())) != 1 or None in sizes_by_letter[letter]
        ]
        for letter in group:
            sizes[letter] = next(iter(sizes_by_letter[letter])) if letter not in unknown else None
        if len(unknown) > 1 or (unknown and unknown[0] != group[0] and size is None):
            return None
        if unknown and size is not None:
            known_product = prod(known for letter in group if (known := sizes[letter]) is not None)
            if known_product == 0 or size % known_product:
                raise RankError(f"an axis of size {size} cannot be split into {' '.join(group)}")
            sizes[unknown[0]] = size // known_product
    return sizes


def merge_letters(sequences: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return all letters in an order that agrees with each sequence.

    If sequences contradict each other, the earlier sequence wins.
    """
    after: dict[str, set[str]] = {}
    for sequence in sequences:
        for letter in sequence:
            after.setdefault(letter, set())
        for first, second in pairwise(sequence):
            if not _is_reachable(after, second, first):
                after[first].add(second)
    letters: list[str] = []
    pending = list(after)
    while pending:
        ready = next(a for a in pending if not any(a in after[b] for b in pending))
        letters.append(ready)
        pending.remove(ready)
    return tuple(letters)


def _is_reachable(after: Mapping[str, set[str]], start: str, end: str) -> bool:
    return start == end or any(_is_reachable(after, successor, end) for successor in after[start])
