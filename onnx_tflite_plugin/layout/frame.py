"""An operator's frame: the axes its slots share, and how a frame order shows in each slot.

One pair of functions, ``to_slot`` and ``to_frame``, covers elementwise operators, reductions, slices, transposes,
reshapes and squeezes: they differ in their axes only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.layout.order import INSERTED, Atom, Order, coalesced, is_tensor
from onnx_tflite_plugin.source.model import Dims

Group = tuple[str, ...]


class Part(NamedTuple):
    """A letter, or a cut of it; ``size`` is ``None`` for the whole letter, 1 for a unit that every slot shows."""

    letter: str
    stride: int = 1
    size: int | None = None


FrameOrder = tuple[Part, ...]

UNIT = "unit "  # prefix of the letters of axes spelled 1


class AxesError(ValueError):
    """A declaration of axes that does not parse, or does not fit the operands."""


class RankError(AxesError):
    """Operands that have other axes than the declaration says: the file's fault where the declaration holds for others."""


_AXIS = re.compile(r"\s*(\([\w\s]*\)|\.\.\.|[A-Za-z]\w*|1)")


def parse_axes(text: str) -> tuple[list[list[Group] | None], list[list[Group] | None]]:
    """``"n (h w), o -> n o"`` → groups per input and per output; ``_`` is ``None``. Raises AxesError."""
    left, arrow, right = text.partition("->")
    if not arrow:
        raise AxesError(f"axes {text!r} have no '->'")
    return [_parse_slot(s, text) for s in left.split(",")], [_parse_slot(s, text) for s in right.split(",")]


def _parse_slot(slot: str, text: str) -> list[Group] | None:
    slot = slot.strip()
    if slot == "_":
        return None
    groups: list[Group] = []
    at = 0
    while at < len(slot):
        match = _AXIS.match(slot, at)
        if not match:
            raise AxesError(f"axes {text!r} do not parse at {slot[at:]!r}")
        axis, at = match.group(1), match.end()
        groups.append(() if axis == "1" else tuple(axis.strip("()").split()))
    return groups


class SlotAxes(NamedTuple):
    """One slot: the letters of each of its axes, with their sizes there (``None`` unknown)."""

    groups: tuple[Group, ...]
    sizes: Mapping[str, int | None]

    def inner(self, axis: int, letter: str) -> int:
        """Elements of the axis below one step of the letter."""
        group = self.groups[axis]
        return prod(self.sizes[other] or 1 for other in group[group.index(letter) + 1 :])


