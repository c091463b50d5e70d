"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Array,
    Attribute,
    Behaviour,
    Context,
    Decline,
    Dequantized,
    Dims,
    Handler,
    Instance,
    NotQuantizable,
    Quantization,
    Raw,
    Refused,
    Value,
    constant_axes,
    handler,
    out,
    reduced_by,
)
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.kernels.operands import preserved_axes, require_quantization, require_scale, unordered_layout
from op_handlers.kernels.rescaling import emit_fixed_point_product


def along(onnx: str) -> Callable[[Instance], Along | None]:
    """The emitted operator runs along the axes that slot 1 holds."""

    def declared(at: Instance) -> Along | None:
        reduced = constant_axes(at.op, 1, at.op[0].rank)
        return None if reduced is None else Along(onnx, " ".join(f"a{axis}" for axis in reduced))

    return declared


def reduced_sizes(at: Instance) -> Dims:
    """Without the axes that are reduced, or with 1 in their place; unknown where they are known as it runs only."""
    op, over = at.op, constant_axes(at.op, 1, at.op[0].rank)
    if over is None:
        return (None,) * (op[0].rank if op.options.keep_dims else op[out(0)].rank)
    kept = [1 if axis in over else size for axis, size in enumerate(op[0].dims)]
    return tuple(size for axis, size in enumerate(kept) if op.options.keep_dims or axis not in over)


def reduction(
    code: str,
    onnx: str,
    *,
    max_version: int,
    quantization: Behaviour | Callable[[Instance], Behaviour],
    accepts: Callable[[Instance], Decline | None] | None = None,
) -> Callable[[Callable[..., Any]], Handler]:
    """A reduction over the axes that slot 1 holds, in any order."""
    return handler(
        code,
        max_version=max_version,
        layout=Attribute(unordered="*"),
        axes=reduced_by(1),
        along=along(onnx),
        holds_axes={1},
        quantization=quantization,
        accepts=accepts,
        sizes=reduced_sizes,
    )


BARE = require_scale("int8", "uint8", "int16")
MOST_STEPS = 16
"""Of the result in one of the operand, where sums of floats round off less than counts."""


def integers_of_mean(at: Instance) -> Dequantized:
    """As stored where the kernel's fixed point is no mean of floats, rounded once.

    Its 16 bits are rounded twice. The mean of values that cancel out may be of a scale so small that what floats round off
    is many steps of it.
    """
    before, after = at.op[0].quantization, at.op[out(0)].quantization
    if not isinstance(before, Quantization) or not isinstance(after, Quantization):
        return Dequantized()
    if constant_axes(at.op, 1, at.op[0].rank) is None:
        return Dequantized()
    small = before.scale[0] > MOST_STEPS * after.scale[0]
    return Dequantized(stored=(0,)) if small or multiplier_of_sums(at) is not None else Dequantized()


