"""Products over axes."""

from __future__ import annotations

from math import floor, frexp, prod

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Integer,
    NotQuantizable,
    Operator,
    Quantization,
    Refused,
    Terminate,
    Value,
    ValueLike,
    handler,
    out,
    reduced_by,
)
from op_handlers.math.reduction import along, held_axes, reduced, reduced_sizes

KEPT_BITS = 15  # of the multiplier's mantissa, where the kernel multiplies 64 bit integers


def quantized(op: Operator) -> bool:
    return op[0].quantization is not None


@handler(
    "REDUCE_PROD",
    max_version=2,
    # Each product of integers is rounded, so their order matters.
    layout=lambda at: Terminate() if quantized(at.op) else Attribute(unordered="*"),
    axes=reduced_by(1),
    along=along("ReduceProd"),
    holds_axes={1},
    quantization=lambda at: Integer() if quantized(at.op) else NotQuantizable(),
    types=lambda at: "int8 int16" if quantized(at.op) else "",  # uint8 has no quantized kernel
    sizes=reduced_sizes,
)
def reduce_prod(ctx: Context, x: Value, axes: Value) -> Value:
    """ReduceProd; integers by Mul, which wraps around as the kernel's do."""
    if quantized(ctx.op):
        return product_of_quantized(ctx, x)
    dtype = ctx.op[0].dtype
    if dtype == "float32":
        return reduced(ctx, "ReduceProd", x, axes)
    if dtype == "int64":
        return product_of_integers(ctx, x, axes)
    return ctx.ops.Cast(product_of_integers(ctx, ctx.ops.Cast(x, to="int32"), axes), to=dtype)


# --- integers ---------------------------------------------------------------------------------


def product_of_integers(ctx: Context, x: Value, axes: Value) -> Value:
    """One axis after the other: ONNX leaves overflow of ReduceProd to the runtime, and ONNX Runtime's saturates."""
    over = held_axes(ctx)
    if over is None:
        return product_along(ctx, x, axes)
    for axis in over:
        size = ctx.shape(0)[axis]
        x = halved(ctx, x, axis, size) if size else one_by_one(ctx, x, axis)
    return ctx.reshaped(x, out(0)) if over else x


def halved(ctx: Context, x: Value, axis: int, size: int) -> Value:
    """One half times the other, until one is left."""
    ops = ctx.ops
    while size > 1:
        half, odd = divmod(size, 2)
        sizes = np.asarray([half, half, *[odd] * odd])
        first, second, *last = ops.Split(x, sizes, axis=axis, outputs=len(sizes))
        x = ops.Mul(first, second)
        if last:
            x = ops.Concat(x, *last, axis=axis)
        size = half + odd
    return x


def product_along(ctx: Context, x: Value, axes: Value) -> Value:
    """Along axes known as it runs: parts of every axis are multiplied, of one that stays as it is the only part."""
    ops, rank = ctx.ops, ctx.op[0].rank
    named = ops.Mod(ops.Add(ops.Cast(ops.Reshape(axes, [-1]), to="int64"), rank), np.int64(rank or 1))
    among = [ops.Min(ops.ReduceSum(same(ctx, named, axis), keepdims=0), np.int64(1)) for axis in range(rank)]
    for axis, gone in enumerate(among):
        size = ops.Gather(ops.Shape(x), np.asarray(axis))
        x = multiplied(ctx, x, axis, ops.Where(ops.Greater(gone, 0), size, 1), ops.Where(ops.Greater(gone, 0), 1, size))
    if ctx.options.keep_dims or not rank:
        return x
    stays = ops.Sub(np.int64(1), ops.Concat(*(ops.Reshape(gone, [1]) for gone in among), axis=0))
    kept = ops.Gather(ops.Shape(x), ops.Reshape(ops.NonZero(stays), [-1]))
    return ops.Reshape(x, kept, allowzero=1 if ctx.opset >= 14 else None)


def same(ctx: Context, named: Value, axis: int) -> Value:
    return ctx.ops.Cast(ctx.ops.Equal(named, np.int64(axis)), to="int64")


def one_by_one(ctx: Context, x: Value, axis: int) -> Value:
    """The product along an axis of no elements, or as many as there are when it runs."""
    return multiplied(ctx, x, axis, ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(axis)), np.int64(1))


