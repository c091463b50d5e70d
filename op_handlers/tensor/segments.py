"""Reductions of rows by segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Raw, Refusal, Terminate, Value, ValueLike, handler, out
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.kernels.scattering import OUT_OF_RANGE, scatter_rows

TYPES = "T, int32, int32 -> T"


@handler("SEGMENT_SUM", max_version=1, layout=Terminate(), min_opset=16, quantization=Raw(), types="T, int32 -> T")
def segment_sum(ctx: Context, x: Value, ids: Value) -> Value:
    """Emit one row per segment, in order from 0.

    The kernel requires ascending ids (ValidateSegmentIds, segment_sum.cc).
    """
    rows = cast_to_int64(ctx, 1, ids)
    if isinstance(rows, np.ndarray):
        if rows.size and (rows[0] or not np.isin(np.diff(rows), (0, 1)).all()):
            raise Refusal("segment ids are not ascending from 0, which LiteRT refuses too")
        return combine_rows(ctx, x, rows, [len(np.unique(rows))], 0, "add")
    count = ctx.ops.Add(ctx.ops.ReduceMax(ctx.ops.Concat([-1], rows, axis=0), keepdims=1), 1)
    return combine_rows(ctx, x, rows, count, 0, "add")


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
    return combine_unsorted(ctx, replace_nan(ctx, x, limits(ctx).min), ids, count, limits(ctx).min, "max")


@handler("UNSORTED_SEGMENT_MIN", max_version=1, layout=Terminate(), min_opset=18, quantization=Raw(), types=TYPES)
def unsorted_segment_min(ctx: Context, x: Value, ids: Value, count: Value) -> Value:
    """Emit minima; the dtype's highest finite number for empty segments."""
    return combine_unsorted(ctx, replace_nan(ctx, x, limits(ctx).max), ids, count, limits(ctx).max, "min")


def replace_nan(ctx: Context, x: Value, initial: float) -> Value:
    """Return x with NaN replaced by ``initial``.

    The kernel skips NaN, because no comparison with NaN is true.
    """
    if ctx.op[0].dtype != "float32":
        return x
    return ctx.ops.Where(ctx.ops.IsNaN(x), np.float32(initial), x)


def limits(ctx: Context) -> np.finfo[Any] | np.iinfo[Any]:
    dtype = np.dtype(ctx.op[0].dtype)
    return np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)


def combine_unsorted(ctx: Context, x: Value, ids: Value, count: Value, initial: float, reduction: str) -> Value:
    """Emit the reduction of rows by segment.

    Rows with negative ids are skipped (UnsortedSegmentRef, reference_ops.h): they go to an additional last row, which
    is then removed.
    """
    ops = ctx.ops
    rows, segments = (ops.Reshape(cast_to_int64(ctx, slot, value), [-1]) for slot, value in ((1, ids), (2, count)))
    constant, segment_count = ctx.op.constant(1), ctx.op.constant(2)
    if segment_count is not None and (segment_count < 0).any():
        raise Refusal(f"num_segments is {int(segment_count.min())}, expected at least 0")
    if constant is not None and (constant >= 0).all():
        return combine_rows(ctx, x, rows, segments, initial, reduction)
    checked = ops.Where(ops.Less(rows, segments), rows, OUT_OF_RANGE)
    rows = ops.Where(ops.Less(rows, 0), segments, checked)
    return ops.Slice(combine_rows(ctx, x, rows, ops.Add(segments, 1), initial, reduction), [0], segments)


def combine_rows(
    ctx: Context, x: Value, rows: Value | Array, count: ValueLike, initial: float, reduction: str
) -> Value:
    """Return ``count`` rows, each combined with the assigned rows of x.

    Result rows start as ``initial``. ``rows`` assigns each row of x to a result row. A row of x consists of the axes
    after those that it shares with the ids.
    """
    ops, id_rank = ctx.ops, ctx.op[1].rank
    sizes = count
    if ctx.op[0].rank > id_rank:
        sizes = ops.Concat(count, ops.Slice(ops.Shape(x), [id_rank], [OUT_OF_RANGE]), axis=0)
    base = ops.Flatten(ops.Expand(ctx.scalar(initial, out(0)), sizes), axis=1)
    result = scatter_rows(ctx, base, rows, ops.Flatten(x, axis=id_rank), reduction)
    return ops.Reshape(result, sizes, allowzero=1)
