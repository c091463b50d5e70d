"""Axes of common operators such as reductions, for the declaration ``axes``.

The axes are einops notation, or None if operands and results share no axes. With None, the operator keeps the source
layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise

import numpy as np

from onnx_tflite_plugin.api.declarations import Instance
from onnx_tflite_plugin.source.model import Dims, Operator

AxesFunction = Callable[[Instance], str | None]


def axis_names(n: int, prefix: str = "a") -> list[str]:
    """Return ``n`` axis names: ``a0``, ``a1``, ..."""
    return [f"{prefix}{i}" for i in range(n)]


def format_axes(inputs: Sequence[Iterable[str] | None], *outputs: Iterable[str]) -> str:
    """Return the notation of axes: ``[["a", "b"], None], ["b"]`` → ``"a b, _ -> b"``.

    ``None`` in ``inputs`` stands for a slot without axes.
    """
    operands = ", ".join("_" if slot is None else " ".join(slot) for slot in inputs)
    return f"{operands} -> {', '.join(' '.join(slot) for slot in outputs)}"


def constant_axes(op: Operator, slot: int, rank: int) -> tuple[int, ...] | None:
    """Return the axis numbers in a constant operand, nonnegative, sorted and unique.

    ``rank`` is added to negative numbers. Return None if the operand is not constant.
    """
    constant = op.constant(slot)
    return None if constant is None else tuple(sorted({int(a) % max(rank, 1) for a in np.ravel(constant)}))


def permutation_axes(slot: int) -> AxesFunction:
    """Return a function for ``axes`` that returns the axes of a transposition.

    Output axis ``i`` is input axis ``perm[i]``. ``perm`` is the constant in ``slot``.
    """

    def axes(at: Instance) -> str | None:
        perm = at.op.constant(slot)
        if perm is None:
            return None
        names = axis_names(at.op[0].rank)
        return format_axes([names], [names[int(p)] for p in np.ravel(perm)])

    return axes


def reduction_axes(
    slot: int, keep: Callable[[Instance], bool] = lambda at: bool(at.op.options.keep_dims)
) -> AxesFunction:
    """Return a function for ``axes`` that returns the axes of a reduction.

    The operator reduces the axes in the constant operand ``slot``. ``keep`` is called with the instance, and returns
    True if the result keeps these axes with size 1. By default it returns the option ``keep_dims``.
    """

    def axes(at: Instance) -> str | None:
        op = at.op
        reduced = constant_axes(op, slot, op[0].rank)
        if reduced is None:
            return None
        names = axis_names(op[0].rank)
        return format_axes([names], [n for i, n in enumerate(names) if keep(at) or i not in reduced])

    return axes


def reshape_axes_of(at: Instance) -> str | None:
    """Return the axes of a reshape, split into factors that both shapes share.

    For example, ``[2, 3, 4] -> [6, 4]`` is ``"(a b) c -> (a b) c"``. Return None if no such factors exist
    (``[4, 6] -> [3, 8]``), or if a dimension is dynamic in one shape only.
    """
    return reshape_axes(at.op[0].dims, at.op[~0].dims)


def reshape_axes(before: Dims, after: Dims) -> str | None:
    """Return the axes of a reshape, as ``reshape_axes_of`` does, from two shapes."""
    if max(before.count(None), after.count(None)) > 1:
        return None  # only a single dynamic dimension can be matched, by elimination
    names = (f"a{i}" for i in count())
    before_factors: list[list[str]] = [[] for _ in before]
    after_factors: list[list[str]] = [[] for _ in after]
    i = j = 0
    while i < len(before) or j < len(after):
        ends = _block_ends(before, after, i, j)
        if ends is None:
            return None
        i_end, j_end = ends
        if not _assign_factors(before, after, range(i, i_end), range(j, j_end), before_factors, after_factors, names):
            return None
        i, j = i_end, j_end
    return format_axes([map(_format_axis, before_factors)], map(_format_axis, after_factors))


def _format_axis(parts: Sequence[str]) -> str:
    """Return the notation of one axis; "1" if the other shape has none of its factors."""
    if not parts:
        return "1"
    return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"


def _block_ends(before: Dims, after: Dims, i: int, j: int) -> tuple[int, int] | None:
    """Return the ends of the shortest axis ranges with equal element counts.

    The ranges begin at axis ``i`` of ``before`` and axis ``j`` of ``after``. Return None if there are none.
    """
    if i < len(before) and j < len(after) and before[i] == after[j]:
        return i + 1, j + 1
    if i < len(before) and before[i] == 1:
        return i + 1, j
    if j < len(after) and after[j] == 1:
        return i, j + 1
    count_before = count_after = 1
    while True:
        if count_before == count_after and count_before != 1:
            return i, j
        dims, axis = (before, i) if count_before <= count_after else (after, j)
        if axis >= len(dims):
            return None
        if dims is before:  # a dynamic or empty dimension makes the product 0, which never matches
            count_before, i = count_before * (before[i] or 0), i + 1
        else:
            count_after, j = count_after * (after[j] or 0), j + 1


def _assign_factors(before: Dims, after: Dims, before_axes: range, after_axes: range,
            before_factors: list[list[str]], after_factors: list[list[str]], names: Iterable[str]) -> bool:  # fmt: skip
    """Assign common factors to the axes of one block.

    Return False if the factors of one shape do not divide the factors of the other shape.
    """
    names = iter(names)
    if len(before_axes) == len(after_axes) == 1:
        name = next(names)
        before_factors[before_axes[0]].append(name)
        after_factors[after_axes[0]].append(name)
        return True
    # [2, 12] -> [6, 4] has the suffix products 24, 12 and 24, 4, so the factors are 24 / 12, 12 / 4 and 4 / 1.
    products = sorted({1, *_suffix_products(before, before_axes), *_suffix_products(after, after_axes)}, reverse=True)
    if any(upper % lower for upper, lower in pairwise(products)):
        return False
    named_factors = [(upper, lower, next(names)) for upper, lower in pairwise(products)]
    for dims, axes, factors in ((before, before_axes, before_factors), (after, after_axes, after_factors)):
        axis_products = pairwise([*_suffix_products(dims, axes), 1])
        for axis, (axis_upper, axis_lower) in zip(axes, axis_products, strict=True):
            factors[axis].extend(
                name for upper, lower, name in named_factors if upper <= axis_upper and lower >= axis_lower
            )
    return True


def _suffix_products(dims: Dims, axes: range) -> list[int]:
    """Return, per axis of the block, the size of the axis times all inner sizes."""
    products, product = [], 1
    for axis in reversed(axes):
        product *= dims[axis] or 1
        products.append(product)
    return products[::-1]
