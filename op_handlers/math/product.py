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
    spend_budget,
)
from op_handlers.kernels.fixed_point import quantized_multiplier, round_to_15_bits
from op_handlers.kernels.reductions import constant_reduced_axes, emit_reduction
from op_handlers.math.reduction import price_along_axes, reduction_shape

MULTIPLIER_BITS = 15  # bits of the multiplier's mantissa in the kernel's 64-bit products
MAX_AXES = 8  # maximum rank if the axes are runtime values; tables have a row per set of axes


def is_quantized(op: Operator) -> bool:
    return op[0].quantization is not None


@handler(
    "REDUCE_PROD",
    max_version=2,
    # Each product of integers is rounded, so the order of the factors matters.
    layout=lambda at: Terminate() if is_quantized(at.op) else Attribute(unordered="*"),
    axes=reduction_axes(1),
    axis_price=price_along_axes("ReduceProd"),
    axis_number_slots={1},
    quantization=lambda at: Integer() if is_quantized(at.op) else NotQuantizable(),
    types=lambda at: "int8 int16" if is_quantized(at.op) else "",  # uint8 has no quantized kernel
    result_shape=reduction_shape,
)
def reduce_prod(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit ReduceProd, or for integers Mul, which wraps around as in the kernel."""
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
    """Emit products along one axis after the other.

    ONNX does not define overflow of ReduceProd, and ONNX Runtime saturates.
    """
    reduced_axes = constant_reduced_axes(ctx)
    if reduced_axes is None:
        return emit_product_along(ctx, x, axes)
    for axis in reduced_axes:
        size = ctx.shape(0)[axis]
        x = multiply_halves(ctx, x, axis, size) if size else multiply_elements(ctx, x, axis)
    return ctx.reshape_to_slot(x, out(0)) if reduced_axes else x


def multiply_halves(ctx: Context, x: Value, axis: int, size: int) -> Value:
    """Emit products of the two halves of an axis until one element is left."""
    ops = ctx.ops
    while size > 1:
        half, odd = divmod(size, 2)
        sizes = np.asarray([half, half, *[odd] * odd])
        first_half, second_half, *remaining = ops.Split(x, sizes, axis=axis, outputs=len(sizes))
        x = ops.Mul(first_half, second_half)
        if remaining:
            x = ops.Concat(x, *remaining, axis=axis)
        size = half + odd
    return x


def emit_product_along(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit a Loop of products along every axis.

    Along a reduced axis, the Loop multiplies single elements. Along other axes, it has one factor, the complete axis.
    """
    ops, flags = ctx.ops, reduction_flags(ctx, axes)
    for axis, is_reduced in enumerate(flags):
        size = ops.Gather(ops.Shape(x), np.asarray(axis))
        part_size, part_count = (
            ops.Where(ops.Greater(is_reduced, 0), 1, size),
            ops.Where(ops.Greater(is_reduced, 0), size, 1),
        )
        x = multiply_parts(ctx, x, axis, part_count, part_size)
    return x if ctx.options.keep_dims or not flags else drop_axes(ctx, x, ops.Shape(x), flags)


def reduction_flags(ctx: Context, axes: Value) -> list[Value]:
    """Return, per axis, 1 if it is reduced, else 0."""
    ops, rank = ctx.ops, ctx.op[0].rank
    axis_numbers = ops.Mod(ops.Add(ops.Cast(ops.Reshape(axes, [-1]), to="int64"), rank), np.int64(rank or 1))
    return [
        ops.Min(ops.ReduceSum(equals_axis(ctx, axis_numbers, axis), keepdims=0), np.int64(1)) for axis in range(rank)
    ]


def drop_axes(ctx: Context, x: Value, sizes: ValueLike, flags: Sequence[Value]) -> Value:
    """Return x without the reduced axes.

    ``flags``: 1 for each reduced axis, else 0.
    """
    ops = ctx.ops
    kept_flags = ops.Sub(np.int64(1), concatenate(ctx, flags))
    kept_sizes = ops.Gather(sizes, ops.Reshape(ops.NonZero(kept_flags), [-1]))
    return ops.Reshape(x, kept_sizes, allowzero=1 if ctx.opset >= 14 else None)


def concatenate(ctx: Context, scalars: Sequence[Value]) -> Value:
    return ctx.ops.Concat(*(ctx.ops.Reshape(scalar, [1]) for scalar in scalars), axis=0)


def equals_axis(ctx: Context, axis_numbers: Value, axis: int) -> Value:
    return ctx.ops.Cast(ctx.ops.Equal(axis_numbers, np.int64(axis)), to="int64")


def multiply_elements(ctx: Context, x: Value, axis: int) -> Value:
    """Emit products along an axis with a dynamic number of elements or no elements."""
    return multiply_parts(ctx, x, axis, ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(axis)), np.int64(1))


