"""Products over axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Integer,
    NotQuantizable,
    Operator,
    Quantization,
    Refusal,
    Terminate,
    Value,
    ValueLike,
    handler,
    out,
    reduction_axes,
    spend,
)
from op_handlers.kernels.fixed_point import quantized_multiplier, round_to_15_bits
from op_handlers.math.reduction import along_axes, constant_reduced_axes, emit_reduction, reduction_shape

KEPT_BITS = 15  # bits of the multiplier's mantissa in the kernel's 64-bit products
MAX_AXES = 8  # maximum rank with axes at runtime: tables have a row per set of axes


def is_quantized(op: Operator) -> bool:
    return op[0].quantization is not None


@handler(
    "REDUCE_PROD",
    max_version=2,
    # Each product of integers is rounded, so their order matters.
    layout=lambda at: Terminate() if is_quantized(at.op) else Attribute(unordered="*"),
    axes=reduction_axes(1),
    axis_price=along_axes("ReduceProd"),
    holds_axes={1},
    quantization=lambda at: Integer() if is_quantized(at.op) else NotQuantizable(),
    types=lambda at: "int8 int16" if is_quantized(at.op) else "",  # uint8 has no quantized kernel
    sizes=reduction_shape,
)
def reduce_prod(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceProd; integers by Mul, which wraps around as in the kernel."""
    if is_quantized(ctx.op):
        return emit_quantized_product(ctx, x, axes)
    dtype = ctx.op[0].dtype
    if dtype == "float32":
        return emit_reduction(ctx, "ReduceProd", x, axes)
    if dtype == "int64":
        return emit_integer_product(ctx, x, axes)
    return ctx.ops.Cast(emit_integer_product(ctx, ctx.ops.Cast(x, to="int32"), axes), to=dtype)


# --- integers ---------------------------------------------------------------------------------


def emit_integer_product(ctx: Context, x: Value, axes: Value) -> Value:
    """Multiply along one axis after the other.

    ONNX leaves overflow of ReduceProd to the runtime, and ONNX Runtime saturates.
    """
    over = constant_reduced_axes(ctx)
    if over is None:
        return emit_product_along(ctx, x, axes)
    for axis in over:
        size = ctx.shape(0)[axis]
        x = multiply_halves(ctx, x, axis, size) if size else multiply_elements(ctx, x, axis)
    return ctx.reshape_to_slot(x, out(0)) if over else x


def multiply_halves(ctx: Context, x: Value, axis: int, size: int) -> Value:
    """Multiply one half by the other until one element is left."""
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


def emit_product_along(ctx: Context, x: Value, axes: Value) -> Value:
    """Multiply along runtime axes; an axis that is kept is one part of the Loop, a reduced axis one part per element."""
    ops, reduced = ctx.ops, reduction_flags(ctx, axes)
    for axis, reduces in enumerate(reduced):
        size = ops.Gather(ops.Shape(x), np.asarray(axis))
        one, many = ops.Where(ops.Greater(reduces, 0), 1, size), ops.Where(ops.Greater(reduces, 0), size, 1)
        x = multiply_parts(ctx, x, axis, many, one)
    return x if ctx.options.keep_dims or not reduced else drop_axes(ctx, x, ops.Shape(x), reduced)


def reduction_flags(ctx: Context, axes: Value) -> list[Value]:
    """Return, per axis, 1 if it is reduced, else 0."""
    ops, rank = ctx.ops, ctx.op[0].rank
    named = ops.Mod(ops.Add(ops.Cast(ops.Reshape(axes, [-1]), to="int64"), rank), np.int64(rank or 1))
    return [ops.Min(ops.ReduceSum(equals_axis(ctx, named, axis), keepdims=0), np.int64(1)) for axis in range(rank)]


def drop_axes(ctx: Context, x: Value, sizes: ValueLike, reduced: Sequence[Value]) -> Value:
    """Reshape to the sizes that are not reduced."""
    ops = ctx.ops
    keeps = ops.Sub(np.int64(1), concatenate(ctx, reduced))
    kept = ops.Gather(sizes, ops.Reshape(ops.NonZero(keeps), [-1]))
    return ops.Reshape(x, kept, allowzero=1 if ctx.opset >= 14 else None)


def concatenate(ctx: Context, scalars: Sequence[Value]) -> Value:
    return ctx.ops.Concat(*(ctx.ops.Reshape(scalar, [1]) for scalar in scalars), axis=0)


