"""Reductions by segment along the first axes of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Raw, Refusal, Terminate, Value, ValueLike, handler, out
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.kernels.scattering import OUT_OF_RANGE, scatter_rows

TYPES = "T, int32, int32 -> T"


@handler("SEGMENT_SUM", max_version=1, layout=Terminate(), min_opset=16, quantization=Raw(), types="T, int32 -> T")
def segment_sum(ctx: Context, x: Value, ids: Value) -> Value:
    """Emit the sum of each segment, in order from segment 0.

    The kernel requires ascending ids (ValidateSegmentIds, segment_sum.cc).
    """
    segment_ids = cast_to_int64(ctx, 1, ids)
    if isinstance(segment_ids, np.ndarray):
        if segment_ids.size and (segment_ids[0] or not np.isin(np.diff(segment_ids), (0, 1)).all()):
            raise Refusal("segment ids are not ascending from 0, which LiteRT refuses too")
        return combine_slices(ctx, x, segment_ids, [len(np.unique(segment_ids))], 0, "add")
    count = ctx.ops.Add(ctx.ops.ReduceMax(ctx.ops.Concat([-1], segment_ids, axis=0), keepdims=1), 1)
    return combine_slices(ctx, x, segment_ids, count, 0, "add")


# --- unsorted ids -----------------------------------------------------------------------------


@handler("UNSORTED_SEGMENT_SUM", max_version=1, layout=Terminate(), min_opset=16, quantization=Raw(), types=TYPES)
def unsorted_segment_sum(ctx: Context, x: Value, ids: Value, count: Value) -> Value:
    """Emit sums; 0 for empty segments."""
    return combine_unsorted(ctx, x, ids, count, 0, "add")


@handler("UNSORTED_SEGMENT_PROD", max_version=1, layout=Terminate(), min_opset=16, quantization=Raw(), types=TYPES)
def unsorted_segment_prod(ctx: Context, x: Value, ids: Value, count: Value) -> Value:
    """Emit products; 1 for empty segments."""
    return combine_unsorted(ctx, x, ids, count, 1, "mul")


@handler("UNSORTED_SEGMENT_MAX", max_version=1, layout=Terminate(), min_opset=18, quantization=Raw(), types=TYPES)
def unsorted_segment_max(ctx: Context, x: Value, ids: Value, count: Value) -> Value:
    """Emit maxima; the dtype's lowest finite number for empty segments."""
    return combine_unsorted(ctx, replace_nan(ctx, x, dtype_limits(ctx).min), ids, count, dtype_limits(ctx).min, "max")


@handler("UNSORTED_SEGMENT_MIN", max_version=1, layout=Terminate(), min_opset=18, quantization=Raw(), types=TYPES)
def unsorted_segment_min(ctx: Context, x: Value, ids: Value, count: Value) -> Value:
    """Emit minima; the dtype's highest finite number for empty segments."""
    return combine_unsorted(ctx, replace_nan(ctx, x, dtype_limits(ctx).max), ids, count, dtype_limits(ctx).max, "min")


def replace_nan(ctx: Context, x: Value, initial: float) -> Value:
    """Return x with NaN replaced by ``initial``.

    The kernel skips NaN, because no comparison with NaN is true.
    """
    if ctx.op[0].dtype != "float32":
        return x
    return ctx.ops.Where(ctx.ops.IsNaN(x), np.float32(initial), x)


def dtype_limits(ctx: Context) -> np.finfo[Any] | np.iinfo[Any]:
    dtype = np.dtype(ctx.op[0].dtype)
    return np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)


def combine_unsorted(ctx: Context, x: Value, ids: Value, count: Value, initial: float, reduction: str) -> Value:
    """Emit the reduction of slices by segment.

    Slices with negative ids are skipped (UnsortedSegmentRef, reference_ops.h): they go to an additional last segment,
    which is then removed.
    """
    ops = ctx.ops
    segment_ids, segment_count = (
        ops.Reshape(cast_to_int64(ctx, slot, value), [-1]) for slot, value in ((1, ids), (2, count))
    )
    constant_ids, constant_count = ctx.op.constant(1), ctx.op.constant(2)
    if constant_count is not None and (constant_count < 0).any():
        raise Refusal(f"num_segments is {int(constant_count.min())}, expected at least 0")
    if constant_ids is not None and (constant_ids >= 0).all():
        return combine_slices(ctx, x, segment_ids, segment_count, initial, reduction)
    checked_ids = ops.Where(ops.Less(segment_ids, segment_count), segment_ids, OUT_OF_RANGE)
    segment_ids = ops.Where(ops.Less(segment_ids, 0), segment_count, checked_ids)
    combined = combine_slices(ctx, x, segment_ids, ops.Add(segment_count, 1), initial, reduction)
    return ops.Slice(combined, [0], segment_count)


def combine_slices(
    ctx: Context, x: Value, segment_ids: Value | Array, count: ValueLike, initial: float, reduction: str
) -> Value:
    """Scatter the slices of x into ``count`` result slices by ``segment_ids``.

    Result slices start as ``initial``. A slice has the axes of x that follow the axes of the ids.
    """
    ops, id_rank = ctx.ops, ctx.op[1].rank
    shape = count
    if ctx.op[0].rank > id_rank:
        shape = ops.Concat(count, ops.Slice(ops.Shape(x), [id_rank], [OUT_OF_RANGE]), axis=0)
    base = ops.Flatten(ops.Expand(ctx.scalar(initial, out(0)), shape), axis=1)
    result = scatter_rows(ctx, base, segment_ids, ops.Flatten(x, axis=id_rank), reduction)
    return ops.Reshape(result, shape, allowzero=1)
