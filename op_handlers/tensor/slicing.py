"""Slices, strided slices and slice updates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Dims,
    Instance,
    Raw,
    Value,
    ValueLike,
    axis_names,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import (
    cast_to_int64,
    constant_integers,
    operand_shape,
    rank_preserving_axes,
    unordered_layout,
)
from op_handlers.kernels.strided_slices import (
    INT32,
    INT64,
    axis_slices,
    runtime_bounds,
    selects_complete_axis,
    static_bounds,
)

Position = Value | int
"""Position along one axis; a value of shape [1] if it is a runtime value."""


# --- slice ------------------------------------------------------------------------------------


def slice_layout(at: Instance) -> Attribute:
    """Return a layout in which completely selected axes are unordered."""
    op = at.op
    begin, size = constant_integers(op, 1), constant_integers(op, 2)
    if begin is None or size is None:
        return Attribute()
    return unordered_layout(axis for axis, n in enumerate(op[0].dims) if begin[axis] == 0 and size[axis] in (-1, n))


@handler(
    "SLICE",
    max_version=8,
    layout=slice_layout,
    axes=rank_preserving_axes,
    indexed_by_axis={1: 0, 2: 0},
    quantization=Raw(shift_safe=True, onnx="Slice"),
    dynamic_batch_values={2: -1},
)
def slice_(ctx: Context, x: Value, begin: Value, size: Value) -> Value:
    """Emit Slice from begin to begin + size, or to the end for a size of -1."""
    starts, lengths = cast_to_int64(ctx, 1, begin), cast_to_int64(ctx, 2, size)
    if isinstance(starts, np.ndarray) and isinstance(lengths, np.ndarray):
        sliced_axes = [axis for axis, n in enumerate(ctx.shape(0)) if starts[axis] or lengths[axis] not in (-1, n)]
        ends = np.where(lengths < 0, INT64.max, starts + lengths)
        return ctx.ops.Slice(x, starts[sliced_axes], ends[sliced_axes], sliced_axes) if sliced_axes else x
    runtime_ends = ctx.ops.Where(ctx.ops.Equal(lengths, -1), INT64.max, ctx.ops.Add(starts, lengths))
    return ctx.ops.Slice(x, starts, runtime_ends, list(range(ctx.op[0].rank)))


# --- strided slice ----------------------------------------------------------------------------


def slice_axes(at: Instance) -> str:
    result_axes = [
        f"a{axis_slice.axis}" if axis_slice.axis is not None else f"new{i}"
        for i, axis_slice in enumerate(axis_slices(at.op))
        if not axis_slice.shrinks
    ]
    return format_axes([[f"a{i}" for i in range(at.op[0].rank)]], result_axes)


def strided_slice_layout(at: Instance) -> Attribute:
    """Return a layout in which completely selected axes are unordered."""
    return unordered_layout(
        axis_slice.axis
        for axis_slice in axis_slices(at.op)
        if axis_slice.axis is not None and selects_complete_axis(at.op, axis_slice)
    )


def slice_shape(at: Instance) -> Dims:
    """Return the number of elements of each slice.

    A size is dynamic if its bounds or its axis are dynamic.
    """
    op = at.op
    strides, has_constant_bounds = op.constant(3), op[1].is_constant and op[2].is_constant
    sizes: list[int | None] = []
    for axis_slice in axis_slices(op):
        size = 1 if axis_slice.axis is None else op[0].dims[axis_slice.axis]
        if axis_slice.axis is None or selects_complete_axis(op, axis_slice):
            sizes.append(size)
        elif not axis_slice.shrinks and (size is None or not has_constant_bounds or strides is None):
            sizes.append(None)
        elif not axis_slice.shrinks and strides is not None:
            start, end = static_bounds(op, axis_slice)
            stride = int(strides[axis_slice.entry or 0])
            sizes.append(len(range(start, -1 if end == INT64.min else end, stride)))
        elif size is not None and has_constant_bounds:
            static_bounds(op, axis_slice)  # raises Refusal for an index out of range
    return tuple(sizes)


def check_bounds(at: Instance) -> Decline | None:
    """Return a Decline for entries beyond the end of begin, end or strides.

    The kernel would read beyond the end.
    """
    op = at.op
    lengths = {op[slot].shape for slot in (1, 2, 3) if op[slot].is_static}
    if len(lengths) > 1:
        return Decline(
            f"begin, end and strides have {' and '.join(str(list(shape)) for shape in sorted(lengths))} entries"
        )
    axes = [axis_slice.axis for axis_slice in axis_slices(op) if axis_slice.axis is not None]
    if axes != list(range(op[0].rank)) or any(
        (axis_slice.entry or 0) >= op[1].shape[0] for axis_slice in axis_slices(op) if axis_slice.axis is not None
    ):
        return Decline("the masks refer to axes or entries that do not exist, and the kernel reads beyond the end")
    strides = op.constant(3)
    if strides is not None and any(
        axis_slice.shrinks and strides[axis_slice.entry or 0] < 0 for axis_slice in axis_slices(op)
    ):
        return Decline(
            "an axis shrunk to one element has a negative stride, for which the kernel leaves its result unset"
        )
    return None


@handler(
    "STRIDED_SLICE",
    max_version=8,
    layout=strided_slice_layout,
    axes=slice_axes,
    requires_constant={3},
    quantization=Raw(shift_safe=True, onnx="Slice"),
    accepts=check_bounds,
    result_shape=slice_shape,
    dynamic_batch_values={2: INT32.max},
)
def strided_slice(ctx: Context, x: Value, begin: Value, end: Value, _strides: Value) -> Value:
    """Emit Slice, remove shrunk axes and insert new ones.

    Masks and constant bounds are resolved during the conversion.
    """
    partial_slices = [
        axis_slice
        for axis_slice in axis_slices(ctx.op)
        if axis_slice.axis is not None and not selects_complete_axis(ctx.op, axis_slice)
    ]
    if partial_slices:
        starts: ValueLike
        ends: ValueLike
        is_static = all(ctx.op[0].dims[axis_slice.axis or 0] is not None for axis_slice in partial_slices)
        if is_static and ctx.op[1].is_constant and ctx.op[2].is_constant:
            starts, ends = zip(*(static_bounds(ctx.op, axis_slice) for axis_slice in partial_slices), strict=True)
        else:
            starts, ends = runtime_bounds(ctx, x, begin, end, partial_slices)
        axes = [ctx.axis(axis_slice.axis or 0) for axis_slice in partial_slices]
        strides = ctx.require_constant(3)
        steps = [1 if axis_slice.shrinks else int(strides[axis_slice.entry or 0]) for axis_slice in partial_slices]
        x = ctx.ops.Slice(x, starts, ends, axes, steps)
    slices = axis_slices(ctx.op)
    if all(axis_slice.axis is not None and not axis_slice.shrinks for axis_slice in slices):
        return x
    if ctx.op[out(0)].dims.count(None) < 2:
        return ctx.reshape_to_slot(x, out(0))
    removed_axes = [
        ctx.axis(axis_slice.axis) for axis_slice in slices if axis_slice.shrinks and axis_slice.axis is not None
    ]
    x = ctx.ops.Squeeze(x, sorted(removed_axes)) if removed_axes else x
    new_axes = [
        ctx.axis(k, out(0))
        for k, axis_slice in enumerate(axis_slice for axis_slice in slices if not axis_slice.shrinks)
        if axis_slice.axis is None
    ]
    return ctx.ops.Unsqueeze(x, sorted(new_axes)) if new_axes else x


# --- slice updates ------------------------------------------------------


def update_axes(at: Instance) -> str:
    """Return the axes; the update has the operand's axes, with different sizes."""
    names = axis_names(at.op[0].rank)
    return format_axes([names, names, None], names)