@dataclass(frozen=True)
class Frame:
    """``letters`` in source order, the slots, the letters that may be cut, and the ``units``.

    Units have size 1 and no meaning to the operator: an order may leave them out, or show them in slots without them.
    """

    letters: tuple[str, ...]
    slots: Mapping[int, SlotAxes]
    unordered: frozenset[str]
    units: frozenset[str] = frozenset()

    @property
    def source(self) -> FrameOrder:
        return tuple(Part(letter) for letter in self.letters)

    def uneven(self, order: FrameOrder) -> bool:
        """Whether a unit axis is inserted in or removed from some slots only, which costs an Unsqueeze or a Squeeze."""
        return any(part.size is None and part.letter.startswith(UNIT) for part in order)

    def to_slot(self, order: FrameOrder, slot: int) -> Order | None:
        """The slot's tensor order under a frame order; ``None`` where an axis would be split."""
        asked = order, slot
        if asked not in self._shown:
            self._shown[asked] = self._show(order, slot)
        return self._shown[asked]

    @cached_property
    def _shown(self) -> dict[tuple[FrameOrder, int], Order | None]:
        """What :meth:`to_slot` has told: a plan asks for the same again and again."""
        return {}

    def _show(self, order: FrameOrder, slot: int) -> Order | None:
        axes = self.slots[slot]
        home = {letter: axis for axis, group in enumerate(axes.groups) for letter in group}
        atoms: list[Atom] = []
        for letter, stride, size in order:
            if letter not in home:
                if size == 1 and letter in self.units:
                    atoms.append(Atom(INSERTED, 1, 1))
                continue
            axis, here = home[letter], axes.sizes[letter]
            if here == 1 or size is None:
                stride, size = 1, here
            atoms.append(Atom(axis, stride * axes.inner(axis, letter), size))
        tensor_order = coalesced(atoms)
        return tensor_order if is_tensor(tensor_order) else None

    def to_frame(self, order: Order, slot: int) -> FrameOrder | None:
        """The frame order that shows as ``order`` in the slot; letters the slot lacks stay by their neighbours.

        A unit the order leaves out stays out. ``None`` where the order cuts a letter that must stay whole.
        """
        axes = self.slots[slot]
        letters = {letter for group in axes.groups for letter in group}
        parts: list[Part] = []
        for atom in order:
            shown = self._inserted(letters) if atom.axis == INSERTED else self._letters(axes, atom)
            if shown is None:
                return None
            parts.extend(p for p in shown if p not in parts)
        for i, letter in enumerate(self.letters):
            if letter in letters & self.units:
                continue
            if all(p.letter != letter for p in parts):
                before = self.letters[:i][-1:]
                at = max((place for place, p in enumerate(parts, 1) if p.letter in before), default=0)
                parts.insert(at, Part(letter))
        return tuple(parts)

    def _inserted(self, letters: set[str]) -> list[Part]:
        """The unit that a slot without it shows; none where the frame has no such unit."""
        return [Part(letter, size=1) for letter in self.letters if letter.startswith(UNIT) and letter not in letters][
            :1
        ]

    def _letters(self, axes: SlotAxes, atom: Atom) -> list[Part] | None:
        group = axes.groups[atom.axis]
        if len(group) == 1:
            whole = atom.size == axes.sizes[group[0]]
            return [Part(group[0])] if whole else self._cut(group[0], atom.stride, atom.size)
        if atom.size is None:
            return [Part(letter) for letter in group]
        parts: list[Part] = []
        for letter in group:
            low, size = axes.inner(atom.axis, letter), axes.sizes[letter] or 1
            start, end = max(low, atom.stride), min(low * size, atom.stride * atom.size)
            if end <= start:
                continue
            if start == low and end == low * size:
                parts.append(Part(letter))
                continue
            cut = None if end % start else self._cut(letter, start // low, end // start)
            if cut is None:
                return None
            parts.extend(cut)
        return parts

    def _cut(self, letter: str, stride: int, size: int | None) -> list[Part] | None:
        return [Part(letter, stride, size)] if letter in self.unordered and size is not None else None


def make_frame(
    slots: Mapping[int, tuple[Sequence[Group], Dims]], unordered: str, *, units: bool = False
) -> Frame | None:
    """Solve the letters' sizes; ``None`` where a group's sizes cannot be known.

    Axes spelled ``1`` are units, with ``units`` every letter of size 1. Raises AxesError where the declaration does not
    fit the operands' ranks or sizes.
    """
    expanded = {slot: _expand(groups, dims, slot) for slot, (groups, dims) in slots.items()}
    by_letter: dict[str, set[int | None]] = {}
    for slot, groups in expanded.items():
        for group, size in zip(groups, slots[slot][1], strict=True):
            if len(group) == 1:
                by_letter.setdefault(group[0], set()).add(size)
    sizes: dict[int, SlotAxes] = {}
    for slot, groups in expanded.items():
        solved = _sizes(groups, slots[slot][1], by_letter)
        if solved is None:
            return None
        sizes[slot] = SlotAxes(tuple(groups), solved)
    letters = merged([[letter for group in groups for letter in group] for groups in expanded.values()])
    even = {
        letter for letter in letters if len({s.sizes[letter] for s in sizes.values() if letter in s.sizes} - {1}) <= 1
    }
    asked = set(unordered.split())
    named = {a for a in even if unordered == "*" or a in asked or (a.startswith(".") and "..." in asked)}
    ones = {a for a in even if all(slot.sizes.get(a, 1) == 1 for slot in sizes.values())}
    return Frame(letters, sizes, frozenset(named), frozenset(a for a in ones if units or a.startswith(UNIT)))


def _expand(groups: Sequence[Group], dims: Dims, slot: int) -> list[Group]:
    """Give ``...`` its letters, counted from the right so that ranks align as in broadcasting, and each ``1`` one."""
    extra = len(dims) - sum(group != ("...",) for group in groups)
    result: list[Group] = []
    for axis, group in enumerate(groups):
        if group == ("...",):
            result.extend((f".{extra - 1 - i}",) for i in range(extra))
        else:
            result.append(group or (f"{UNIT}{slot}:{axis}",))
    if len(result) != len(dims):
        raise RankError(f"axes {' '.join(map(str, groups))} do not fit a tensor of rank {len(dims)}")
    return result


def _sizes(
    groups: Sequence[Group], dims: Dims, by_letter: Mapping[str, set[int | None]]
) -> dict[str, int | None] | None:
    sizes: dict[str, int | None] = {}
    for group, size in zip(groups, dims, strict=True):
        missing = [letter for letter in group if len(by_letter.get(letter, ())) != 1 or None in by_letter[letter]]
        for letter in group:
            sizes[letter] = next(iter(by_letter[letter])) if letter not in missing else None
        if len(missing) > 1 or (missing and missing[0] != group[0] and size is None):
            return None
        if missing and size is not None:
            rest = prod(s for letter in group if (s := sizes[letter]) is not None)
            if rest == 0 or size % rest:
                raise RankError(f"axis of size {size} does not divide into {' '.join(group)}")
            sizes[missing[0]] = size // rest
    return sizes


def merged(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """All letters so that every row keeps its order; where rows contradict each other the earlier one wins."""
    after: dict[str, set[str]] = {}
    for row in rows:
        for letter in row:
            after.setdefault(letter, set())
        for first, second in pairwise(row):
            if not _reaches(after, second, first):
                after[first].add(second)
    letters: list[str] = []
    waiting = list(after)
    while waiting:
        ready = next(a for a in waiting if not any(a in after[b] for b in waiting))
        letters.append(ready)
        waiting.remove(ready)
    return tuple(letters)


def _reaches(after: Mapping[str, set[str]], start: str, end: str) -> bool:
    return start == end or any(_reaches(after, step, end) for step in after[start])
