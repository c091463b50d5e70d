"""Resizing of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    AxisPrice,
    Context,
    Dequantized,
    Implicit,
    Instance,
    Operator,
    Quantization,
    Raw,
    Value,
    ValueLike,
    handler,
    out,
    spend_budget,
)
from op_handlers.kernels.half_rounding import OFFSET_LSB
from op_handlers.kernels.operands import cast_to_int64, constant_integers, reinterpret_scale

CHANNELS_FIRST = (0, 3, 1, 2)


def resize_price(at: Instance) -> AxisPrice | None:
    """Return the price of a layout: many channels are resized faster channels last.

    Dequantized images have a separate price.
    """
    if (at.op[0].dims[3] or 1) < 8:
        return None
    return AxisPrice("Resize" if at.op[0].dtype == "float32" else "Resize/dequantized", "h w", slot=out(0))


def resize_layout(at: Instance) -> Attribute | Implicit:
    """Return a layout that allows any position of height and width.

    For targets that resize only the last axes, height and width are last.
    """
    needs_last_axes = "Resize" in at.target.last_axes_only
    return Implicit({0: "n c h w", out(0): "n c h w"}) if needs_last_axes else Attribute(unordered="n c")


@handler(
    "RESIZE_BILINEAR",
    max_version=4,
    layout=resize_layout,
    axes="n h w c -> n h w c",
    axis_price=resize_price,
    quantization=Dequantized(),
)
def resize_bilinear(ctx: Context, x: Value, size: Value) -> Value:
    """Emit linear Resize.

    Integers without a scale are rounded as in the kernel; ONNX Runtime would truncate them.
    """
    dtype = ctx.op[0].dtype
    if "float" in dtype or ctx.op[0].quantization is not None:
        return emit_bilinear(ctx, x, size)
    y = emit_bilinear(ctx, ctx.ops.Cast(x, to="float32"), size)
    return ctx.ops.Cast(ctx.ops.Round(y), to=dtype)


def emit_bilinear(ctx: Context, x: Value, size: Value) -> Value:
    """Return the resized image.

    The int16 kernel rounds coordinates. If this changes the result, rows are interpolated first, and then columns.
    """
    coordinates = rounded_coordinates(ctx.op) if ctx.op[0].dtype == "int16" else None
    if coordinates is not None:
        for k in (0, 1):
            x = interpolate_axis(ctx, x, 1 + k, interpolation_at(coordinates[k]))
        return reinterpret_scale(ctx, x)
    if ctx.op[0].dtype == "int16" and (None in ctx.op[0].dims[1:3] or not ctx.op[1].is_constant):
        for k in (0, 1):
            output_size = ctx.ops.Gather(cast_to_int64(ctx, 1, size), np.asarray(k))
            input_size = ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(ctx.axis(1 + k)))
            x = interpolate_axis(ctx, x, 1 + k, emit_interpolation(ctx, input_size, output_size))
        return reinterpret_scale(ctx, x)
    offset = half_up_offset(ctx.op)
    # The smaller tensor gets the offset.
    adds_offset_first = math.prod(ctx.op[0].shape) <= math.prod(ctx.op[out(0)].shape)
    if offset and adds_offset_first:
        x = ctx.ops.Add(x, offset)
    y = emit_linear_resize(ctx, x, size)
    return reinterpret_scale(ctx, ctx.ops.Add(y, offset) if offset and not adds_offset_first else y)


def emit_linear_resize(ctx: Context, x: Value, size: Value) -> Value:
    """Emit Resize of height and width, which must be adjacent for ONNX Runtime.

    If height and width are not adjacent, a dynamic shape is transposed to channels first. A static shape is not transposed, because
    ONNX Runtime would move the Transpose past the Resize and then could not run the model. Instead, height and width are resized
    one after the other.
    """
    perm, mode = ctx.perm(), coordinate_mode(ctx)
    if {perm.index(1), perm.index(2)} in ({1, 2}, {2, 3}):
        new_shape = output_shape(ctx, size, perm)
        return ctx.ops.Resize(x, None, None, new_shape, mode="linear", coordinate_transformation_mode=mode)
    static_sizes = [size for size in ctx.shape(0) if size is not None]
    if len(static_sizes) == len(perm) and ctx.op[1].is_constant:
        new_shape = np.asarray(output_shape(ctx, size, perm))
        for axis in (perm.index(1), perm.index(2)):
            before, after = math.prod(static_sizes[:axis]), math.prod(static_sizes[axis + 1 :])
            x = ctx.ops.Reshape(x, [before, static_sizes[axis], after])
            static_sizes[axis] = int(new_shape[axis])
            resized_shape = np.asarray([before, static_sizes[axis], after], np.int64)
            x = ctx.ops.Resize(x, None, None, resized_shape, mode="linear", coordinate_transformation_mode=mode)
        return ctx.ops.Reshape(x, static_sizes)
    x = ctx.ops.Transpose(x, perm=[perm.index(axis) for axis in CHANNELS_FIRST])
    new_shape = output_shape(ctx, size, CHANNELS_FIRST)
    y = ctx.ops.Resize(x, None, None, new_shape, mode="linear", coordinate_transformation_mode=mode)
    return ctx.ops.Transpose(y, perm=[CHANNELS_FIRST.index(axis) for axis in perm])


def half_up_offset(op: Operator) -> float:
    """Return the offset that rounds half up as XNNPACK does (xnn_s8_ibilinear).

    QuantizeLinear rounds half to even. Doubling the size gives ties in 5 to 16 of 100 pixels. The kernel without
    XNNPACK is off by up to 4 LSB.
    """
    q = op[0].quantization
    if op[0].dtype not in ("int8", "uint8") or not isinstance(q, Quantization) or q != op[out(0)].quantization:
        return 0.0
    return q.scale[0] * OFFSET_LSB


def rounded_coordinates(op: Operator) -> tuple[Array, Array] | None:
    """Return row and column coordinates in 1/1024, as in the kernel.

    Source: ResizeBilinearInteger (reference/resize_bilinear.h). The result is None for runtime sizes. It is also None
    for exact coordinates, because ONNX's Resize then has the same result.
    """
    sizes, new_sizes = op[0].dims[1:3], constant_integers(op, 1)
    if new_sizes is None or None in sizes:
        return None
    rows, columns = (
        coordinates_in_1024ths(op, size or 0, output_size) for size, output_size in zip(sizes, new_sizes, strict=True)
    )
    return None if rows[1] and columns[1] else (rows[0], columns[0])


def coordinates_in_1024ths(op: Operator, size: int, output_size: int) -> tuple[Array, bool]:
    """Return the coordinates along one axis, and True if they are exact."""
    spend_budget(4 * max(output_size, 0), 8, "the indices of resized rows or columns")
    size_offset = int(bool(op.options.align_corners) and output_size > 1)
    step, remainder = divmod(1024 * (size - size_offset) + (output_size - size_offset) // 2, output_size - size_offset)
    is_exact = remainder == (output_size - size_offset) // 2
    coordinates = np.arange(output_size) * step
    if op.options.half_pixel_centers:
        coordinates, is_exact = coordinates + step // 2 - 512, is_exact and not step % 2
    return np.clip(coordinates, 0, 1024 * (size - 1)), is_exact


class Interpolation(NamedTuple):
    """Indices and float32 weights of the two neighbors of each position along an axis."""

    lower: ValueLike
    upper: ValueLike
    upper_weight: ValueLike
    lower_weight: ValueLike


def interpolation_at(coordinates: Array) -> Interpolation:
    """Return the interpolation at coordinates in 1/1024."""
    weight = np.float32(coordinates % 1024 / 1024)
    return Interpolation(coordinates // 1024, -(-coordinates // 1024), weight, 1 - weight)


def emit_interpolation(ctx: Context, size: Value, output_size: Value) -> Interpolation:
    """Emit the interpolation for runtime sizes, as :func:`coordinates_in_1024ths`."""
    ops, options = ctx.ops, ctx.options
    size_offset = ops.Where(ops.Greater(output_size, 1), 1, 0) if options.align_corners else np.int64(0)
    scaled_size, divisor = ops.Mul(ops.Sub(size, size_offset), 1024), ops.Sub(output_size, size_offset)
    step = ops.Div(ops.Add(scaled_size, ops.Div(divisor, 2)), divisor)
    coordinates = ops.Mul(ops.Range(0, output_size, 1), step)
    if options.half_pixel_centers:
        coordinates = ops.Add(coordinates, ops.Sub(ops.Div(step, 2), 512))
    coordinates = ops.Min(ops.Max(coordinates, np.int64(0)), ops.Mul(ops.Sub(size, 1), 1024))
    lower = ops.Div(coordinates, 1024)
    remainder = ops.Sub(coordinates, ops.Mul(lower, 1024))
    weight = ops.Div(ops.Cast(remainder, to="float32"), np.float32(1024))
    return Interpolation(lower, ops.Add(lower, ops.Min(remainder, np.int64(1))), weight, ops.Sub(np.float32(1), weight))


def interpolate_axis(ctx: Context, x: Value, axis: int, interpolation: Interpolation) -> Value:
    """Emit weighted means of two neighbors along an axis of operand 0."""
    ops, onnx_axis = ctx.ops, ctx.axis(axis)
    shape = np.asarray(ctx.permute_entries([-1 if k == axis else 1 for k in range(4)]), np.int64)
    upper_weight, lower_weight = (
        weight.reshape(shape.tolist()) if isinstance(weight, np.ndarray) else ops.Reshape(weight, shape)
        for weight in (interpolation.upper_weight, interpolation.lower_weight)
    )
    lower = ops.Mul(ops.Gather(x, interpolation.lower, axis=onnx_axis), lower_weight)
    upper = ops.Mul(ops.Gather(x, interpolation.upper, axis=onnx_axis), upper_weight)
    return ops.Add(lower, upper)


def coordinate_mode(ctx: Context) -> str:
    options = ctx.options
    return "align_corners" if options.align_corners else "half_pixel" if options.half_pixel_centers else "asymmetric"


def output_shape(ctx: Context, size: Value, perm: Sequence[int]) -> Value | Array:
    """Return the output's shape in a layout, with height and width of operand 1."""
    n, _, _, c = ctx.op[0].dims
    constant_size = ctx.op.constant(1)
    if constant_size is not None and n is not None and c is not None:
        return np.asarray([[n, *constant_size.reshape(-1), c][axis] for axis in perm], np.int64)
    shape, new_sizes = ctx.ops.Shape(ctx.quantized_values(0)), ctx.ops.Cast(size, to="int64")
    sources = {0: (shape, ctx.axis(0)), 1: (new_sizes, 0), 2: (new_sizes, 1), 3: (shape, ctx.axis(3))}
    return ctx.ops.Concat(*(ctx.ops.Gather(sources[axis][0], [sources[axis][1]]) for axis in perm), axis=0)