def equals_axis(ctx: Context, named: Value, axis: int) -> Value:
    return ctx.ops.Cast(ctx.ops.Equal(named, np.int64(axis)), to="int64")


def multiply_elements(ctx: Context, x: Value, axis: int) -> Value:
    """Multiply along an axis of zero or a dynamic number of elements."""
    return multiply_parts(ctx, x, axis, ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(axis)), np.int64(1))


def multiply_parts(ctx: Context, x: Value, axis: int, count: Value, length: ValueLike) -> Value:
    """Emit a Loop of Mul over ``count`` parts of an axis, of size ``length`` each."""
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


def emit_quantized_product(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit a Scan of products, each rescaled by the root of the output's scale and rounded (QuantizedReduceProd, reduce.h)."""
    ops, over = ctx.ops, constant_reduced_axes(ctx)
    before, after = ctx.quantization(0), ctx.quantization(out(0))
    if before is None or after is None:
        raise Refusal("quantized operand and result need a scale")
    if over is None:
        return emit_quantized_product_along(ctx, x, axes, before, after)
    if any(ctx.shape(0)[axis] is None for axis in over):
        raise Refusal("the reduced axes of quantized values must have static sizes")
    if all(ctx.shape(0)[axis] == 1 for axis in over):
        return ctx.reshape_to_slot(x, out(0))  # the kernel copies it regardless of scales
    count = prod(ctx.shape(0)[axis] or 0 for axis in over)
    if not count:
        raise Refusal("the reduced axes are empty, and the kernel leaves the result unset")
    scaling = rescaling_of_product(before, after, count)
    others = [axis for axis in range(len(ctx.shape(0))) if axis not in over]
    rest = [ctx.shape(0)[axis] for axis in others]
    if rest.count(None) > 1 or (None in rest and 0 in rest):
        raise Refusal("two dimensions are dynamic; set them with --input-shape")
    ordered = ops.Transpose(x, perm=[*over, *others])
    factors = ops.Reshape(ordered, [count, *(-1 if size is None else size for size in rest)])
    real = ops.Sub(ops.Cast(factors, to="int64"), np.asarray(before.zero_point[0]))

    def step(current: Value, factor: Value) -> list[Value]:
        return [rescale_rounded(ctx, ops.Mul(current, factor), *scaling)]

    first = ops.Gather(real, np.asarray(0), axis=0)
    total = first
    if count > 1:  # an empty Scan aborts ONNX Runtime
        inner = ctx.graph(step, [("product", "int64", tuple(rest)), ("factor", "int64", tuple(rest))])
        total = ops.Scan(first, ops.Slice(real, [1], [count], [0]), body=inner, num_scan_inputs=1)
    return ctx.reshape_to_slot(add_zero_point_and_clip(ctx, rescale_rounded(ctx, total, *scaling), after), out(0))


def add_zero_point_and_clip(ctx: Context, total: Value, after: Quantization) -> Value:
    ops, dtype = ctx.ops, ctx.dtype(out(0))
    limits = np.iinfo(dtype)
    shifted = ops.Add(total, np.asarray(after.zero_point[0]))
    return ops.Cast(ops.Min(ops.Max(shifted, np.asarray(limits.min)), np.asarray(limits.max)), to=dtype)


def emit_quantized_product_along(
    ctx: Context, x: Value, axes: Value, before: Quantization, after: Quantization
) -> Value:
    """Multiply along axes known at runtime; tables hold the parameters of each set of axes."""
    sizes = [size for size in ctx.shape(0) if size]
    rank = len(ctx.shape(0))
    if len(sizes) < rank:
        raise Refusal("the axes are runtime values, so all dimensions must be static and above 0")
    if rank > MAX_AXES:
        raise Refusal(f"the axes are runtime values, which is supported up to rank {MAX_AXES}")
    if not rank:
        return ctx.reshape_to_slot(x, out(0))
    ops, reduced = ctx.ops, reduction_flags(ctx, axes)
    sets = list(product((0, 1), repeat=rank))
    row = ops.ReduceSum(ops.Mul(concatenate(ctx, reduced), 2 ** np.arange(rank)[::-1]), keepdims=0)
    counts = [prod(size for size, reduces in zip(sizes, each, strict=True) if reduces) for each in sets]
    unscaled = np.ones(3, np.int64)  # for a single factor, which is copied
    scalings = np.stack(
        [np.stack(rescaling_of_product(before, after, count)) if count > 1 else unscaled for count in counts]
    )
    count = ops.Gather(np.asarray(counts), row)
    scaling = [ops.Gather(column, row) for column in scalings.T]

    strides = ops.Gather(np.stack([table_strides(sizes, each) for each in sets]), row, axis=0)
    spend(sum(sizes), 8, "the indices of an operand's elements")
    places = np.ix_(*(np.arange(size) for size in sizes))
    place = ops.Mul(places[0], ops.Gather(strides, np.asarray(0)))
    for axis in range(1, rank):
        place = ops.Add(place, ops.Mul(places[axis], ops.Gather(strides, np.asarray(axis))))
    flat = ops.Reshape(x, [-1])
    real = ops.Sub(ops.Cast(flat, to="int64"), np.asarray(before.zero_point[0]))
    ordered = ops.ScatterElements(real, ops.Reshape(place, [-1]), real, axis=0)
    factors = ops.Reshape(ordered, ops.Concat(ops.Reshape(count, [1]), np.asarray([-1]), axis=0))

    def step(at: Value, go_on: Value, current: Value) -> list[Value]:
        factor = ops.Gather(factors, ops.Add(at, np.int64(1)), axis=0)
        return [go_on, rescale_rounded(ctx, ops.Mul(current, factor), *scaling)]

    body = ctx.graph(step, [("at", "int64", ()), ("go_on", "bool", ()), ("product", "int64", None)])
    first = ops.Gather(factors, np.asarray(0), axis=0)
    total = ops.Loop(ops.Sub(count, np.int64(1)), np.asarray(True), first, body=body)
    scaled = add_zero_point_and_clip(ctx, rescale_rounded(ctx, total, *scaling), after)
    copied = ops.Slice(flat, [0], ops.Shape(scaled), [0])
    result = ops.Where(ops.Equal(count, np.int64(1)), copied, scaled)
    if ctx.options.keep_dims:
        kept = np.asarray(
            [[1 if reduces else size for size, reduces in zip(sizes, each, strict=True)] for each in sets]
        )
        return ops.Reshape(result, ops.Gather(kept, row, axis=0))
    return drop_axes(ctx, result, np.asarray(sizes), reduced)


def table_strides(sizes: Sequence[int], reduces: Sequence[int]) -> Array:
    """Return each axis' stride in a table with a row per factor and a column per result."""
    strides = np.zeros(len(sizes), np.int64)
    within = [1, prod(size for size, reduced in zip(sizes, reduces, strict=True) if not reduced)]
    for axis in reversed(range(len(sizes))):
        strides[axis] = within[reduces[axis]]
        within[reduces[axis]] *= sizes[axis]
    return strides


def rescaling_of_product(before: Quantization, after: Quantization, count: int) -> tuple[Array, Array, Array]:
    """Return the 15-bit multiplier, half of the divisor, and the divisor, a power of two.

    (GetQuantProdScaling, reduce.cc)
    """
    if not after.scale[0]:
        raise Refusal("the result has a scale of 0, by which the kernel divides")
    factor = float(np.float32(before.scale[0])) / float(np.float32(after.scale[0])) ** (1 / count)
    mantissa, exponent = quantized_multiplier(factor)
    if exponent < -31:
        return multiplier_and_divisor(0, KEPT_BITS)
    if exponent >= KEPT_BITS:
        raise Refusal(f"each of its {count} products is rescaled by {factor:g}, which exceeds the kernel's shift")
    return multiplier_and_divisor(round_to_15_bits(mantissa), KEPT_BITS - exponent)


def multiplier_and_divisor(multiplier: int, shift: int) -> tuple[Array, Array, Array]:
    return np.asarray(multiplier), np.asarray(2 ** (shift - 1)), np.asarray(2**shift)


def rescale_rounded(ctx: Context, value: Value, multiplier: ValueLike, half: ValueLike, divisor: ValueLike) -> Value:
    """Rescale, rounding half up; 32 bits wrap around (MultiplyByQuantizedMultiplier of 64 bits, internal/common.cc)."""
    ops = ctx.ops
    raised = ops.Add(ops.Mul(value, multiplier), half)
    whole = ops.Div(ops.Sub(raised, ops.Mod(raised, divisor)), divisor)
    return ops.Cast(ops.Cast(whole, to="int32"), to="int64")
