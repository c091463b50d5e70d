"""InTopK, counts of values and the largest values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Operator,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import (
    INDICES,
    acceptance_check,
    element_count_check,
    make_kernel,
    rank_check,
    rewrite_to,
    rewrite_with_int32,
)
from op_handlers.kernels.operands import reshape_to_scalar
from op_handlers.tensor import ordering

# --- ranks and counts -------------------------------------------------------------------------


def in_top_k_kernel(predictions: Array, targets: Array, k: Array) -> Array:
    exists = (targets >= 0) & (targets < predictions.shape[1])
    scores = np.take_along_axis(predictions, np.where(exists, targets, 0)[:, None], 1)
    return np.asarray(exists & np.isfinite(predictions).all(1) & ((predictions > scores).sum(1) < k.reshape(())))


@handler(
    PREFIX + "InTopKV2",
    max_version=1,
    layout=Terminate(),
    types=(f"float32, {INDICES}, {INDICES} -> bool",),
    result_dtypes={"*": ("*",)},
    accepts=acceptance_check(3, accepts=rank_check({0: 2, 1: 1}, element_count_check(slot=2, count=1))),
    kernel=make_kernel(in_top_k_kernel),
)
def in_top_k(ctx: Context, predictions: Value, targets: Value, k: Value) -> Value:
    """Emit a comparison of k with the number of predictions above the target's score.

    The result is false for rows with predictions that are not finite (in_topk_op.h).
    """
    ops, zero = ctx.ops, np.int64(0)
    class_count = ops.Slice(ops.Shape(predictions), [1], [2])
    classes = ops.Cast(targets, to="int64")
    exists = ops.And(ops.GreaterOrEqual(classes, zero), ops.Less(classes, class_count))
    score = ops.GatherElements(predictions, ops.Unsqueeze(ops.Where(exists, classes, zero), [1]), axis=1)
    larger = ops.Cast(ops.Greater(predictions, score), to="int64")
    larger_count = ops.ReduceSum(larger, np.asarray([1]), keepdims=0)
    not_finite = ops.Cast(ops.Or(ops.IsInf(predictions), ops.IsNaN(predictions)), to="int64")
    is_finite = ops.Equal(ops.ReduceSum(not_finite, np.asarray([1]), keepdims=0), zero)
    return ops.And(ops.And(exists, is_finite), ops.Less(larger_count, int64_scalar(ctx, 2, k)))


def int64_scalar(ctx: Context, slot: int, value: Value) -> Value:
    """Return an operand of one element as an int64 scalar."""
    return ctx.ops.Cast(reshape_to_scalar(ctx, slot, value), to="int64")


def check_counted_rank(instance: Instance) -> Decline | None:
    x, weights = instance.op[0], instance.op[2]
    if x.rank not in (1, 2):
        return Decline(f"the values have rank {x.rank}, expected 1 or 2")
    if None in weights.dims and weights.dims != x.dims:
        return Decline(
            "the weights have a dynamic shape, so they may be empty, and empty weights would count each value once"
        )
    return None


def bincount_kernel(op: Operator, x: Array, size: Array, weights: Array) -> Array:
    dtype = weights.dtype
    is_bin = x[..., None] == np.arange(int(size.reshape(-1)[0]))
    if node_of(op).flag("binary_output"):
        return np.asarray(is_bin.any(-2), dtype)
    return np.asarray(np.where(is_bin, weights[..., None] if weights.size else np.ones((), dtype), 0).sum(-2), dtype)


@handler(
    PREFIX + "DenseBincount",
    max_version=1,
    layout=Terminate(),
    types=tuple(f"{INDICES}, {INDICES}, {dtype} -> {dtype}" for dtype in ("float32", "int32", "int64")),
    accepts=acceptance_check(3, accepts=element_count_check(check_counted_rank, slot=1, count=1)),
    kernel=bincount_kernel,
)
def dense_bincount(ctx: Context, x: Value, size: Value, weights: Value) -> Value:
    """Emit a comparison of x with each bin, and the sum or maximum of the matches.

    Values of ``size`` or more are not counted.
    """
    ops, dtype, is_binary = ctx.ops, ctx.op[2].dtype, node_of(ctx.op).flag("binary_output")
    bins = ops.Range(np.int64(0), int64_scalar(ctx, 1, size), np.int64(1))
    is_bin = ops.Equal(ops.Unsqueeze(ops.Cast(x, to="int64"), [-1]), bins)
    if 0 in ctx.op[2].dims or is_binary:
        matches = ops.Cast(is_bin, to=dtype)
    else:
        matches = ops.Where(is_bin, ops.Unsqueeze(weights, [-1]), np.zeros((), dtype))
    reduce: Callable[..., Value] = ops.ReduceMax if is_binary else ops.ReduceSum
    return reduce(matches, np.asarray([-2]), keepdims=0)


def unique_kernel(op: Operator, x: Array) -> Sequence[Array]:
    _, first_positions, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first_positions)
    return [
        x[first_positions[order]],
        np.argsort(order)[inverse].astype(op[out(1)].dtype),
        counts[order].astype(op[out(2)].dtype),
    ]


@handler(
    PREFIX + "UniqueWithCounts",
    max_version=1,
    layout=Terminate(),
    types=tuple(
        f"{dtype} -> {dtype}, {INDICES}, {INDICES}"
        for dtype in ["float32", "float64", "int32", "int64", "int8", "uint8"]
    ),
    accepts=acceptance_check(1, accepts=rank_check({0: 1})),
    kernel=unique_kernel,
)
def unique_with_counts(ctx: Context, x: Value) -> tuple[Value, Value, Value]:
    """Emit Unique in order of first occurrence."""
    ops = ctx.ops
    values, _, indices, counts = ops.Unique(x, sorted=0, outputs=4)
    return values, ops.Cast(indices, to=ctx.op[out(1)].dtype), ops.Cast(counts, to=ctx.op[out(2)].dtype)


def top_k_kernel(op: Operator, x: Array, k: Array) -> Sequence[Array]:
    indices = np.argsort(-x, axis=-1, kind="stable")[..., : int(k)]
    return [np.take_along_axis(x, indices, -1), indices.astype(op[out(1)].dtype)]


def check_sorted(instance: Instance) -> Decline | None:
    """Return a Decline if the result may have any order."""
    return (
        None
        if node_of(instance.op).flag("sorted", True)
        else Decline("attribute sorted is false, so the order of the results is undefined")
    )


top_k_v2 = rewrite_to(
    "TopKV2",
    ordering.topk_v2,
    top_k_kernel,
    operands=2,
    rewrite=rewrite_with_int32(ordering.topk_v2, 1),
    types=tuple(
        f"{dtype}, int16 int32 int64 -> {dtype}, int16 int32 int64"
        for dtype in ("float32", "float64", "int32", "int64")
    ),
    accepts=element_count_check(check_sorted, slot=1, count=1),
)