# --- nearest ----------------------------------------------------------------------------------


def nearest_indices(op: Operator) -> tuple[Array, Array] | None:
    """Return the indices of rows and columns, ``None`` for runtime sizes."""
    (_, height, width, _), times = op[0].dims, op.options.get("times")
    if height is None or width is None:
        return None
    if times is not None:  # set by the fusion UPSAMPLING_2D
        return np.repeat(np.arange(height), times[0]), np.repeat(np.arange(width), times[1])
    output_size = constant_integers(op, 1)
    return (
        None
        if output_size is None
        else (nearest_along(op, height, output_size[0]), nearest_along(op, width, output_size[1]))
    )


def nearest_along(op: Operator, size: int, output_size: int) -> Array:
    """Return the nearest indices as in the kernel, in float32 or fixed point.

    Source: GetNearestNeighbor (optimized_ops.h).
    """
    spend_budget(4 * max(output_size, 0), 8, "the indices of resized rows or columns")
    options, positions = op.options, np.arange(output_size)
    if uses_fixed_point(op):
        return np.asarray(np.minimum(positions * ((size << 16) // output_size + 1) >> 16, size - 1))
    size_offset = int(options.align_corners and output_size > 1)
    scale = np.float32(size - size_offset) / np.float32(output_size - size_offset)
    coordinates = (positions + options.half_pixel_centers / 2).astype(np.float32) * scale
    nearest = np.floor(coordinates)
    if options.align_corners:
        nearest += coordinates - nearest >= 0.5
    return np.asarray(np.minimum(nearest.astype(np.int64), size - 1))


def emit_nearest(ctx: Context, size: Value, output_size: Value) -> Value:
    """Emit nearest indices for runtime sizes."""
    ops, options = ctx.ops, ctx.options
    positions, last_index = ops.Range(0, output_size, 1), ops.Sub(size, 1)
    if uses_fixed_point(ctx.op):
        step = ops.Add(ops.Div(ops.Mul(size, 1 << 16), output_size), 1)
        return ops.Min(ops.Div(ops.Mul(positions, step), 1 << 16), last_index)
    size_offset = ops.Where(ops.Greater(output_size, 1), 1, 0) if options.align_corners else 0
    positions, scaled_size, divisor = (
        ops.Cast(v, to="float32") for v in (positions, ops.Sub(size, size_offset), ops.Sub(output_size, size_offset))
    )
    coordinates = ops.Mul(ops.Add(positions, options.half_pixel_centers / 2), ops.Div(scaled_size, divisor))
    nearest = ops.Floor(coordinates)
    if options.align_corners:
        nearest = ops.Where(ops.Less(ops.Sub(coordinates, nearest), 0.5), nearest, ops.Add(nearest, 1.0))
    return ops.Min(ops.Cast(nearest, to="int64"), last_index)


def uses_fixed_point(op: Operator) -> bool:
    return op[0].dtype in ("int8", "uint8") and not (op.options.align_corners or op.options.half_pixel_centers)


def repetition_counts(op: Operator) -> list[int] | None:
    """Return how many times rows and columns are repeated, or None.

    The result is None if the counts differ between rows or between columns. If the counts are equal, all implementations of
    Resize agree.
    """
    indices = nearest_indices(op)
    if indices is None:
        return None
    sizes = [size or 0 for size in op[0].dims[1:3]]
    counts = [axis_indices.size // (size or 1) for size, axis_indices in zip(sizes, indices, strict=True)]
    are_equal = (
        axis_indices.size == size * count and np.array_equal(axis_indices, np.repeat(np.arange(size), count))
        for size, axis_indices, count in zip(sizes, indices, counts, strict=True)
    )
    return counts if all(are_equal) else None


def nearest_price(at: Instance) -> AxisPrice | None:
    """Return the price of a layout.

    A Gather of columns is faster if it moves contiguous pixels. Float Resize prefers channels first.
    """
    if repetition_counts(at.op) is None:
        return AxisPrice("Gather", "h w", slot=out(0))
    return AxisPrice("Resize/nearest/integers", "h w", slot=out(0)) if at.op[0].dtype in ("int8", "uint8") else None


@handler(
    "RESIZE_NEAREST_NEIGHBOR",
    max_version=4,
    layout=Attribute(unordered="n c"),
    axes="n h w c -> n h w c",
    axis_price=nearest_price,
    quantization=Raw(shift_safe=True, onnx="Gather"),
)
def resize_nearest_neighbor(ctx: Context, x: Value, *size: Value) -> Value:
    """Emit Resize for repeated pixels if channels are first, else Gathers.

    The Gathers select columns first, and then rows.
    """
    times = repetition_counts(ctx.op)
    if times not in (None, [1, 1]) and ctx.perm()[-2:] == (1, 2) and ctx.target.has_kernel("Resize", ctx.dtype(0)):
        scales = np.asarray(ctx.permute_entries([1, *times, 1]), np.float32)
        return ctx.ops.Resize(
            x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    indices, y = nearest_indices(ctx.op), x
    for k in (1, 0):
        axis = ctx.axis(1 + k)
        if indices is None:
            input_size = ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(axis))
            output_size = ctx.ops.Gather(cast_to_int64(ctx, 1, *size), np.asarray(k))
            y = ctx.ops.Gather(y, emit_nearest(ctx, input_size, output_size), axis=axis)
        elif indices[k].size != ctx.op[0].dims[1 + k] or not np.array_equal(indices[k], np.arange(indices[k].size)):
            y = ctx.ops.Gather(y, indices[k], axis=axis)
    return y
