"""Reductions over axes that may be runtime values, and exact integer reductions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value


def element_count(ctx: Context, x: Value, axes: Value) -> Value | Array:
    """Return the number of elements per result, at least 1.

    The result is a runtime value if sizes or axes are runtime values.
    """
    reduced_axes = constant_reduced_axes(ctx)
    sizes = [None] if reduced_axes is None else [ctx.shape(0)[axis] for axis in reduced_axes]
    if None not in sizes:
        return np.asarray(max(prod(size or 0 for size in sizes), 1))
    runtime_axes = (
        ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64") if reduced_axes is None else np.asarray(reduced_axes)
    )
    return ctx.ops.Max(ctx.ops.ReduceProd(ctx.ops.Gather(ctx.ops.Shape(x), runtime_axes), keepdims=0), np.asarray(1))


UPPER_UNIT = np.int64(2**32)  # value of one in the upper half of int64


def emit_integer_sum(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit the int64 sum of up to 2^21 elements modulo 2^64.

    ONNX Runtime adds in float64, so the halves of int64 are summed separately. ONNX does not define overflow of
    ReduceSum, and ONNX Runtime's 32-bit sums saturate.
    """
    ops = ctx.ops
    if ctx.op[0].dtype == "int32":
        return emit_reduction(ctx, "ReduceSum", ops.Cast(x, to="int64"), axes)
    low = ops.Mod(x, UPPER_UNIT)
    high = ops.Div(ops.Sub(x, low), UPPER_UNIT)
    low_sum, high_sum = (emit_reduction(ctx, "ReduceSum", part, axes) for part in (low, high))
    return ops.Add(ops.Mul(high_sum, UPPER_UNIT), low_sum)


def emit_int64_extreme(ctx: Context, op_type: str, x: Value, axes: Value) -> Value:
    """Emit the minimum or maximum of int64 values by their 32-bit halves.

    ONNX Runtime compares only 32 bits. The extreme of the upper halves is computed first, then the extreme of the lower
    halves of all elements with this upper half.
    """
    if constant_reduced_axes(ctx) == []:
        return x
    ops, middle = ctx.ops, np.int64(2**31)
    low = ops.Mod(x, UPPER_UNIT)
    high = ops.Div(ops.Sub(x, low), UPPER_UNIT)
    extreme_high = emit_reduction(ctx, op_type, high, axes, keep=1)
    excluded = -middle if op_type == "ReduceMax" else middle - 1
    candidates = ops.Where(ops.Equal(high, extreme_high), ops.Sub(low, middle), excluded)
    extreme_low = ops.Add(emit_reduction(ctx, op_type, candidates, axes), middle)
    return ops.Add(ops.Mul(emit_reduction(ctx, op_type, high, axes), UPPER_UNIT), extreme_low)


def empty_result(dtype: str, is_maximum: bool) -> Array:
    """Return the kernel's minimum or maximum of no elements (ReduceGeneric).

    The result is a finite number for floating-point dtypes. ``is_maximum``: the reduction is a maximum, for which the
    result is the dtype's minimum.
    """
    if dtype == "bool":
        return np.asarray(not is_maximum)
    limits: Any = np.finfo(dtype) if "float" in dtype else np.iinfo(dtype)
    return np.asarray(limits.min if is_maximum else limits.max, dtype)


def has_empty_axis(ctx: Context) -> bool:
    """True if a reduced axis has no elements."""
    return 0 in (ctx.shape(0)[axis] for axis in constant_reduced_axes(ctx) or ())


def fill_result(ctx: Context, x: Value, fill_value: Array, reduced_axes: Sequence[int], keep: bool) -> Value:
    """Return ``fill_value`` in the shape of a reduction over empty axes."""
    axes = range(len(ctx.shape(0)))
    if None in ctx.shape(0):
        sizes = ctx.ops.Shape(x)
        if keep:
            is_reduced = np.asarray([k in reduced_axes for k in axes])
            return ctx.ops.Expand(fill_value, ctx.ops.Where(is_reduced, np.int64(1), sizes))
        kept_axes = np.asarray([k for k in axes if k not in reduced_axes], np.int64)
        return ctx.ops.Expand(fill_value, ctx.ops.Gather(sizes, kept_axes))
    result_sizes = [
        1 if k in reduced_axes else size for k, size in enumerate(ctx.shape(0)) if keep or k not in reduced_axes
    ]
    return ctx.ops.Expand(fill_value, np.asarray(result_sizes, np.int64))


def constant_reduced_axes(ctx: Context) -> list[int] | None:
    """Return the distinct reduced axes in the planned layout; None if not constant."""
    constant = ctx.constant(1) if ctx.op[0].rank else np.zeros(0, np.int64)
    return None if constant is None else sorted({int(axis) for axis in constant.reshape(-1)})


def emit_reduction(ctx: Context, op_type: str, x: Value, axes: Value, keep: int | None = None) -> Value:
    """Emit ``Reduce*``, or nothing if there are no axes.

    ``keep``: 1 to keep the axes; by default the option of the operator.
    """
    reduced_axes, keep = constant_reduced_axes(ctx), int(bool(ctx.options.keep_dims)) if keep is None else keep
    if reduced_axes == []:
        return x
    if reduced_axes is not None:
        return ctx.ops.named(op_type)(x, reduced_axes, keepdims=keep)
    runtime_axes = ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64")
    return ctx.ops.named(op_type)(x, runtime_axes, keepdims=keep, noop_with_empty_axes=1)
