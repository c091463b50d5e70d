"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    AxisPrice,
    Behavior,
    Context,
    Decline,
    Dequantized,
    Dims,
    Handler,
    Instance,
    NotQuantizable,
    Quantization,
    Raw,
    Refusal,
    Value,
    constant_axes,
    handler,
    out,
    reduction_axes,
)
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.kernels.operands import rank_preserving_axes, require_quantization, require_scale, unordered_layout
from op_handlers.kernels.reductions import (
    constant_reduced_axes,
    element_count,
    emit_int64_extreme,
    emit_integer_sum,
    emit_reduction,
    empty_result,
    fill_result,
    has_empty_axis,
)
from op_handlers.kernels.rescaling import emit_fixed_point_product


def price_along_axes(op_type: str) -> Callable[[Instance], AxisPrice | None]:
    """Return an ``axis_price`` function for an ONNX operator along the axes in slot 1."""

    def price(at: Instance) -> AxisPrice | None:
        reduced_axes = constant_axes(at.op, 1, at.op[0].rank)
        return None if reduced_axes is None else AxisPrice(op_type, " ".join(f"a{axis}" for axis in reduced_axes))

    return price


def reduction_shape(at: Instance) -> Dims:
    """Return the shape without the reduced axes, or with 1 in their place.

    All sizes are dynamic if the axes are runtime values.
    """
    op, reduced_axes = at.op, constant_axes(at.op, 1, at.op[0].rank)
    if reduced_axes is None:
        return (None,) * (op[0].rank if op.options.keep_dims else op[out(0)].rank)
    sizes_with_ones = [1 if axis in reduced_axes else size for axis, size in enumerate(op[0].dims)]
    return tuple(size for axis, size in enumerate(sizes_with_ones) if op.options.keep_dims or axis not in reduced_axes)


def reduction_handler(
    code: str,
    op_type: str,
    *,
    max_version: int,
    quantization: Behavior | Callable[[Instance], Behavior],
    accepts: Callable[[Instance], Decline | None] | None = None,
) -> Callable[[Callable[..., Any]], Handler]:
    """Return the handler decorator of a reduction over the axes in slot 1."""
    return handler(
        code,
        max_version=max_version,
        layout=Attribute(unordered="*"),
        axes=reduction_axes(1),
        axis_price=price_along_axes(op_type),
        axis_number_slots={1},
        quantization=quantization,
        accepts=accepts,
        result_shape=reduction_shape,
        shape_options={"keep_dims"},
    )


REQUIRE_SCALE = require_scale("int8", "uint8", "int16")
MAX_FLOAT_STEPS = 16
"""Maximum ratio of operand and result scale for which the rounding of float sums does not matter."""


def mean_quantization(at: Instance) -> Dequantized:
    """Return Dequantized, with a quantized operand if a float mean would differ.

    A float mean is rounded once, but the int16 kernel rounds twice. Where values cancel out, the scale of the mean
    may be so small that float rounding errors are many steps.
    """
    x_quantization, y_quantization = at.op[0].quantization, at.op[out(0)].quantization
    if not isinstance(x_quantization, Quantization) or not isinstance(y_quantization, Quantization):
        return Dequantized()
    if constant_axes(at.op, 1, at.op[0].rank) is None:
        return Dequantized()
    has_small_scale = x_quantization.scale[0] > MAX_FLOAT_STEPS * y_quantization.scale[0]
    return Dequantized(as_in_file=(0,)) if has_small_scale or sum_multiplier(at) is not None else Dequantized()