def multiplied(ctx: Context, x: Value, axis: int, count: Value, length: ValueLike) -> Value:
    """A Loop of Mul over parts of an axis, ``count`` of ``length`` each."""
    ops, dtype = ctx.ops, "int64" if ctx.op[0].dtype == "int64" else "int32"
    sizes = ops.Shape(x)
    part = np.full(1, length) if isinstance(length, np.int64) else ops.Reshape(length, [1])
    around = ops.Slice(sizes, [0], [axis]), ops.Slice(sizes, [axis + 1], [len(ctx.shape(0))])
    ones = ops.Expand(np.ones((), dtype), ops.Concat(around[0], part, around[1], axis=0))

    def step(at: Value, go_on: Value, product: Value) -> list[Value]:
        first = ops.Mul(at, part)
        return [go_on, ops.Mul(product, ops.Slice(x, first, ops.Add(first, part), [axis]))]

    body = ctx.graph(step, [("at", "int64", ()), ("go_on", "bool", ()), ("product", dtype, None)])
    return ops.Loop(count, np.asarray(True), ones, body=body)


# --- quantized integers -----------------------------------------------------------------------


def product_of_quantized(ctx: Context, x: Value) -> Value:
    """A Scan of products, each brought to the output's scale by its root and rounded (QuantizedReduceProd, reduce.h)."""
    ops, over = ctx.ops, held_axes(ctx)
    before, after = ctx.quantization(0), ctx.quantization(out(0))
    if before is None or after is None or over is None or any(ctx.shape(0)[axis] is None for axis in over):
        raise Refused("its integers need a scale, and axes and sizes along them that are known before it runs")
    if all(ctx.shape(0)[axis] == 1 for axis in over):
        return ctx.reshaped(x, out(0))  # which the kernel copies, whatever the scales
    count = prod(ctx.shape(0)[axis] or 0 for axis in over)
    if not count:
        raise Refused("it multiplies no integers, whose product the kernel leaves unset")
    scaling = scaled_by(before, after, count)
    others = [axis for axis in range(len(ctx.shape(0))) if axis not in over]
    rest = [ctx.shape(0)[axis] for axis in others]
    if rest.count(None) > 1 or (None in rest and 0 in rest):
        raise Refused("two of its sizes are unknown; give them with --input-shape")
    ordered = ops.Transpose(x, perm=[*over, *others])
    factors = ops.Reshape(
        ordered, [count, *(-1 if size is None else size for size in rest)], allowzero=1 if 0 in rest else None
    )
    real = ops.Sub(ops.Cast(factors, to="int64"), np.asarray(before.zero_point[0]))

    def step(current: Value, factor: Value) -> list[Value]:
        return [rounded(ctx, ops.Mul(current, factor), *scaling)]

    first = ops.Gather(real, np.asarray(0), axis=0)
    total = first
    if count > 1:  # a Scan of nothing ends the process in ONNX Runtime
        inner = ctx.graph(step, [("product", "int64", tuple(rest)), ("factor", "int64", tuple(rest))])
        total = ops.Scan(first, ops.Slice(real, [1], [count], [0]), body=inner, num_scan_inputs=1)
    limits = np.iinfo(ctx.dtype(out(0)))
    moved = ops.Add(rounded(ctx, total, *scaling), np.asarray(after.zero_point[0]))
    cut = ops.Min(ops.Max(moved, np.asarray(limits.min)), np.asarray(limits.max))
    return ctx.reshaped(ops.Cast(cut, to=ctx.dtype(out(0))), out(0))


def scaled_by(before: Quantization, after: Quantization, count: int) -> tuple[int, int]:
    """A multiplier of 15 bits and how far to shift its products (GetQuantProdScaling, reduce.cc; QuantizeMultiplier)."""
    factor = float(np.float32(before.scale[0])) / float(np.float32(after.scale[0])) ** (1 / count)
    fraction, exponent = frexp(factor)
    mantissa = floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, KEPT_BITS
    if exponent >= KEPT_BITS:
        raise Refused(f"each of its {count} products is {factor:g} times too small, which the kernel has no shift for")
    return min(mantissa + 2**15 >> 16, 2**KEPT_BITS - 1), KEPT_BITS - exponent


def rounded(ctx: Context, value: Value, multiplier: int, shift: int) -> Value:
    """Halves upwards, 32 bits that wrap around (MultiplyByQuantizedMultiplier of 64 bits, internal/common.cc)."""
    ops, divisor = ctx.ops, np.asarray(2**shift)
    raised = ops.Add(ops.Mul(value, np.asarray(multiplier)), np.asarray(2 ** (shift - 1)))
    whole = ops.Div(ops.Sub(raised, ops.Mod(raised, divisor)), divisor)
    return ops.Cast(ops.Cast(whole, to="int32"), to="int64")
