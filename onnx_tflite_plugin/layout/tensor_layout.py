"""Layout of a tensor: the order of its elements in memory, by TFLite axes.

A layout is a sequence of *axis parts* ``(axis, stride, size)``: every ``stride``-th element of an axis, ``size`` of
them. An axis that is not split is one part of stride 1. NHWC data stored channels first is
``(0, 1, N) (3, 1, C) (1, 1, H) (2, 1, W)``. Flattened channels first, its axis 1 is split:
``(0, 1, N) (1, 1, C) (1, W*C, H) (1, C, W)``. Dynamic sizes are ``None``. A layout may leave out a unit axis (one of
size 1), or insert one that the tensor does not have. An image of one row thus becomes a sequence, and vice versa.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.source.model import Dims


class AxisPart(NamedTuple):
    """Every ``stride``-th element of an axis, ``size`` of them."""

    axis: int
    stride: int
    size: int | None


TensorLayout = tuple[AxisPart, ...]

INSERTED = -1  # the axis of an inserted unit part


def source_layout(dims: Dims) -> TensorLayout:
    """Return the layout of a tensor in the TFLite file."""
    return tuple(AxisPart(axis, 1, size) for axis, size in enumerate(dims))


def layout_of_permutation(dims: Dims, perm: Iterable[int]) -> TensorLayout:
    """Return the layout of whole axes: physical axis ``i`` is TFLite axis ``perm[i]``."""
    return tuple(AxisPart(axis, 1, dims[axis]) for axis in perm)


def coalesce(parts: Iterable[AxisPart]) -> TensorLayout:
    """Return the layout with contiguous parts merged."""
    result: list[AxisPart] = []
    for part in parts:
        last = result[-1] if result else None
        if last and last.axis == part.axis and part.size == 1:
            continue
        if last and last.axis == part.axis and last.size == 1:
            result[-1] = part
        elif (
            last and last.axis == part.axis and last.size != 0 and part.size and last.stride == part.stride * part.size
        ):
            result[-1] = AxisPart(part.axis, part.stride, None if last.size is None else last.size * part.size)
        else:
            result.append(part)
    return tuple(AxisPart(a.axis, 1, a.size) if a.size == 1 else a for a in result)


def drop_unit_axes(layout: TensorLayout) -> TensorLayout:
    """Return the layout without unit axes, which do not affect the order in memory."""
    return coalesce(part for part in layout if part.size != 1)


def layout_axes(layout: TensorLayout) -> tuple[int, ...]:
    """Return the TFLite axes in physical order.

    ``INSERTED`` stands for an axis that the tensor does not have.
    """
    return tuple(dict.fromkeys(part.axis for part in layout))


def axis_set(layout: TensorLayout) -> frozenset[int]:
    """Return the set of axes in a layout."""
    return frozenset(layout_axes(layout))


def has_adjacent_parts(layout: TensorLayout) -> bool:
    """True if the parts of each axis are adjacent, so that the tensor keeps its rank."""
    axis_runs = [part.axis for i, part in enumerate(layout) if i == 0 or layout[i - 1].axis != part.axis]
    return len(axis_runs) == len(set(axis_runs))


def physical_shape(layout: TensorLayout) -> Dims:
    """Return the shape of the tensor in this layout."""
    sizes: dict[int, int | None] = {}
    for axis, _, size in layout:
        outer_size = sizes.get(axis, 1)
        sizes[axis] = None if outer_size is None or size is None else outer_size * size
    return tuple(sizes.values())


class LayoutConversion(NamedTuple):
    """Steps of a conversion between layouts: reshape, transpose, reshape.

    ``split``: shape of the first reshape. ``perm``: permutation. ``shape``: shape of the last reshape. ``None`` skips
    the step.
    """

    split: Dims | None
    perm: tuple[int, ...] | None
    shape: Dims | None


def intermediate_layouts(start: TensorLayout, end: TensorLayout) -> tuple[TensorLayout, ...]:
    """Return a layout between two layouts that need two conversions; else ().

    The result has whole axes. Two conversions are needed if both layouts split an axis and neither size divides the
    other: 3 x 7 and 7 x 3.
    """
    for bounds in map(sorted, _part_boundaries(start, end).values()):
        if any(high % low for low, high in pairwise(bound for bound in bounds if bound)):
            sizes = {
                axis: size
                for axis, size in zip(layout_axes(start), physical_shape(start), strict=True)
                if axis != INSERTED
            }
            return (tuple(AxisPart(axis, 1, sizes[axis]) for axis in sorted(sizes)),)
    return ()


def plan_conversion(start: TensorLayout, end: TensorLayout) -> LayoutConversion:
    """Return the steps from one layout to another.

    The pair must not need an intermediate layout (:func:`intermediate_layouts`).
    """
    if [part[:2] for part in start] == [part[:2] for part in end]:  # sizes can differ only where one is dynamic
        return LayoutConversion(None, None, None)
    before, after = physical_shape(start), physical_shape(end)
    if drop_unit_axes(start) == drop_unit_axes(end):
        return LayoutConversion(None, None, None if before == after else after)
    start_parts, end_parts = _common_refinement(start, end)
    common_parts = set(start_parts) & set(end_parts)
    start_parts = tuple(part for part in start_parts if part in common_parts)
    end_parts = tuple(part for part in end_parts if part in common_parts)
    perm = tuple(start_parts.index(part) for part in end_parts)
    split, final = tuple(part.size for part in start_parts), tuple(part.size for part in end_parts)
    return LayoutConversion(None if split == before else split, perm, None if final == after else after)


def _common_refinement(start: TensorLayout, end: TensorLayout) -> tuple[TensorLayout, TensorLayout]:
    """Return both layouts with each axis split at the part boundaries of both layouts."""
    cuts = _part_boundaries(start, end)
    return _split_parts(start, cuts), _split_parts(end, cuts)


def _part_boundaries(start: TensorLayout, end: TensorLayout) -> dict[int, set[int]]:
    """Return the boundaries of parts of each axis, as strides.

    0 stands for the end of a part of dynamic size.
    """
    cuts: dict[int, set[int]] = {}
    for axis, stride, size in (*start, *end):
        cuts.setdefault(axis, set()).update((stride, stride * (size or 0)))
    return cuts


def _split_parts(layout: TensorLayout, cuts: dict[int, set[int]]) -> TensorLayout:
    """Return the layout with its axes split at ``cuts``."""
    parts: list[AxisPart] = []
    for axis, stride, size in layout:
        inner_cuts = sorted(cut for cut in cuts[axis] if size is not None and stride < cut < stride * size)
        starts = [stride, *inner_cuts]
        sizes = [high // low for low, high in zip(starts, inner_cuts, strict=False)]
        last_size = None if size is None else stride * size // starts[-1]
        parts.extend(reversed([AxisPart(axis, low, n) for low, n in zip(starts, [*sizes, last_size], strict=True)]))
    return tuple(parts)


def element_count(dims: Dims, dynamic_size: int = 1) -> int:
    """Return the number of elements, counting a dynamic size as ``dynamic_size``."""
    return prod(dynamic_size if d is None else d for d in dims)


def format_layout(layout: TensorLayout) -> str:
    """Return the layout as text, for example ``"0,3,1,2"``.

    With split axes it is ``"0,1/1x64,1/64x49"``, axis/stride x size. An inserted axis is -1.
    """
    is_unsplit = len(layout) == len(layout_axes(layout))
    return ",".join(str(part.axis) if is_unsplit else f"{part.axis}/{part.stride}x{part.size}" for part in layout)


def format_transposition(start: TensorLayout, end: TensorLayout) -> str:
    """Return both layouts as text, for example ``"0,1,2,3 -> 0,3,1,2"``.

    If an axis is split, the text has the Transpose's input shape and permutation: ``"[1, 3, 32, 64] -> 0,2,1,3"``.
    """
    conversion = plan_conversion(start, end)
    if conversion.perm is None or all(len(layout) == len(layout_axes(layout)) for layout in (start, end)):
        return f"{format_layout(start)} -> {format_layout(end)}"
    sizes = physical_shape(start) if conversion.split is None else conversion.split
    shape = ", ".join("?" if size in (None, -1) else str(size) for size in sizes)
    return f"[{shape}] -> {','.join(map(str, conversion.perm))}"


def layout_permutation(layout: TensorLayout) -> Sequence[int] | None:
    """Return the TFLite axis of each physical axis; ``None`` if an axis is split."""
    return layout_axes(layout) if len(layout) == len(layout_axes(layout)) else None
