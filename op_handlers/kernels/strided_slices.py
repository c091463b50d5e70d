"""Slices of each axis that the masks and bounds of a STRIDED_SLICE select."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_tflite_plugin.api import Context, Operator, Refusal, Value

INT64 = np.iinfo(np.int64)
INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class AxisSlice:
    """Slice of one input axis, or a new axis.

    ``axis``: the input axis; None for a new axis. ``entry``: position in begin, end and strides; unused for a new
    axis. ``entry`` is None if an ellipsis or the end of the lists selects the complete axis. ``begin_masked`` and
    ``end_masked``: True if the bound is ignored. ``shrinks``: True if the slice is one element, whose axis is
    removed.
    """

    axis: int | None
    entry: int | None
    begin_masked: bool = True
    end_masked: bool = True
    shrinks: bool = False


def axis_slices(op: Operator) -> list[AxisSlice]:
    """Return the slices of the input axes and the new axes, in the result's order.

    For example, let x have the shape [2, 3, 4, 5]. ``x[1, ..., np.newaxis, 0:2]`` has four entries, with
    shrink_axis_mask 1, ellipsis_mask 2 and new_axis_mask 4. The slices are axis 0 by entry 0 (shrunk), axes 1 and 2
    completely (the ellipsis), a new axis, and axis 3 by entry 3.

    An ellipsis stands for the axes that have no entry, and for at least one axis. An entry that is both an ellipsis
    and a new axis is an ellipsis. Bit i of new_axis_mask refers to position i of the result before it is shrunk,
    counted without the additional axes of the ellipsis. If there are several ellipses, the last one shifts the
    following entries. Source: BuildStridedSliceParams (kernels/strided_slice.cc).
    """
    options, entries, rank = op.options, op[1].shape[0], op[0].rank

    def is_set(mask: int, i: int) -> bool:
        return bool(mask >> i & 1)

    new_axes = sum(is_set(options.new_axis_mask & ~options.ellipsis_mask, i) for i in range(entries))
    position_count = rank + new_axes
    ellipsis_positions, new_positions = set[int](), set[int]()
    ellipsis_start, extra_ellipsis_axes, i = position_count, 0, 0
    while i < position_count:
        if is_set(options.ellipsis_mask, i):
            ellipsis_start, extra_ellipsis_axes = i, max(0, min(position_count - entries, position_count - i - 1))
            ellipsis_positions.update(range(i, i + extra_ellipsis_axes + 1))
            i += extra_ellipsis_axes
        elif is_set(options.new_axis_mask, i - extra_ellipsis_axes):
            new_positions.add(i)
        i += 1
    result: list[AxisSlice] = []
    axis = shift = 0  # next axis of the input; number of positions minus number of entries so far
    for i in range(position_count):
        if i in ellipsis_positions:
            shift = max(0, i - ellipsis_start)
        if i in new_positions:
            result.append(AxisSlice(None, i))
            continue
        entry = i - shift
        has_entry = i not in ellipsis_positions and i < entries + extra_ellipsis_axes
        masks = (
            is_set(options.begin_mask, entry),
            is_set(options.end_mask, entry),
            is_set(options.shrink_axis_mask, entry),
        )
        result.append(AxisSlice(axis, entry, *masks) if has_entry else AxisSlice(axis, None))
        axis += 1
    return result


def selects_complete_axis(op: Operator, axis_slice: AxisSlice) -> bool:
    """True if the complete axis is selected, in order."""
    if axis_slice.axis is None or axis_slice.entry is None:
        return axis_slice.axis is not None
    begin, end, strides = (op.constant(slot) for slot in (1, 2, 3))
    if axis_slice.shrinks or strides is None or strides[axis_slice.entry] != 1:
        return False
    size = op[0].dims[axis_slice.axis]
    from_start = axis_slice.begin_masked or (begin is not None and begin[axis_slice.entry] == 0)
    to_end = axis_slice.end_masked or (
        end is not None and end[axis_slice.entry] >= (INT32.max if size is None else size)
    )
    return bool(from_start and to_end)


def static_bounds(op: Operator, axis_slice: AxisSlice) -> tuple[int, int]:
    """Return start and end for ONNX, clamped as in the kernel (strided_slice_logic.h).

    Raises Refusal for an index out of range.
    """
    begin, end, stride = (int(op[k].array[axis_slice.entry or 0]) for k in (1, 2, 3))
    size = op[0].dims[axis_slice.axis or 0] or 0
    low, high = (0, size) if stride > 0 else (-1, size - 1)

    def clamp(index: int) -> int:
        return min(max(index + size if index < 0 else index, low), high)

    start = (0 if stride > 0 else size - 1) if axis_slice.begin_masked else clamp(begin)
    if axis_slice.shrinks:
        if not 0 <= start < size:
            raise Refusal(f"index {begin} is outside axis {axis_slice.axis} of size {size}")
        return start, start + 1
    end_index = end + (start if op.options.get("offset") else 0)
    stop = (size if stride > 0 else -1) if axis_slice.end_masked else clamp(end_index)
    if (stop - start) * stride <= 0:
        return 0, 0  # empty, in either direction
    return start, INT64.min if stop < 0 else stop


def runtime_bounds(
    ctx: Context, x: Value, begin: Value, end: Value, partial_slices: list[AxisSlice]
) -> tuple[Value, Value]:
    """Return starts and ends for ONNX, for bounds that are runtime values.

    ``partial_slices``: the axes to slice. Masked bounds select to the end of the axis, and a shrunk axis ends one after
    its index. Raises Refusal if the end is an offset from the start.
    """
    if ctx.options.get("offset"):
        raise Refusal("option offset is set, but begin and end are runtime values; they must be constants")
    strides = ctx.require_constant(3)
    entries = [axis_slice.entry or 0 for axis_slice in partial_slices]
    forward = np.asarray(
        [int(strides[i]) > 0 or axis_slice.shrinks for i, axis_slice in zip(entries, partial_slices, strict=True)]
    )
    begins, ends = (ctx.ops.Gather(ctx.ops.Cast(v, to="int64"), np.asarray(entries), axis=0) for v in (begin, end))
    is_masked = np.asarray([axis_slice.begin_masked for axis_slice in partial_slices])
    starts = ctx.ops.Where(is_masked, np.where(forward, 0, INT64.max), begins)
    is_shrunk = np.asarray([axis_slice.shrinks for axis_slice in partial_slices])
    if is_shrunk.any():
        next_index = ctx.ops.Add(starts, 1)
        next_index = ctx.ops.Where(ctx.ops.Equal(next_index, 0), INT64.max, next_index)
        ends = ctx.ops.Where(is_shrunk, next_index, ends)
    is_masked = np.asarray([axis_slice.end_masked and not axis_slice.shrinks for axis_slice in partial_slices])
    ends = ctx.ops.Where(is_masked, np.where(forward, INT64.max, INT64.min), ends)
    if forward.all():
        return starts, ends
    # A negative stride from before the first element selects nothing; ONNX's Slice would start at the first element.
    sizes = ctx.ops.Gather(ctx.ops.Shape(x), [ctx.axis(axis_slice.axis or 0) for axis_slice in partial_slices], axis=0)
    is_empty = ctx.ops.And(ctx.ops.Less(starts, ctx.ops.Neg(sizes)), ~forward)
    return starts, ctx.ops.Where(is_empty, 0, ends)