def update_layout(at: Instance) -> Attribute:
    sizes = enumerate(zip(at.op[0].dims, at.op[1].dims, strict=True))
    return unordered_layout(axis for axis, (n, length) in sizes if n is not None and n == length)


@handler(
    "DYNAMIC_UPDATE_SLICE",
    max_version=6,
    layout=update_layout,
    axes=update_axes,
    result_shape=operand_shape,
    indexed_by_axis={2: 0},
    quantization=Raw(shift_safe=True, onnx="Concat"),
)
def dynamic_update_slice(ctx: Context, x: Value, update: Value, start: Value) -> Value:
    """Emit Concat along each axis, or ScatterND for few rows.

    Concat joins the elements before the update, the update, and the elements after it. A start index is clamped so that the
    update fits (ClampStartIndices, dynamic_update_slice.cc).
    """
    sizes, lengths = ctx.shape(0), ctx.shape(1)
    axes = [axis for axis, (n, m) in enumerate(zip(sizes, lengths, strict=True)) if n is None or n != m]
    starts = cast_to_int64(ctx, 2, start)
    if not axes or 0 in lengths:
        return x if axes else update

    if updates_few_rows(ctx, axes):
        (axis,) = axes
        update_start, _ = update_bounds(ctx, starts, axis, sizes[axis] or 0, lengths[axis] or 0)
        return ctx.ops.ScatterND(x, row_indices(ctx, axis, update_start), update)

    def insert_update(region: Value, remaining_axes: list[int]) -> Value:
        """Return a region of x with the update inserted along the remaining axes."""
        if not remaining_axes:
            return update
        axis, *later_axes = remaining_axes
        update_start, update_end = update_bounds(
            ctx, starts, axis, size_of_axis(ctx, x, axis, sizes), size_of_axis(ctx, update, axis, lengths)
        )
        parts = []
        if not isinstance(update_start, int) or update_start > 0:
            parts.append(ctx.ops.Slice(region, [0], as_vector(update_start), [axis]))
        inner_region = region
        if later_axes:
            inner_region = ctx.ops.Slice(region, as_vector(update_start), as_vector(update_end), [axis])
        parts.append(insert_update(inner_region, later_axes))
        if not isinstance(update_end, int) or update_end != sizes[axis]:
            parts.append(ctx.ops.Slice(region, as_vector(update_end), [INT64.max], [axis]))
        return ctx.ops.Concat(*parts, axis=axis)

    return insert_update(x, axes)


