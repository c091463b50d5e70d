"""Orders: how a tensor's elements lie in memory, relative to its TFLite axes.

An order is a sequence of *atoms* ``(axis, stride, size)``: every ``stride``-th element of an axis, ``size`` of them.
An uncut axis is one atom of stride 1. NHWC data stored channels first is
``(0, 1, N) (3, 1, C) (1, 1, H) (2, 1, W)``; flattened channels first, its axis 1 is cut:
``(0, 1, N) (1, 1, C) (1, W*C, H) (1, C, W)``. Sizes are ``None`` where unknown. A unit axis (one of size 1) may be
left out, and one inserted that the tensor does not have: an image of one row is a sequence, and a sequence an image of
one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.source.model import Dims


class Atom(NamedTuple):
    axis: int
    stride: int
    size: int | None


Order = tuple[Atom, ...]

INSERTED = -1  # the axis of a unit atom that the tensor does not have


def source_order(dims: Dims) -> Order:
    """The order of the file."""
    return tuple(Atom(axis, 1, size) for axis, size in enumerate(dims))


def permuted(dims: Dims, perm: Iterable[int]) -> Order:
    """Whole axes in the order ``perm``: physical axis ``i`` is TFLite axis ``perm[i]``."""
    return tuple(Atom(axis, 1, dims[axis]) for axis in perm)


def coalesced(atoms: Iterable[Atom]) -> Order:
    """The same order with as few atoms as possible: neighbours that continue each other become one."""
    result: list[Atom] = []
    for atom in atoms:
        last = result[-1] if result else None
        if last and last.axis == atom.axis and atom.size == 1:
            continue
        if last and last.axis == atom.axis and last.size == 1:
            result[-1] = atom
        elif (
            last and last.axis == atom.axis and last.size != 0 and atom.size and last.stride == atom.stride * atom.size
        ):
            result[-1] = Atom(atom.axis, atom.stride, None if last.size is None else last.size * atom.size)
        else:
            result.append(atom)
    return tuple(Atom(a.axis, 1, a.size) if a.size == 1 else a for a in result)


def without_unit_axes(order: Order) -> Order:
    """What distinguishes memory: unit axes move without moving an element, so they do not count."""
    return coalesced(atom for atom in order if atom.size != 1)


def axes(order: Order) -> tuple[int, ...]:
    """TFLite axes in physical order; ``INSERTED`` for one that the tensor does not have."""
    return tuple(dict.fromkeys(atom.axis for atom in order))


def all_axes(order: Order) -> frozenset[int]:
    """The axes that an order does not leave out."""
    return frozenset(axes(order))


def is_tensor(order: Order) -> bool:
    """Whether each axis is in one piece, so that the tensor keeps its rank."""
    runs = [atom.axis for i, atom in enumerate(order) if i == 0 or order[i - 1].axis != atom.axis]
    return len(runs) == len(set(runs))


def physical(order: Order) -> Dims:
    """The shape of the tensor in this order."""
    sizes: dict[int, int | None] = {}
    for axis, _, size in order:
        before = sizes.get(axis, 1)
        sizes[axis] = None if before is None or size is None else before * size
    return tuple(sizes.values())


class Move(NamedTuple):
    """Reshape to ``split``, transpose by ``perm``, reshape to ``shape``; ``None`` for what is not needed."""

    split: Dims | None
    perm: tuple[int, ...] | None
    shape: Dims | None


def by_way_of(start: Order, end: Order) -> tuple[Order, ...]:
    """Where one move does not bring a tensor from one order to another: the order with whole axes that lies between, else none.

    That is where both cut an axis and neither size divides the other, as 21 into 3 of 7 and into 7 of 3.
    """
    for bounds in map(sorted, _cuts(start, end).values()):
        if any(high % low for low, high in pairwise(bound for bound in bounds if bound)):
            sizes = {axis: size for axis, size in zip(axes(start), physical(start), strict=True) if axis != INSERTED}
            return (tuple(Atom(axis, 1, sizes[axis]) for axis in sorted(sizes)),)
    return ()


def move(start: Order, end: Order) -> Move:
    """What brings a tensor from one order to another, where nothing lies between (see :func:`by_way_of`)."""
    if [atom[:2] for atom in start] == [atom[:2] for atom in end]:  # if sizes differ, only one of them knows them
        return Move(None, None, None)
    before, after = physical(start), physical(end)
    if without_unit_axes(start) == without_unit_axes(end):
        return Move(None, None, None if before == after else after)
    first, second = _common(start, end)
    first, second = (tuple(atom for atom in one if atom in other) for one, other in ((first, second), (second, first)))
    perm = tuple(first.index(atom) for atom in second)
    split, final = tuple(a.size for a in first), tuple(a.size for a in second)
    return Move(None if split == before else split, perm, None if final == after else after)


def _common(start: Order, end: Order) -> tuple[Order, Order]:
    """Both orders cut at every boundary either of them has."""
    cuts = _cuts(start, end)
    return _cut(start, cuts), _cut(end, cuts)


def _cuts(start: Order, end: Order) -> dict[int, set[int]]:
    """The boundaries of each axis, as strides; 0 for an end that is not known."""
    cuts: dict[int, set[int]] = {}
    for axis, stride, size in (*start, *end):
        cuts.setdefault(axis, set()).update((stride, stride * (size or 0)))
    return cuts


def _cut(order: Order, cuts: dict[int, set[int]]) -> Order:
    pieces: list[Atom] = []
    for axis, stride, size in order:
        inner = sorted(c for c in cuts[axis] if size is not None and stride < c < stride * size)
        bounds = [stride, *inner]
        sizes = [high // low for low, high in zip(bounds, inner, strict=False)]
        last = None if size is None else stride * size // bounds[-1]
        pieces.extend(reversed([Atom(axis, low, n) for low, n in zip(bounds, [*sizes, last], strict=True)]))
    return tuple(pieces)


def count(dims: Dims, unknown: int = 1) -> int:
    """Elements, counting an unknown size as ``unknown``."""
    return prod(unknown if d is None else d for d in dims)


def spelled(order: Order) -> str:
    """The perm as text: ``"0,3,1,2"``, -1 what was inserted; cut axes show stride and size: ``"0,1/1x64,1/64x49"``."""
    whole = len(order) == len(axes(order))
    return ",".join(str(a.axis) if whole else f"{a.axis}/{a.stride}x{a.size}" for a in order)


def perm_of(order: Order) -> Sequence[int] | None:
    """Physical axis → TFLite axis where no axis is cut, else ``None``."""
    return axes(order) if len(order) == len(axes(order)) else None
