"""Slices, strided slices and slice updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Dims,
    Instance,
    Operator,
    Raw,
    Refusal,
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

INT64 = np.iinfo(np.int64)
INT32 = np.iinfo(np.int32)
Place = Value | int
"""Position along one axis; a value of shape [1] if known only at runtime."""


# --- slice ------------------------------------------------------------------------------------


def slice_layout(at: Instance) -> Attribute:
    """Return a layout with fully selected axes unordered."""
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
    holds_batch={2: -1},
)
def slice_(ctx: Context, x: Value, begin: Value, size: Value) -> Value:
    """Emit Slice from begin to begin + size; a size of -1 reaches to the end."""
    first, length = cast_to_int64(ctx, 1, begin), cast_to_int64(ctx, 2, size)
    if isinstance(first, np.ndarray) and isinstance(length, np.ndarray):
        cut = [axis for axis, n in enumerate(ctx.shape(0)) if first[axis] or length[axis] not in (-1, n)]
        ends = np.where(length < 0, INT64.max, first + length)
        return ctx.ops.Slice(x, first[cut], ends[cut], cut) if cut else x
    last = ctx.ops.Where(ctx.ops.Equal(length, -1), INT64.max, ctx.ops.Add(first, length))
    return ctx.ops.Slice(x, first, last, list(range(ctx.op[0].rank)))


# --- strided slice ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """Effect of one entry of begin, end and strides on input axis ``axis``, or ``None`` for a new axis."""

    axis: int | None
    entry: int | None
    begin_masked: bool = True
    end_masked: bool = True
    shrinks: bool = False


def cuts(op: Operator) -> list[Cut]:
    """Return the sparse specification as one cut per axis (BuildStridedSliceParams, kernels/strided_slice.cc).

    An ellipsis stands for the axes that no other entry names, at least one; an entry that is both an ellipsis and a
    new axis is an ellipsis. Bits count positions of the result before it is shrunk; of several ellipses, the last one
    shifts the following entries.
    """
    o, entries, rank = op.options, op[1].shape[0], op[0].rank

    def bit(mask: int, i: int) -> bool:
        return bool(mask >> i & 1)

    new = sum(bit(o.new_axis_mask & ~o.ellipsis_mask, i) for i in range(entries))
    places = rank + new
    wide, fresh, first, extra, i = set[int](), set[int](), places, 0, 0
    while i < places:
        if bit(o.ellipsis_mask, i):
            first, extra = i, max(0, min(places - entries, places - i - 1))
            wide.update(range(i, i + extra + 1))
            i += extra
        elif bit(o.new_axis_mask, i - extra):
            fresh.add(i)
        i += 1
    result: list[Cut] = []
    axis = shift = 0  # the next axis of the input; how many more places there are than entries so far
    for i in range(places):
        if i in wide:
            shift = max(0, i - first)
        if i in fresh:
            result.append(Cut(None, i))
            continue
        k = i - shift
        named = i not in wide and i < entries + extra
        masks = (bit(o.begin_mask, k), bit(o.end_mask, k), bit(o.shrink_axis_mask, k))
        result.append(Cut(axis, k, *masks) if named else Cut(axis, None))
        axis += 1
    return result


def selects_whole_axis(op: Operator, cut: Cut) -> bool:
    """True if the whole axis is selected, forwards."""
    if cut.axis is None or cut.entry is None:
        return cut.axis is not None
    begin, end, strides = (op.constant(slot) for slot in (1, 2, 3))
    if cut.shrinks or strides is None or strides[cut.entry] != 1:
        return False
    size = op[0].dims[cut.axis]
    first = cut.begin_masked or (begin is not None and begin[cut.entry] == 0)
    last = cut.end_masked or (end is not None and end[cut.entry] >= (INT32.max if size is None else size))
    return bool(first and last)


def slice_axes(at: Instance) -> str:
    kept = [
        f"a{cut.axis}" if cut.axis is not None else f"new{i}" for i, cut in enumerate(cuts(at.op)) if not cut.shrinks
    ]
    return format_axes([[f"a{i}" for i in range(at.op[0].rank)]], kept)


def strided_slice_layout(at: Instance) -> Attribute:
    """Return a layout with fully selected axes unordered."""
    return unordered_layout(cut.axis for cut in cuts(at.op) if cut.axis is not None and selects_whole_axis(at.op, cut))


def slice_shape(at: Instance) -> Dims:
    """Return the number of elements of each cut; dynamic if the bounds or the axis are."""
    op = at.op
    strides, settled = op.constant(3), op[1].is_constant and op[2].is_constant
    sizes: list[int | None] = []
    for cut in cuts(op):
        size = 1 if cut.axis is None else op[0].dims[cut.axis]
        if cut.axis is None or selects_whole_axis(op, cut):
            sizes.append(size)
        elif not cut.shrinks and (size is None or not settled or strides is None):
            sizes.append(None)
        elif not cut.shrinks and strides is not None:
            first, last = static_bounds(op, cut)
            stride = int(strides[cut.entry or 0])
            sizes.append(len(range(first, -1 if last == INT64.min else last, stride)))
        elif size is not None and settled:
            static_bounds(op, cut)  # an index outside is refused
    return tuple(sizes)


def check_bounds(at: Instance) -> Decline | None:
    """Return a Decline for entries that the kernel reads beyond the end of begin, end or strides."""
    op = at.op
    lengths = {op[slot].shape for slot in (1, 2, 3) if op[slot].is_static}
    if len(lengths) > 1:
        return Decline(
            f"begin, end and strides have {' and '.join(str(list(shape)) for shape in sorted(lengths))} entries"
        )
    axes = [cut.axis for cut in cuts(op) if cut.axis is not None]
    if axes != list(range(op[0].rank)) or any(
        (cut.entry or 0) >= op[1].shape[0] for cut in cuts(op) if cut.axis is not None
    ):
        return Decline("the masks refer to axes or entries that do not exist, and the kernel reads beyond the end")
    strides = op.constant(3)
    if strides is not None and any(cut.shrinks and strides[cut.entry or 0] < 0 for cut in cuts(op)):
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
    sizes=slice_shape,
    holds_batch={2: INT32.max},
)
def strided_slice(ctx: Context, x: Value, begin: Value, end: Value, _strides: Value) -> Value:
    """Emit Slice, then drop shrunk and insert new axes; masks and constant bounds are resolved at conversion time."""
    taken = [cut for cut in cuts(ctx.op) if cut.axis is not None and not selects_whole_axis(ctx.op, cut)]
    if taken:
        starts: ValueLike
        ends: ValueLike
        if (
            ctx.op[1].is_constant
            and ctx.op[2].is_constant
            and all(ctx.op[0].dims[c.axis or 0] is not None for c in taken)
        ):
            starts, ends = zip(*(static_bounds(ctx.op, cut) for cut in taken), strict=True)
        else:
            starts, ends = runtime_bounds(ctx, x, begin, end, taken)
        axes = [ctx.axis(cut.axis or 0) for cut in taken]
        strides = ctx.require_constant(3)
        steps = [1 if cut.shrinks else int(strides[cut.entry or 0]) for cut in taken]
        x = ctx.ops.Slice(x, starts, ends, axes, steps)
    made = cuts(ctx.op)
    if all(cut.axis is not None and not cut.shrinks for cut in made):
        return x
    if ctx.op[out(0)].dims.count(None) < 2:
        return ctx.reshape_to_slot(x, out(0))
    removed = [ctx.axis(cut.axis) for cut in made if cut.shrinks and cut.axis is not None]
    x = ctx.ops.Squeeze(x, sorted(removed)) if removed else x
    new = [ctx.axis(k, out(0)) for k, cut in enumerate(cut for cut in made if not cut.shrinks) if cut.axis is None]
    return ctx.ops.Unsqueeze(x, sorted(new)) if new else x


def static_bounds(op: Operator, cut: Cut) -> tuple[int, int]:
    """Return start and end for ONNX, clamped as in strided_slice_logic.h, so that no negative value wraps."""
    begin, end, stride = (int(op[k].array[cut.entry or 0]) for k in (1, 2, 3))
    size = op[0].dims[cut.axis or 0] or 0
    low, high = (0, size) if stride > 0 else (-1, size - 1)

    def clamp(index: int) -> int:
        return min(max(index + size if index < 0 else index, low), high)

    first = (0 if stride > 0 else size - 1) if cut.begin_masked else clamp(begin)
    if cut.shrinks:
        if not 0 <= first < size:
            raise Refusal(f"index {begin} is outside axis {cut.axis} of size {size}")
        return first, first + 1
    stop = end + (first if op.options.get("offset") else 0)
    last = (size if stride > 0 else -1) if cut.end_masked else clamp(stop)
    if (last - first) * stride <= 0:
        return 0, 0  # empty, in either direction
    return first, INT64.min if last < 0 else last


def runtime_bounds(ctx: Context, x: Value, begin: Value, end: Value, taken: list[Cut]) -> tuple[Value, Value]:
    """Return bounds known at runtime: masked ends are replaced, a shrunk axis ends one after its index."""
    if ctx.options.get("offset"):
        raise Refusal("offset bounds are runtime values")
    strides = ctx.require_constant(3)
    entries = [cut.entry or 0 for cut in taken]
    forward = np.asarray([int(strides[i]) > 0 or cut.shrinks for i, cut in zip(entries, taken, strict=True)])
    begins, ends = (ctx.ops.Gather(ctx.ops.Cast(v, to="int64"), np.asarray(entries), axis=0) for v in (begin, end))
    masked = np.asarray([cut.begin_masked for cut in taken])
    starts = ctx.ops.Where(masked, np.where(forward, 0, INT64.max), begins)
    shrunk = np.asarray([cut.shrinks for cut in taken])
    if shrunk.any():
        following = ctx.ops.Add(starts, 1)
        following = ctx.ops.Where(ctx.ops.Equal(following, 0), INT64.max, following)
        ends = ctx.ops.Where(shrunk, following, ends)
    masked = np.asarray([cut.end_masked and not cut.shrinks for cut in taken])
    ends = ctx.ops.Where(masked, np.where(forward, INT64.max, INT64.min), ends)
    if forward.all():
        return starts, ends
    # Backwards from before the first element nothing is selected; Slice would start at the first.
    sizes = ctx.ops.Gather(ctx.ops.Shape(x), [ctx.axis(cut.axis or 0) for cut in taken], axis=0)
    before = ctx.ops.And(ctx.ops.Less(starts, ctx.ops.Neg(sizes)), ~forward)
    return starts, ctx.ops.Where(before, 0, ends)


# --- slice updates ------------------------------------------------------


def update_axes(at: Instance) -> str:
    """Return axes; the update has the operand's axes with other sizes."""
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
    sizes=operand_shape,
    indexed_by_axis={2: 0},
    quantization=Raw(shift_safe=True, onnx="Concat"),
)
def dynamic_update_slice(ctx: Context, x: Value, update: Value, start: Value) -> Value:
    """Emit Concat of the parts before, the update, and after, per axis; ScatterND for few rows.

    A start index is clamped so that the update fits (ClampStartIndices, dynamic_update_slice.cc).
    """
    sizes, lengths = ctx.shape(0), ctx.shape(1)
    axes = [axis for axis, (n, m) in enumerate(zip(sizes, lengths, strict=True)) if n is None or n != m]
    starts = cast_to_int64(ctx, 2, start)
    if not axes or 0 in lengths:
        return x if axes else update

    if updates_few_rows(ctx, axes):
        (axis,) = axes
        first, _ = update_bounds(ctx, starts, axis, sizes[axis] or 0, lengths[axis] or 0)
        return ctx.ops.ScatterND(x, row_indices(ctx, axis, first), update)
    whole = x

    def insert(x: Value, axes: list[int]) -> Value:
        if not axes:
            return update
        axis, *others = axes
        first, last = update_bounds(
            ctx, starts, axis, extent(ctx, whole, axis, sizes), extent(ctx, update, axis, lengths)
        )
        parts = []
        if not isinstance(first, int) or first > 0:
            parts.append(ctx.ops.Slice(x, [0], as_vector(first), [axis]))
        parts.append(insert(ctx.ops.Slice(x, as_vector(first), as_vector(last), [axis]) if others else x, others))
        if not isinstance(last, int) or last != sizes[axis]:
            parts.append(ctx.ops.Slice(x, as_vector(last), [INT64.max], [axis]))
        return ctx.ops.Concat(*parts, axis=axis)

    return insert(x, axes)