MAX_SCATTERED_ROWS = 256
"""Maximum number of rows for which constant indices are added to the runtime start."""


def updates_few_rows(ctx: Context, axes: Sequence[int]) -> bool:
    """True if the update has few rows along one axis.

    Leading axes must be static, and the start must be a runtime value.
    """
    if len(axes) > 1 or ctx.op[2].is_constant:
        return False
    counts = [*ctx.shape(1)[: axes[0] + 1], ctx.shape(0)[axes[0]]]
    return None not in counts and prod(n or 0 for n in counts[:-1]) <= MAX_SCATTERED_ROWS


def row_indices(ctx: Context, axis: int, start: Position) -> Value | Array:
    """Return the index of each row of the update, shifted by ``start`` along ``axis``."""
    counts = [n or 0 for n in ctx.shape(1)[: axis + 1]]
    rows = np.moveaxis(np.indices(counts), 0, -1)
    positions = ctx.ops.Mul(as_vector(start), np.eye(axis + 1, dtype=np.int64)[-1].reshape([1] * (axis + 1) + [-1]))
    return ctx.ops.Add(positions, rows.astype(np.int64)) if rows.any() else positions


def as_vector(position: Position) -> Value | list[int]:
    return [position] if isinstance(position, int) else position


def size_of_axis(ctx: Context, value: Value, axis: int, dims: Dims) -> Position:
    """Return the size of an axis; a value of shape [1] if it is dynamic."""
    size = dims[axis]
    return ctx.ops.Gather(ctx.ops.Shape(value), [axis]) if size is None else size


def update_bounds(
    ctx: Context, starts: Value | Array, axis: int, size: Position, length: Position
) -> tuple[Position, Position]:
    """Return start and end of the update along an axis.

    Both are numbers, or runtime values of shape [1].
    """
    if isinstance(starts, np.ndarray) and isinstance(size, int) and isinstance(length, int):
        start = min(max(int(starts[axis]), 0), size - length)
        return start, start + length
    ops = ctx.ops
    begin = ops.Min(ops.Max(ops.Gather(starts, [axis]), [0]), ops.Sub(as_vector(size), as_vector(length)))
    return begin, ops.Add(begin, as_vector(length))
