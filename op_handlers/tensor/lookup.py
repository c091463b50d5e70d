"""Lookup of table rows by key, and weighted sums of rows."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Instance, NotQuantizable, Raw, Terminate, Value, handler
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.kernels.scattering import flatten_indices, scatter_rows

# --- by key -----------------------------------------------------------------------------------


def check_keys(at: Instance) -> Decline | None:
    """Return a Decline for unsorted keys.

    The binary search of the kernel may not find them.
    """
    keys = at.op.constant(1)
    if keys is None or (np.diff(keys.astype(np.int64)) > 0).all():
        return None
    return Decline(
        "the keys are not ascending, which the kernel's binary search requires; sort them without duplicates"
    )


@handler("HASHTABLE_LOOKUP", max_version=1, layout=Terminate(), quantization=Raw(), accepts=check_keys)
def hashtable_lookup(ctx: Context, lookup: Value, keys: Value, table: Value) -> tuple[Value, Value]:
    """Emit Gather from the table, with an additional row for missing keys.

    This row contains zeros, or an empty string.
    """
    ops = ctx.ops
    matches = ops.Cast(ops.Equal(ops.Unsqueeze(lookup, [1]), keys), to="int32")
    first_match = ops.ArgMax(matches, axis=1, keepdims=0)
    is_found = ops.Equal(ops.Gather(keys, first_match), lookup)
    rows = ops.Where(is_found, first_match, ops.Shape(keys))
    return ops.Gather(ops.Concat(table, empty_row(ctx, table), axis=0), rows, axis=0), ops.Cast(is_found, to="uint8")


def empty_row(ctx: Context, table: Value) -> Value | Array:
    if ctx.op[2].dtype == "string":
        return np.array([b""], object)
    shape = ctx.ops.Concat([1], ctx.ops.Slice(ctx.ops.Shape(table), [1], [ctx.op[2].rank]), axis=0)
    return ctx.ops.Expand(ctx.scalar(0, 2), shape)


# --- weighted sums ----------------------------------------------------------------------------


def check_ascending(at: Instance) -> Decline | None:
    """Return a Decline unless indices are sorted.

    The kernel divides a sum at the end of each run of equal rows.
    """
    index_tensor, shape = at.op[1], at.op[2]
    if index_tensor.is_static and shape.is_static and index_tensor.shape[1:] != shape.shape:
        return Decline(
            f"the indices have shape {list(index_tensor.shape)}, expected one entry for each of {list(shape.shape)} sizes"
        )
    indices, sizes = at.op.constant(1), at.op.constant(2)
    if at.op.options.combiner == "SUM" or indices is None or sizes is None or indices.shape[1] < 2:
        return None
    rows = np.ravel_multi_index(tuple(indices[:, :-1].T), tuple(sizes[:-1]), mode="wrap")
    if (np.diff(rows) >= 0).all():
        return None
    return Decline("the indices are not sorted, so the kernel would divide incomplete sums; sort them")


@handler(
    "EMBEDDING_LOOKUP_SPARSE",
    max_version=1,
    layout=Terminate(),
    min_opset=16,
    quantization=NotQuantizable(),
    types="int32, int32, int32, float32, float32 -> float32",
    accepts=check_ascending,
)
def embedding_lookup_sparse(
    ctx: Context, ids: Value, indices: Value, shape: Value, weights: Value, table: Value
) -> Value:
    """Emit sums of weighted rows with equal indices (embedding_lookup_sparse.cc).

    Indices that differ only in the last entry count as equal. Sums are divided by the sum of the weights (MEAN) or by
    the root of the sum of squared weights (SQRTN). Indices must be sorted. Results without rows are 0.
    """
    ops, depth = ctx.ops, ctx.op[1].shape[1] - 1
    sizes = ops.Slice(cast_to_int64(ctx, 2, shape), [0], [depth])
    result_shape = ops.Concat(sizes, ops.Slice(ops.Shape(table), [1], [ctx.op[4].rank]), axis=0)
    rows = flatten_indices(ctx, cast_to_int64(ctx, 1, indices), cast_to_int64(ctx, 2, shape), depth)
    weight = ops.Unsqueeze(weights, [1])
    weighted_rows = ops.Mul(ops.Flatten(ops.Gather(table, ids, axis=0), axis=1), weight)
    sums = scatter_rows(ctx, ops.Flatten(ops.Expand(0.0, result_shape), axis=depth), rows, weighted_rows, "add")
    if ctx.options.combiner != "SUM":
        zero_column = ops.Reshape(ops.Expand(0.0, sizes), [-1, 1])
        uses_squares = ctx.options.combiner == "SQRTN"
        divisor = scatter_rows(ctx, zero_column, rows, ops.Mul(weight, weight) if uses_squares else weight, "add")
        is_filled = ops.Greater(scatter_rows(ctx, zero_column, rows, ops.Expand(1.0, ops.Shape(weight))), 0.0)
        sums = ops.Where(is_filled, ops.Div(sums, ops.Sqrt(divisor) if uses_squares else divisor), sums)
    return ops.Reshape(sums, result_shape, allowzero=1)