MAX_SCATTERED_ROWS = 256
"""Maximum number of rows for which constant indices are added to the runtime start."""


def updates_few_rows(ctx: Context, axes: Sequence[int]) -> bool:
    """True if the update is few rows along one axis, after static axes, at a runtime start."""
    if len(axes) > 1 or ctx.op[2].is_constant:
        return False
    counts = [*ctx.shape(1)[: axes[0] + 1], ctx.shape(0)[axes[0]]]
    return None not in counts and prod(n or 0 for n in counts[:-1]) <= MAX_SCATTERED_ROWS


def row_indices(ctx: Context, axis: int, first: Place) -> Value | Array:
    """Return the index of each row of the update, shifted by ``first`` along ``axis``."""
    counts = [n or 0 for n in ctx.shape(1)[: axis + 1]]
    rows = np.moveaxis(np.indices(counts), 0, -1)
    positions = ctx.ops.Mul(as_vector(first), np.eye(axis + 1, dtype=np.int64)[-1].reshape([1] * (axis + 1) + [-1]))
    return ctx.ops.Add(positions, rows.astype(np.int64)) if rows.any() else positions


def as_vector(place: Place) -> Value | list[int]:
    return [place] if isinstance(place, int) else place


def extent(ctx: Context, value: Value, axis: int, dims: Dims) -> Place:
    """Return the size of an axis: a number, or a value of shape [1] for a dynamic dimension."""
    size = dims[axis]
    return ctx.ops.Gather(ctx.ops.Shape(value), [axis]) if size is None else size


def update_bounds(ctx: Context, starts: Value | Array, axis: int, size: Place, length: Place) -> tuple[Place, Place]:
    """Return start and end of the update along an axis: numbers, or values of shape [1] at runtime."""
    if isinstance(starts, np.ndarray) and isinstance(size, int) and isinstance(length, int):
        first = min(max(int(starts[axis]), 0), size - length)
        return first, first + length
    ops = ctx.ops
    begin = ops.Min(ops.Max(ops.Gather(starts, [axis]), [0]), ops.Sub(as_vector(size), as_vector(length)))
    return begin, ops.Add(begin, as_vector(length))