@reduction_handler("MEAN", "ReduceMean", max_version=3, quantization=mean_quantization, accepts=REQUIRE_SCALE)
def mean(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceMean, or GlobalAveragePool over all trailing axes.

    Runtimes fuse GlobalAveragePool with quantization. Means of integers are truncated toward zero.
    """
    reduced_axes = constant_reduced_axes(ctx)
    if 0 in mean_quantization(ctx).as_in_file and not has_empty_axis(ctx):
        return emit_integer_mean(ctx, x, axes)
    if not reduced_axes:
        return emit_reduction(ctx, "ReduceMean", x, axes)
    dtype = ctx.op[0].dtype
    if dtype in ("int32", "int64"):
        quotient = ctx.ops.Div(emit_integer_sum(ctx, x, axes), element_count(ctx, x, axes))
        return quotient if dtype == "int64" else ctx.ops.Cast(quotient, to=dtype)
    if has_empty_axis(ctx):
        if ctx.is_quantized:
            raise Refusal("the reduced axes are empty, and the kernel leaves the result unset; give sizes above 0")
        return fill_result(ctx, x, np.asarray(np.nan, dtype), reduced_axes, keep=bool(ctx.options.keep_dims))
    if (
        "GlobalAveragePool" in ctx.target.fast_operators
        and reduced_axes == list(range(2, ctx.op[0].rank))
        and can_pool(ctx)
    ):
        pooled = ctx.quantize(ctx.ops.GlobalAveragePool(x), like=out(0))
        return pooled if ctx.options.keep_dims else ctx.ops.Squeeze(pooled, reduced_axes)
    return emit_reduction(ctx, "ReduceMean", x, axes)


def sum_multiplier(at: Instance) -> tuple[int, int] | None:
    """Return the mantissa and exponent that rescale an int16 sum to the mean.

    Source: QuantizedMeanOrSum (reference/reduce.h). The result is None for 8-bit sums, which XNNPACK multiplies by a
    float, and if no 32-bit multiplier exists.
    """
    op, reduced_axes = at.op, constant_axes(at.op, 1, at.op[0].rank) or ()
    count = prod(op[0].dims[axis] or 0 for axis in reduced_axes if axis < op[0].rank)  # axes of a scalar are ignored
    scales = [require_quantization(tensor).scale[0] for tensor in (op[0], op[out(0)])]
    if op[0].dtype != "int16" or not count or 0.0 in scales:
        return None
    mantissa, exponent = quantized_multiplier(scales[0] / scales[1])
    shift = min(count.bit_length() - 1, 31 + exponent)
    return ((mantissa << shift) // count, exponent - shift) if -31 <= exponent < 31 else None


def emit_integer_mean(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit the exact sum of quantized values times a factor.

    The factor is a float. For int16, it is the kernel's fixed-point factor, whose product wraps around in 32 bits.
    """
    ops, multiplier, y_quantization = ctx.ops, sum_multiplier(ctx), require_quantization(ctx.op[out(0)])
    scale, zero_point = require_quantization(ctx.op[0]).scale[0], require_quantization(ctx.op[0]).zero_point[0]
    integers = ops.Cast(x, to="int32")
    total = emit_reduction(ctx, "ReduceSum", ops.Sub(integers, np.int32(zero_point)) if zero_point else integers, axes)
    if multiplier is not None:
        return ops.Mul(
            ops.Cast(emit_fixed_point_product(ctx, total, *multiplier), to="float32"), y_quantization.scale[0]
        )
    count = element_count(ctx, x, axes)
    divisor = np.float32(count) if isinstance(count, np.ndarray) else ops.Cast(count, to="float32")
    return ops.Div(ops.Mul(ops.Cast(total, to="float32"), scale), divisor)


def can_pool(ctx: Context) -> bool:
    """True if ONNX Runtime's quantized pool can compute this mean of images.

    The pool throws if the factor is out of range (CheckQLinearGlobalAveragePoolScaleAndSize, mlas/lib/qlgavgpool.cpp).
    """
    x, y, sizes = ctx.quantization(0), ctx.quantization(out(0)), ctx.shape(0)[2:]
    if x is None or y is None:
        return True
    element_counts = [1, 2**24 - 1] if None in sizes else [prod(size or 1 for size in sizes)]
    factors = [x.scale[0] / (y.scale[0] * count) for count in element_counts]
    return element_counts[0] < 2**24 and all(2.0**-32 <= factor < 256 for factor in factors)


@reduction_handler("SUM", "ReduceSum", max_version=2, quantization=Dequantized(), accepts=REQUIRE_SCALE)
def total(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceSum.

    Quantized sums are rescaled to the parameters of the output. Other integers wrap around.
    """
    dtype = ctx.op[0].dtype
    if dtype not in ("int32", "int64"):
        return emit_reduction(ctx, "ReduceSum", x, axes)
    result = emit_integer_sum(ctx, x, axes)
    return result if dtype == "int64" else ctx.ops.Cast(result, to=dtype)


@reduction_handler("REDUCE_MAX", "ReduceMax", max_version=3, quantization=Raw(shift_safe=True))
def reduce_max(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceMax of quantized values; the output's parameters are ignored."""
    return emit_extreme(ctx, "ReduceMax", x, axes)


@reduction_handler("REDUCE_MIN", "ReduceMin", max_version=3, quantization=Raw(shift_safe=True))
def reduce_min(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceMin of quantized values; the output's parameters are ignored."""
    return emit_extreme(ctx, "ReduceMin", x, axes)


def emit_extreme(ctx: Context, op_type: str, x: Value, axes: Value) -> Value:
    """Emit ``ReduceMax`` or ``ReduceMin``; for empty axes, the kernel's initial value."""
    if has_empty_axis(ctx):
        fill_value = empty_result(ctx.dtype(0), is_maximum=op_type == "ReduceMax")
        return fill_result(ctx, x, fill_value, constant_reduced_axes(ctx) or (), keep=bool(ctx.options.keep_dims))
    return (
        emit_int64_extreme(ctx, op_type, x, axes) if ctx.dtype(0) == "int64" else emit_reduction(ctx, op_type, x, axes)
    )


# --- logic --------------------------------------------------------------------------------------


@reduction_handler("REDUCE_ANY", "ReduceSum", max_version=1, quantization=NotQuantizable())
def reduce_any(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit True if any element is true, so False for no elements (reduce.cc)."""
    return ctx.reshape_to_slot(x, out(0)) if is_reshape(ctx) else emit_any(ctx, x, axes)


@reduction_handler("REDUCE_ALL", "ReduceSum", max_version=1, quantization=NotQuantizable())
def reduce_all(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit True if all elements are true, also for no elements (reduce.cc)."""
    return ctx.reshape_to_slot(x, out(0)) if is_reshape(ctx) else ctx.ops.Not(emit_any(ctx, ctx.ops.Not(x), axes))


def is_reshape(ctx: Context) -> bool:
    """True if all reduced axes have size 1."""
    reduced_axes = constant_reduced_axes(ctx)
    all_have_size_1 = reduced_axes is not None and all(ctx.shape(0)[axis] == 1 for axis in reduced_axes)
    return all_have_size_1 and reduction_shape(ctx).count(None) < 2


def emit_any(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit True if the sum is not 0.

    Unlike a maximum, a sum is defined for no elements.
    """
    return ctx.ops.Cast(emit_reduction(ctx, "ReduceSum", ctx.ops.Cast(x, to="int32"), axes), to="bool")


# --- indices of extremes -------------------------------------------------------------------------


def arg_handler(code: str, op_type: str) -> Callable[[Callable[..., Any]], Handler]:
    """Return the handler decorator of ARG_MAX or ARG_MIN along the axis in slot 1."""
    return handler(
        code,
        max_version=3,
        layout=Attribute(),
        axes=reduction_axes(1, keep=lambda at: False),
        axis_price=price_along_axes(op_type),
        axis_number_slots={1},
        quantization=Raw(shift_safe=True, onnx=op_type),
        types=lambda at: f"_, int32 int64 -> {at.op.options.output_type.lower()}",
    )


@arg_handler("ARG_MAX", "ArgMax")
def arg_max(ctx: Context, x: Value, axis: Value) -> Value:
    """Emit ArgMax; of equal elements, the first is selected as in the kernel."""
    return emit_arg(ctx, "ArgMax", x, axis)


@arg_handler("ARG_MIN", "ArgMin")
def arg_min(ctx: Context, x: Value, axis: Value) -> Value:
    """Emit ArgMin; of equal elements, the first is selected as in the kernel."""
    return emit_arg(ctx, "ArgMin", x, axis)


def emit_arg(ctx: Context, op_type: str, x: Value, axis: Value) -> Value:
    """Emit ``ArgMax`` or ``ArgMin``.

    For a runtime axis, the operand is reshaped to three axes, with the reduced axis in the middle.
    """
    ops, dtype, constant_axis, emit = ctx.ops, ctx.op[out(0)].dtype, ctx.constant(1), ctx.ops.named(op_type)
    zero, is_empty = np.zeros((), dtype), 0 in ctx.shape(0)  # ONNX Runtime refuses an empty result
    if constant_axis is not None and is_empty:
        return fill_result(ctx, x, zero, [int(constant_axis.reshape(-1)[0])], keep=False)
    if constant_axis is not None:
        index = emit(x, axis=int(constant_axis.reshape(-1)[0]), keepdims=0)
    else:
        sizes, axis_index = ops.Shape(x), ops.Cast(ops.Reshape(axis, [1]), to="int64")
        axis_index = ops.Mod(axis_index, np.asarray([ctx.op[0].rank]))
        next_axis = ops.Add(axis_index, np.asarray([1]))
        leading_sizes, trailing_sizes = ops.Slice(sizes, [0], axis_index), ops.Slice(sizes, next_axis, [ctx.op[0].rank])
        if is_empty:
            return ops.Expand(zero, ops.Concat(leading_sizes, trailing_sizes, axis=0))
        leading_size = ops.ReduceProd(leading_sizes, keepdims=1)
        three_axes = ops.Concat(leading_size, ops.Gather(sizes, axis_index), [-1], axis=0)
        index = ops.Reshape(
            emit(ops.Reshape(x, three_axes), axis=1, keepdims=0), ops.Concat(leading_sizes, trailing_sizes, axis=0)
        )
    return index if dtype == "int64" else ops.Cast(index, to=dtype)


# --- cumulative sums ----------------------------------------------------------------------------


def cumsum_layout(at: Instance) -> Attribute:
    """Return a layout with all axes unordered except the summed one."""
    op = at.op
    summed_axes = constant_axes(op, 1, op[0].rank)
    return unordered_layout(
        () if summed_axes is None else (axis for axis in range(op[0].rank) if axis not in summed_axes)
    )


@handler("CUMSUM", max_version=1, layout=cumsum_layout, axes=rank_preserving_axes, axis_number_slots={1})
def cumulative_sum(ctx: Context, x: Value, axis: Value) -> Value:
    """Emit CumSum."""
    options, constant_axis = ctx.options, ctx.constant(1)
    onnx_axis = ctx.ops.Reshape(axis, np.zeros(0, np.int64)) if constant_axis is None else constant_axis.reshape(())
    return ctx.ops.CumSum(x, onnx_axis, exclusive=int(bool(options.exclusive)), reverse=int(bool(options.reverse)))
