"""Scatter of values into a constant-filled tensor."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Operator, Raw, Refusal, Terminate, Value, handler, out
from op_handlers.kernels.operands import cast_to_int64, shape_from_operand
from op_handlers.kernels.scattering import flatten_indices, index_size, scatter_rows


def has_unique_indices(op: Operator) -> bool:
    """True if constant indices are unique.

    The order of writes then does not matter.
    """
    indices = op.constant(0)
    if indices is None or not indices.shape[-1]:
        return False
    rows = indices.reshape(-1, indices.shape[-1])
    return len({row.tobytes() for row in rows}) == len(rows)


@handler(
    "SCATTER_ND",
    max_version=1,
    layout=Terminate(),
    min_opset=lambda at: 1 if has_unique_indices(at.op) else 16,
    quantization=Raw(),
    result_shape=shape_from_operand(2),
)
def scatter_nd(ctx: Context, indices: Value, updates: Value, shape: Value) -> Value:
    """Emit sums of the updates per index, zero elsewhere.

    Quantized values wrap around (ScatterNd, reference_ops.h).
    """
    positions, sizes = cast_to_int64(ctx, 0, indices), cast_to_int64(ctx, 2, shape)
    depth = index_size(ctx.op, 0)
    zeros = ctx.ops.Expand(ctx.scalar(0, 1), sizes)
    if not depth:
        raise Refusal("the indices have no coordinates; use REDUCE_SUM and RESHAPE instead")
    if ctx.op[2].is_static and ctx.op[2].shape != () and depth > ctx.op[2].shape[0]:
        raise Refusal(f"index vectors have {depth} entries, but the result has {ctx.op[2].shape[0]} axes")
    rows = flatten_indices(ctx, positions, sizes, depth)
    if has_unique_indices(ctx.op):
        return ctx.ops.ScatterND(zeros, positions, updates)
    base, values = ctx.ops.Flatten(zeros, axis=depth), ctx.ops.Flatten(updates, axis=ctx.op[0].rank - 1)
    return reshape_result(ctx, scatter_rows(ctx, base, rows, values, "add"), sizes)


@handler("SPARSE_TO_DENSE", max_version=3, layout=Terminate(), quantization=Raw(), result_shape=shape_from_operand(1))
def sparse_to_dense(ctx: Context, indices: Value, shape: Value, values: Value, default: Value) -> Value:
    """Emit the default value, overwritten by each value at its index.

    The last value of an index is kept (sparse_to_dense.cc).
    """
    positions, sizes = cast_to_int64(ctx, 0, indices), cast_to_int64(ctx, 1, shape)
    depth = index_size(ctx.op, 0) if ctx.op[0].rank == 2 else 1
    if ctx.op[1].is_static and ctx.op[1].shape != (depth,):
        raise Refusal(f"index vectors have {depth} entries, but the result has {list(ctx.op[1].shape)} axes")
    if ctx.op[0].rank < 2:
        positions = (
            positions.reshape(-1, 1) if isinstance(positions, np.ndarray) else ctx.ops.Reshape(positions, [-1, 1])
        )
    rows = flatten_indices(ctx, positions, sizes, depth)
    default_rows = ctx.ops.Reshape(ctx.ops.Expand(default, sizes), [-1, 1])
    updates = ctx.ops.Reshape(ctx.ops.Expand(values, ctx.ops.Shape(rows)), [-1, 1])
    return reshape_result(ctx, scatter_rows(ctx, default_rows, rows, updates), sizes)


def reshape_result(ctx: Context, value: Value, sizes: Value | Array) -> Value:
    """Return a value reshaped to ``sizes``.

    If ``sizes`` are constant, the static shape of the result is used.
    """
    if isinstance(sizes, np.ndarray) and ctx.op[out(0)].is_static:
        return ctx.reshape_to_slot(value, out(0))
    return ctx.ops.Reshape(value, sizes, allowzero=1 if ctx.opset >= 14 else None)