@reduction("MEAN", "ReduceMean", max_version=3, quantization=integers_of_mean, accepts=BARE)
def mean(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceMean; over all trailing axes GlobalAveragePool, which fuses. Integers are divided towards zero."""
    over = held_axes(ctx)
    if 0 in integers_of_mean(ctx).stored and not of_nothing(ctx):
        return mean_of_integers(ctx, x, axes)
    if not over:
        return reduced(ctx, "ReduceMean", x, axes)
    dtype = ctx.op[0].dtype
    if dtype in ("int32", "int64"):
        quotient = ctx.ops.Div(sum_of_integers(ctx, x, axes), counted(ctx, x, axes))
        return quotient if dtype == "int64" else ctx.ops.Cast(quotient, to=dtype)
    if of_nothing(ctx):
        if ctx.quantized:
            raise Refused("it is the mean of no integers, which the kernel leaves unset; give sizes above 0")
        return everywhere(ctx, x, np.asarray(np.nan, dtype), over, keep=bool(ctx.options.keep_dims))
    if "GlobalAveragePool" in ctx.target.prefers and over == list(range(2, ctx.op[0].rank)) and pools(ctx):
        pooled = ctx.quantize(ctx.ops.GlobalAveragePool(x), like=out(0))
        return pooled if ctx.options.keep_dims else ctx.ops.Squeeze(pooled, over)
    return reduced(ctx, "ReduceMean", x, axes)


def multiplier_of_sums(at: Instance) -> tuple[int, int] | None:
    """The mantissa and exponent that the kernel multiplies a sum of 16 bits by (QuantizedMeanOrSum, reference/reduce.h).

    None of 8 bits, where XNNPACK takes over from the kernel and multiplies sums by floats; and where none of 32 bits is one.
    """
    op, over = at.op, constant_axes(at.op, 1, at.op[0].rank) or ()
    count = prod(
        op[0].dims[axis] or 0 for axis in over if axis < op[0].rank
    )  # of one number any axis is taken for none
    scales = [require_quantization(tensor).scale[0] for tensor in (op[0], op[out(0)])]
    if op[0].dtype != "int16" or not count or 0.0 in scales:
        return None
    mantissa, exponent = quantized_multiplier(scales[0] / scales[1])
    shift = min(count.bit_length() - 1, 31 + exponent)
    return ((mantissa << shift) // count, exponent - shift) if -31 <= exponent < 31 else None


def mean_of_integers(ctx: Context, x: Value, axes: Value) -> Value:
    """The exact sum, times a float; of 16 bits as the kernel multiplies, in 32 bits that wrap around."""
    ops, multiplier, after = ctx.ops, multiplier_of_sums(ctx), require_quantization(ctx.op[out(0)])
    scale, zero_point = require_quantization(ctx.op[0]).scale[0], require_quantization(ctx.op[0]).zero_point[0]
    integers = ops.Cast(x, to="int32")
    total = reduced(ctx, "ReduceSum", ops.Sub(integers, np.int32(zero_point)) if zero_point else integers, axes)
    if multiplier is not None:
        return ops.Mul(ops.Cast(emit_fixed_point_product(ctx, total, *multiplier), to="float32"), after.scale[0])
    count = counted(ctx, x, axes)
    divisor = np.float32(count) if isinstance(count, np.ndarray) else ops.Cast(count, to="float32")
    return ops.Div(ops.Mul(ops.Cast(total, to="float32"), scale), divisor)


def pools(ctx: Context) -> bool:
    """Whether ONNX Runtime's pool of integers computes a mean of images: it throws where its factor leaves a range
    (CheckQLinearGlobalAveragePoolScaleAndSize, mlas/lib/qlgavgpool.cpp).
    """
    x, y, sizes = ctx.quantization(0), ctx.quantization(out(0)), ctx.shape(0)[2:]
    if x is None or y is None:
        return True
    elements = [1, 2**24 - 1] if None in sizes else [prod(size or 1 for size in sizes)]
    factors = [x.scale[0] / (y.scale[0] * count) for count in elements]
    return elements[0] < 2**24 and all(2.0**-32 <= factor < 256 for factor in factors)


def counted(ctx: Context, x: Value, axes: Value) -> Value | Array:
    """How many elements each result is made of, at least 1; as it runs where sizes or axes are known only then."""
    over = held_axes(ctx)
    sizes = [None] if over is None else [ctx.shape(0)[axis] for axis in over]
    if None not in sizes:
        return np.asarray(max(prod(size or 0 for size in sizes), 1))
    places = ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64") if over is None else np.asarray(over)
    return ctx.ops.Max(ctx.ops.ReduceProd(ctx.ops.Gather(ctx.ops.Shape(x), places), keepdims=0), np.asarray(1))


@reduction("SUM", "ReduceSum", max_version=2, quantization=Dequantized(), accepts=BARE)
def total(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceSum; the sum of quantized integers is rescaled to the output's parameters, others wrap around."""
    dtype = ctx.op[0].dtype
    if dtype not in ("int32", "int64"):
        return reduced(ctx, "ReduceSum", x, axes)
    result = sum_of_integers(ctx, x, axes)
    return result if dtype == "int64" else ctx.ops.Cast(result, to=dtype)


HALF = np.int64(2**32)


def sum_of_integers(ctx: Context, x: Value, axes: Value) -> Value:
    """The sum modulo 2^64 of up to 2^21 elements, int64: ONNX Runtime adds in float64, so of int64 the halves are summed apart.

    ONNX leaves overflow of ReduceSum to the runtime, and ONNX Runtime's 32 bits saturate.
    """
    ops = ctx.ops
    if ctx.op[0].dtype == "int32":
        return reduced(ctx, "ReduceSum", ops.Cast(x, to="int64"), axes)
    low = ops.Mod(x, HALF)
    high = ops.Div(ops.Sub(x, low), HALF)
    low_sum, high_sum = (reduced(ctx, "ReduceSum", part, axes) for part in (low, high))
    return ops.Add(ops.Mul(high_sum, HALF), low_sum)


@reduction("REDUCE_MAX", "ReduceMax", max_version=3, quantization=Raw(shift_safe=True))
def reduce_max(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceMax; quantized elements are compared as stored, whatever the output's parameters."""
    return extreme(ctx, "ReduceMax", x, axes)


@reduction("REDUCE_MIN", "ReduceMin", max_version=3, quantization=Raw(shift_safe=True))
def reduce_min(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceMin; as ReduceMax."""
    return extreme(ctx, "ReduceMin", x, axes)


def extreme(ctx: Context, onnx: str, x: Value, axes: Value) -> Value:
    """Of no elements, what the kernel starts from."""
    if of_nothing(ctx):
        number = start(ctx.dtype(0), least=onnx == "ReduceMax")
        return everywhere(ctx, x, number, held_axes(ctx) or (), keep=bool(ctx.options.keep_dims))
    return extreme_of_int64(ctx, onnx, x, axes) if ctx.dtype(0) == "int64" else reduced(ctx, onnx, x, axes)


def extreme_of_int64(ctx: Context, onnx: str, x: Value, axes: Value) -> Value:
    """The extreme of the upper halves, and that of the lower ones among those that have it: ONNX Runtime compares 32 bits."""
    if held_axes(ctx) == []:
        return x
    ops, middle = ctx.ops, np.int64(2**31)
    low = ops.Mod(x, HALF)
    high = ops.Div(ops.Sub(x, low), HALF)
    most = reduced(ctx, onnx, high, axes, keep=1)
    last = -middle if onnx == "ReduceMax" else middle - 1
    among = ops.Where(ops.Equal(high, most), ops.Sub(low, middle), last)
    lowest = ops.Add(reduced(ctx, onnx, among, axes), middle)
    return ops.Add(ops.Mul(reduced(ctx, onnx, high, axes), HALF), lowest)


def start(dtype: str, least: bool) -> Array:
    """What the kernel starts from, and returns for no elements: a finite number of floating-point dtypes (ReduceGeneric)."""
    if dtype == "bool":
        return np.asarray(not least)
    limits: Any = np.finfo(dtype) if "float" in dtype else np.iinfo(dtype)
    return np.asarray(limits.min if least else limits.max, dtype)


def of_nothing(ctx: Context) -> bool:
    """Whether an axis that is reduced has no elements."""
    return 0 in (ctx.shape(0)[axis] for axis in held_axes(ctx) or ())


def everywhere(ctx: Context, x: Value, number: Array, over: Sequence[int], keep: bool) -> Value:
    """One number for each result of a reduction of nothing, in place of axes ``over`` 1 or none."""
    places = range(len(ctx.shape(0)))
    if None in ctx.shape(0):
        sizes = ctx.ops.Shape(x)
        if not keep:
            return ctx.ops.Expand(
                number, ctx.ops.Gather(sizes, np.asarray([k for k in places if k not in over], np.int64))
            )
        return ctx.ops.Expand(number, ctx.ops.Where(np.asarray([k in over for k in places]), np.int64(1), sizes))
    left = [1 if k in over else size for k, size in enumerate(ctx.shape(0)) if keep or k not in over]
    return ctx.ops.Expand(number, np.asarray(left, np.int64))


def held_axes(ctx: Context) -> list[int] | None:
    """The axes a constant operand holds, each once, in planned order; a scalar input has none."""
    constant = ctx.constant(1) if ctx.op[0].rank else np.zeros(0, np.int64)
    return None if constant is None else sorted({int(axis) for axis in constant.reshape(-1)})


def reduced(ctx: Context, onnx: str, x: Value, axes: Value, keep: int | None = None) -> Value:
    """``Reduce*``; no axes are the identity. ``keep``: whether axes stay, by default as the operator says."""
    over, keep = held_axes(ctx), int(bool(ctx.options.keep_dims)) if keep is None else keep
    if over == []:
        return x
    if over is not None:
        return ctx.ops.named(onnx)(x, over, keepdims=keep)
    asked = ctx.ops.Cast(ctx.ops.Reshape(axes, [-1]), to="int64")
    return ctx.ops.named(onnx)(x, asked, keepdims=keep, noop_with_empty_axes=1)


# --- logic --------------------------------------------------------------------------------------


@reduction("REDUCE_ANY", "ReduceSum", max_version=1, quantization=NotQuantizable())
def reduce_any(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceSum of ones; of no elements False (reduce.cc)."""
    return ctx.reshaped(x, out(0)) if of_single_elements(ctx) else true_somewhere(ctx, x, axes)


@reduction("REDUCE_ALL", "ReduceSum", max_version=1, quantization=NotQuantizable())
def reduce_all(ctx: Context, x: Value, axes: Value) -> Value:
    """Nowhere false; of no elements True."""
    return (
        ctx.reshaped(x, out(0)) if of_single_elements(ctx) else ctx.ops.Not(true_somewhere(ctx, ctx.ops.Not(x), axes))
    )


def of_single_elements(ctx: Context) -> bool:
    """Whether each result is of one operand: every axis that is reduced has size 1."""
    over = held_axes(ctx)
    alone = over is not None and all(ctx.shape(0)[axis] == 1 for axis in over)
    return alone and reduced_sizes(ctx).count(None) < 2


def true_somewhere(ctx: Context, x: Value, axes: Value) -> Value:
    """A sum above 0, which unlike a maximum has a value for no elements."""
    return ctx.ops.Cast(reduced(ctx, "ReduceSum", ctx.ops.Cast(x, to="int32"), axes), to="bool")


# --- places of extremes -------------------------------------------------------------------------


def place(code: str, onnx: str) -> Callable[[Callable[..., Any]], Handler]:
    """Where an extreme lies along the axis that slot 1 holds."""
    return handler(
        code,
        max_version=3,
        layout=Attribute(),
        axes=reduced_by(1, keep=lambda at: False),
        along=along(onnx),
        holds_axes={1},
        quantization=Raw(shift_safe=True, onnx=onnx),
        types=lambda at: f"_, int32 int64 -> {at.op.options.output_type.lower()}",
    )


@place("ARG_MAX", "ArgMax")
def arg_max(ctx: Context, x: Value, axis: Value) -> Value:
    """ArgMax; the first of equals, as the kernel does."""
    return first_place(ctx, "ArgMax", x, axis)


@place("ARG_MIN", "ArgMin")
def arg_min(ctx: Context, x: Value, axis: Value) -> Value:
    """ArgMin; the first of equals."""
    return first_place(ctx, "ArgMin", x, axis)


def first_place(ctx: Context, onnx: str, x: Value, axis: Value) -> Value:
    """``ArgMax`` or ``ArgMin`` along an axis, which is an attribute: one known at run time is put between two others."""
    ops, dtype, constant, emit = ctx.ops, ctx.op[out(0)].dtype, ctx.constant(1), ctx.ops.named(onnx)
    none, nothing = np.zeros((), dtype), 0 in ctx.shape(0)  # no results: ONNX Runtime refuses sizes of 0
    if constant is not None and nothing:
        return everywhere(ctx, x, none, [int(constant.reshape(-1)[0])], keep=False)
    if constant is not None:
        index = emit(x, axis=int(constant.reshape(-1)[0]), keepdims=0)
    else:
        sizes, at = ops.Shape(x), ops.Cast(ops.Reshape(axis, [1]), to="int64")
        at = ops.Mod(at, np.asarray([ctx.op[0].rank]))
        behind = ops.Add(at, np.asarray([1]))
        before, after = ops.Slice(sizes, [0], at), ops.Slice(sizes, behind, [ctx.op[0].rank])
        if nothing:
            return ops.Expand(none, ops.Concat(before, after, axis=0))
        outer = ops.ReduceProd(before, keepdims=1)
        three = ops.Concat(outer, ops.Gather(sizes, at), [-1], axis=0)
        index = ops.Reshape(emit(ops.Reshape(x, three), axis=1, keepdims=0), ops.Concat(before, after, axis=0))
    return index if dtype == "int64" else ops.Cast(index, to=dtype)


# --- running sums -------------------------------------------------------------------------------


def others_in_any_order(at: Instance) -> Attribute:
    """Every axis but the one that is summed along."""
    op = at.op
    summed_axes = constant_axes(op, 1, op[0].rank)
    return unordered_layout(
        () if summed_axes is None else (axis for axis in range(op[0].rank) if axis not in summed_axes)
    )


@handler("CUMSUM", max_version=1, layout=others_in_any_order, axes=preserved_axes, holds_axes={1})
def cumulative_sum(ctx: Context, x: Value, axis: Value) -> Value:
    """CumSum."""
    options, constant = ctx.options, ctx.constant(1)
    at = ctx.ops.Reshape(axis, np.zeros(0, np.int64)) if constant is None else constant.reshape(())
    return ctx.ops.CumSum(x, at, exclusive=int(bool(options.exclusive)), reverse=int(bool(options.reverse)))