def multiply_parts(ctx: Context, x: Value, axis: int, count: Value, length: ValueLike) -> Value:
    """Emit a Loop of Mul over ``count`` parts of an axis, of size ``length`` each."""
    ops, dtype = ctx.ops, "int64" if ctx.op[0].dtype == "int64" else "int32"
    sizes = ops.Shape(x)
    part_size = np.full(1, length) if isinstance(length, np.int64) else ops.Reshape(length, [1])
    outer_sizes = ops.Slice(sizes, [0], [axis]), ops.Slice(sizes, [axis + 1], [len(ctx.shape(0))])
    ones = ops.Expand(np.ones((), dtype), ops.Concat(outer_sizes[0], part_size, outer_sizes[1], axis=0))

    def step(index: Value, go_on: Value, product: Value) -> list[Value]:
        start = ops.Mul(index, part_size)
        return [go_on, ops.Mul(product, ops.Slice(x, start, ops.Add(start, part_size), [axis]))]

    body = ctx.graph(step, [("at", "int64", ()), ("go_on", "bool", ()), ("product", dtype, None)])
    return ops.Loop(count, np.asarray(True), ones, body=body)


# --- quantized integers -----------------------------------------------------------------------


def emit_quantized_product(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit a Scan of products that are rescaled and rounded in each step.

    Each step multiplies by ``x_scale / y_scale ** (1 / count)`` (QuantizedReduceProd, reduce.h).
    """
    ops, reduced_axes = ctx.ops, constant_reduced_axes(ctx)
    x_quantization, y_quantization = ctx.quantization(0), ctx.quantization(out(0))
    if x_quantization is None or y_quantization is None:
        raise Refusal("quantized operand and result need a scale")
    if reduced_axes is None:
        return emit_quantized_product_along(ctx, x, axes, x_quantization, y_quantization)
    if any(ctx.shape(0)[axis] is None for axis in reduced_axes):
        raise Refusal("the reduced axes of quantized values must have static sizes")
    if all(ctx.shape(0)[axis] == 1 for axis in reduced_axes):
        return ctx.reshape_to_slot(x, out(0))  # the kernel copies it regardless of scales
    count = prod(ctx.shape(0)[axis] or 0 for axis in reduced_axes)
    if not count:
        raise Refusal("the reduced axes are empty, and the kernel leaves the result unset")
    scaling = rescaling_of_product(x_quantization, y_quantization, count)
    other_axes = [axis for axis in range(len(ctx.shape(0))) if axis not in reduced_axes]
    other_sizes = [ctx.shape(0)[axis] for axis in other_axes]
    if other_sizes.count(None) > 1 or (None in other_sizes and 0 in other_sizes):
        raise Refusal("two dimensions are dynamic; set them with --input-shape")
    transposed = ops.Transpose(x, perm=[*reduced_axes, *other_axes])
    factors = ops.Reshape(transposed, [count, *(-1 if size is None else size for size in other_sizes)])
    values = ops.Sub(ops.Cast(factors, to="int64"), np.asarray(x_quantization.zero_point[0]))

    def step(product: Value, factor: Value) -> list[Value]:
        return [rescale_rounded(ctx, ops.Mul(product, factor), *scaling)]

    first_value = ops.Gather(values, np.asarray(0), axis=0)
    value = first_value
    if count > 1:  # an empty Scan aborts ONNX Runtime
        scan_body = ctx.graph(step, [("product", "int64", tuple(other_sizes)), ("factor", "int64", tuple(other_sizes))])
        value = ops.Scan(first_value, ops.Slice(values, [1], [count], [0]), body=scan_body, num_scan_inputs=1)
    return ctx.reshape_to_slot(
        add_zero_point_and_clip(ctx, rescale_rounded(ctx, value, *scaling), y_quantization), out(0)
    )


def add_zero_point_and_clip(ctx: Context, value: Value, y_quantization: Quantization) -> Value:
    ops, dtype = ctx.ops, ctx.dtype(out(0))
    limits = np.iinfo(dtype)
    shifted = ops.Add(value, np.asarray(y_quantization.zero_point[0]))
    return ops.Cast(ops.Min(ops.Max(shifted, np.asarray(limits.min)), np.asarray(limits.max)), to=dtype)


def emit_quantized_product_along(
    ctx: Context, x: Value, axes: Value, x_quantization: Quantization, y_quantization: Quantization
) -> Value:
    """Emit products along runtime axes.

    Each of the 2 ** rank possible sets of reduced axes has an entry in tables of rescaling factors, strides and shapes.
    """
    sizes = [size for size in ctx.shape(0) if size]
    rank = len(ctx.shape(0))
    if len(sizes) < rank:
        raise Refusal("the axes are runtime values, so all dimensions must be static and above 0")
    if rank > MAX_AXES:
        raise Refusal(f"the axes are runtime values, which is supported up to rank {MAX_AXES}")
    if not rank:
        return ctx.reshape_to_slot(x, out(0))
    ops, flags = ctx.ops, reduction_flags(ctx, axes)
    axis_sets = list(product((0, 1), repeat=rank))
    set_index = ops.ReduceSum(ops.Mul(concatenate(ctx, flags), 2 ** np.arange(rank)[::-1]), keepdims=0)
    counts = [
        prod(size for size, is_reduced in zip(sizes, axis_set, strict=True) if is_reduced) for axis_set in axis_sets
    ]
    unused_scaling = np.ones(3, np.int64)  # a single factor is copied
    scalings = np.stack(
        [
            np.stack(rescaling_of_product(x_quantization, y_quantization, count)) if count > 1 else unused_scaling
            for count in counts
        ]
    )
    count = ops.Gather(np.asarray(counts), set_index)
    scaling = [ops.Gather(column, set_index) for column in scalings.T]

    strides = ops.Gather(np.stack([table_strides(sizes, axis_set) for axis_set in axis_sets]), set_index, axis=0)
    spend_budget(sum(sizes), 8, "the indices of an operand's elements")
    axis_positions = np.ix_(*(np.arange(size) for size in sizes))
    positions = ops.Mul(axis_positions[0], ops.Gather(strides, np.asarray(0)))
    for axis in range(1, rank):
        positions = ops.Add(positions, ops.Mul(axis_positions[axis], ops.Gather(strides, np.asarray(axis))))
    elements = ops.Reshape(x, [-1])
    values = ops.Sub(ops.Cast(elements, to="int64"), np.asarray(x_quantization.zero_point[0]))
    table = ops.ScatterElements(values, ops.Reshape(positions, [-1]), values, axis=0)
    factors = ops.Reshape(table, ops.Concat(ops.Reshape(count, [1]), np.asarray([-1]), axis=0))

    def step(index: Value, go_on: Value, product: Value) -> list[Value]:
        factor = ops.Gather(factors, ops.Add(index, np.int64(1)), axis=0)
        return [go_on, rescale_rounded(ctx, ops.Mul(product, factor), *scaling)]

    body = ctx.graph(step, [("at", "int64", ()), ("go_on", "bool", ()), ("product", "int64", None)])
    first_value = ops.Gather(factors, np.asarray(0), axis=0)
    value = ops.Loop(ops.Sub(count, np.int64(1)), np.asarray(True), first_value, body=body)
    scaled_result = add_zero_point_and_clip(ctx, rescale_rounded(ctx, value, *scaling), y_quantization)
    unscaled_result = ops.Slice(elements, [0], ops.Shape(scaled_result), [0])
    result = ops.Where(ops.Equal(count, np.int64(1)), unscaled_result, scaled_result)
    if ctx.options.keep_dims:
        result_shapes = np.asarray(
            [
                [1 if is_reduced else size for size, is_reduced in zip(sizes, axis_set, strict=True)]
                for axis_set in axis_sets
            ]
        )
        return ops.Reshape(result, ops.Gather(result_shapes, set_index, axis=0))
    return drop_axes(ctx, result, np.asarray(sizes), flags)


def table_strides(sizes: Sequence[int], axis_set: Sequence[int]) -> Array:
    """Return each axis's stride in a table.

    The table has a row per factor and a column per result.
    """
    strides = np.zeros(len(sizes), np.int64)
    next_stride = [1, prod(size for size, is_reduced in zip(sizes, axis_set, strict=True) if not is_reduced)]
    for axis in reversed(range(len(sizes))):
        strides[axis] = next_stride[axis_set[axis]]
        next_stride[axis_set[axis]] *= sizes[axis]
    return strides


def rescaling_of_product(
    x_quantization: Quantization, y_quantization: Quantization, count: int
) -> tuple[Array, Array, Array]:
    """Return the 15-bit multiplier, half of the divisor, and the divisor.

    The divisor is a power of two (GetQuantProdScaling, reduce.cc).
    """
    if not y_quantization.scale[0]:
        raise Refusal("the result has a scale of 0, by which the kernel divides")
    factor = float(np.float32(x_quantization.scale[0])) / float(np.float32(y_quantization.scale[0])) ** (1 / count)
    mantissa, exponent = quantized_multiplier(factor)
    if exponent < -31:
        return multiplier_and_divisor(0, MULTIPLIER_BITS)
    if exponent >= MULTIPLIER_BITS:
        raise Refusal(
            f"the factor {factor:g} per product is too large for the kernel: it must be below 2**{MULTIPLIER_BITS - 1}"
        )
    return multiplier_and_divisor(round_to_15_bits(mantissa), MULTIPLIER_BITS - exponent)


def multiplier_and_divisor(multiplier: int, shift: int) -> tuple[Array, Array, Array]:
    return np.asarray(multiplier), np.asarray(2 ** (shift - 1)), np.asarray(2**shift)


def rescale_rounded(ctx: Context, value: Value, multiplier: ValueLike, half: ValueLike, divisor: ValueLike) -> Value:
    """Return a rescaled value, rounded half up; 32 bits wrap around.

    Source: MultiplyByQuantizedMultiplier of 64 bits, internal/common.cc.
    """
    ops = ctx.ops
    dividend = ops.Add(ops.Mul(value, multiplier), half)
    quotient = ops.Div(ops.Sub(dividend, ops.Mod(dividend, divisor)), divisor)
    return ops.Cast(ops.Cast(quotient, to="int32"), to="int64")
