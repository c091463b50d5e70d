"""Axes of common operators, as functions of the instance. Each returns einops' spelling, or ``None``.

``None`` means that the slots share no axes that could be followed: the operator keeps source order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise

import numpy as np

from onnx_tflite_plugin.api.declarations import Instance
from onnx_tflite_plugin.source.model import Dims, Operator

AxesOf = Callable[[Instance], str | None]


def letters(n: int, prefix: str = "a") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def spelled(inputs: Sequence[Iterable[str] | None], *outputs: Iterable[str]) -> str:
    """``[["a", "b"], None] -> ["b"]`` as ``"a b, _ -> b"``; ``None`` is a slot without laid-out axes."""
    left = ", ".join("_" if slot is None else " ".join(slot) for slot in inputs)
    return f"{left} -> {', '.join(' '.join(slot) for slot in outputs)}"


def constant_axes(op: Operator, slot: int, rank: int) -> tuple[int, ...] | None:
    """The axis numbers a constant operand holds, non-negative, sorted and without repeats."""
    constant = op.constant(slot)
    return None if constant is None else tuple(sorted({int(a) % max(rank, 1) for a in np.ravel(constant)}))


def permuted_by(slot: int) -> AxesOf:
    """Output axis ``i`` is input axis ``perm[i]``, perm a constant in ``slot``."""

    def axes(at: Instance) -> str | None:
        perm = at.op.constant(slot)
        if perm is None:
            return None
        names = letters(at.op[0].rank)
        return spelled([names], [names[int(p)] for p in np.ravel(perm)])

    return axes


def reduced_by(slot: int, keep: Callable[[Instance], bool] = lambda at: bool(at.op.options.keep_dims)) -> AxesOf:
    """The axes held by ``slot`` are dropped, or kept with size 1."""

    def axes(at: Instance) -> str | None:
        op = at.op
        reduced = constant_axes(op, slot, op[0].rank)
        if reduced is None:
            return None
        names = letters(op[0].rank)
        return spelled([names], [n for i, n in enumerate(names) if keep(at) or i not in reduced])

    return axes


def reshaped(at: Instance) -> str | None:
    """Factor groups that relate two shapes: ``[2, 3, 4] -> [6, 4]`` is ``"(a b) c -> (a b) c"``.

    ``None`` where the shapes cut the elements differently (``[4, 6] -> [3, 8]``) or a size is unknown
    on one side only.
    """
    return reshape_axes(at.op[0].dims, at.op[~0].dims)


def reshape_axes(before: Dims, after: Dims) -> str | None:
    if max(before.count(None), after.count(None)) > 1:
        return None  # unknown sizes can be matched by elimination only
    names = (f"a{i}" for i in count())
    left: list[list[str]] = [[] for _ in before]
    right: list[list[str]] = [[] for _ in after]
    i = j = 0
    while i < len(before) or j < len(after):
        blocks = _block(before, after, i, j)
        if blocks is None:
            return None
        i_end, j_end = blocks
        if not _factor(before, after, range(i, i_end), range(j, j_end), left, right, names):
            return None
        i, j = i_end, j_end
    return spelled([map(_group, left)], map(_group, right))


def _group(parts: Sequence[str]) -> str:
    """One axis; of size 1 where the other side has nothing like it."""
    if not parts:
        return "1"
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


def _block(before: Dims, after: Dims, i: int, j: int) -> tuple[int, int] | None:
    """Ends of the shortest leading axes of both sides that hold the same number of elements."""
    if i < len(before) and j < len(after) and before[i] == after[j]:
        return i + 1, j + 1
    if i < len(before) and before[i] == 1:
        return i + 1, j
    if j < len(after) and after[j] == 1:
        return i, j + 1
    a = b = 1
    while True:
        if a == b and a != 1:
            return i, j
        side, at = (before, i) if a <= b else (after, j)
        if at >= len(side):
            return None
        if side is before:  # a size that is unknown or 0 makes 0 of it, which nothing equals
            a, i = a * (before[i] or 0), i + 1
        else:
            b, j = b * (after[j] or 0), j + 1


def _factor(before: Dims, after: Dims, rows: range, columns: range,
            left: list[list[str]], right: list[list[str]], names: Iterable[str]) -> bool:  # fmt: skip
    """Give the axes of one block common factors; False where their boundaries do not nest."""
    names = iter(names)
    if len(rows) == len(columns) == 1:
        name = next(names)
        left[rows[0]].append(name)
        right[columns[0]].append(name)
        return True
    cuts = sorted({1, *_strides(before, rows), *_strides(after, columns)}, reverse=True)
    if any(high % low for high, low in pairwise(cuts)):
        return False
    spans = [(high, low, next(names)) for high, low in pairwise(cuts)]
    for dims, axes, slots in ((before, rows, left), (after, columns, right)):
        bounds = [*_strides(dims, axes), 1]
        for axis, (high, low) in zip(axes, pairwise(bounds), strict=True):
            slots[axis].extend(name for top, bottom, name in spans if top <= high and bottom >= low)
    return True


def _strides(dims: Dims, axes: range) -> list[int]:
    """Elements at and below each axis of the block: its outer boundary."""
    bounds, total = [], 1
    for axis in reversed(axes):
        total *= dims[axis] or 1
        bounds.append(total)
    return bounds[::-1]
