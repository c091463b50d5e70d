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
    spend,
)
from op_handlers.kernels.half_rounding import OFFSET_LSB
from op_handlers.kernels.operands import cast_to_int64, constant_integers, reinterpret_scale

CHANNELS_FIRST = (0, 3, 1, 2)


def resize_price(at: Instance) -> AxisPrice | None:
    """Return the price: many channels resize faster channels last; dequantized images have a separate price."""
    if (at.op[0].dims[3] or 1) < 8:
        return None
    return AxisPrice("Resize" if at.op[0].dtype == "float32" else "Resize/dequantized", "h w", slot=out(0))


def resize_layout(at: Instance) -> Attribute | Implicit:
    """Return a layout with height and width anywhere, or last for targets that resize only last axes."""
    last = "Resize" in at.target.last_axes_only
    return Implicit({0: "n c h w", out(0): "n c h w"}) if last else Attribute(unordered="n c")


@handler(
    "RESIZE_BILINEAR",
    max_version=4,
    layout=resize_layout,
    axes="n h w c -> n h w c",
    axis_price=resize_price,
    quantization=Dequantized(),
)
def resize_bilinear(ctx: Context, x: Value, size: Value) -> Value:
    """Emit linear Resize. Integers without a scale are rounded as in the kernel; ONNX Runtime truncates."""
    dtype = ctx.op[0].dtype
    if "float" in dtype or ctx.op[0].quantization is not None:
        return emit_bilinear(ctx, x, size)
    y = emit_bilinear(ctx, ctx.ops.Cast(x, to="float32"), size)
    return ctx.ops.Cast(ctx.ops.Round(y), to=dtype)


def emit_bilinear(ctx: Context, x: Value, size: Value) -> Value:
    """Resize floats; for int16 with rounded coordinates, as means of two rows and of two columns."""
    rounded = rounded_coordinates(ctx.op) if ctx.op[0].dtype == "int16" else None
    if rounded is not None:
        return reinterpret_scale(
            ctx,
            interpolate_axis(
                ctx, interpolate_axis(ctx, x, 1, interpolation_of(rounded[0])), 2, interpolation_of(rounded[1])
            ),
        )
    if ctx.op[0].dtype == "int16" and (None in ctx.op[0].dims[1:3] or not ctx.op[1].is_constant):
        for k in (0, 1):
            output_size = ctx.ops.Gather(cast_to_int64(ctx, 1, size), np.asarray(k))
            input_size = ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(ctx.axis(1 + k)))
            x = interpolate_axis(ctx, x, 1 + k, emit_interpolation(ctx, input_size, output_size))
        return reinterpret_scale(ctx, x)
    more = half_up_offset(ctx.op)
    before = math.prod(ctx.op[0].shape) <= math.prod(ctx.op[out(0)].shape)  # where there are fewer: means carry it on
    if more and before:
        x = ctx.ops.Add(x, more)
    y = emit_linear_resize(ctx, x, size)
    return reinterpret_scale(ctx, ctx.ops.Add(y, more) if more and not before else y)


def emit_linear_resize(ctx: Context, x: Value, size: Value) -> Value:
    """Emit Resize over adjacent axes; one after the other for others, which ONNX Runtime lacks.

    Dynamic shapes are transposed to channels first; static ones are not, since ONNX Runtime moves Transposes after a
    Resize that it then cannot run.
    """
    perm, mode = ctx.perm(), coordinate_mode(ctx)
    if {perm.index(1), perm.index(2)} in ({1, 2}, {2, 3}):
        wanted = output_shape(ctx, size, perm)
        return ctx.ops.Resize(x, None, None, wanted, mode="linear", coordinate_transformation_mode=mode)
    known = [size for size in ctx.shape(0) if size is not None]
    if len(known) == len(perm) and ctx.op[1].is_constant:
        wanted = np.asarray(output_shape(ctx, size, perm))
        for axis in (perm.index(1), perm.index(2)):
            before, after = math.prod(known[:axis]), math.prod(known[axis + 1 :])
            x = ctx.ops.Reshape(x, [before, known[axis], after])
            known[axis] = int(wanted[axis])
            along = np.asarray([before, known[axis], after], np.int64)
            x = ctx.ops.Resize(x, None, None, along, mode="linear", coordinate_transformation_mode=mode)
        return ctx.ops.Reshape(x, known)
    x = ctx.ops.Transpose(x, perm=[perm.index(axis) for axis in CHANNELS_FIRST])
    wanted = output_shape(ctx, size, CHANNELS_FIRST)
    y = ctx.ops.Resize(x, None, None, wanted, mode="linear", coordinate_transformation_mode=mode)
    return ctx.ops.Transpose(y, perm=[CHANNELS_FIRST.index(axis) for axis in perm])


def half_up_offset(op: Operator) -> float:
    """Return the offset that rounds half up as XNNPACK does (xnn_s8_ibilinear); QuantizeLinear rounds half to even.

    Doubling the size gives halves in 5 to 16 of 100 pixels. The kernel without XNNPACK is off by up to 4 LSB.
    """
    q = op[0].quantization
    if op[0].dtype not in ("int8", "uint8") or not isinstance(q, Quantization) or q != op[out(0)].quantization:
        return 0.0
    return q.scale[0] * OFFSET_LSB


def rounded_coordinates(op: Operator) -> tuple[Array, Array] | None:
    """Return row and column coordinates in 1/1024, as in the kernel (ResizeBilinearInteger, reference/resize_bilinear.h).

    ``None`` if they are exact, as Resize computes them, and for runtime sizes.
    """
    sizes, wanted = op[0].dims[1:3], constant_integers(op, 1)
    if wanted is None or None in sizes:
        return None
    rows, columns = (
        coordinates_in_1024ths(op, size or 0, output_size) for size, output_size in zip(sizes, wanted, strict=True)
    )
    return None if rows[1] and columns[1] else (rows[0], columns[0])


def coordinates_in_1024ths(op: Operator, size: int, output_size: int) -> tuple[Array, bool]:
    """Return the coordinates along one axis, and True if they are exact."""
    spend(4 * max(output_size, 0), 8, "the indices of resized rows or columns")
    ends = int(bool(op.options.align_corners) and output_size > 1)
    step, rest = divmod(1024 * (size - ends) + (output_size - ends) // 2, output_size - ends)
    exact = rest == (output_size - ends) // 2
    place = np.arange(output_size) * step
    if op.options.half_pixel_centers:
        place, exact = place + step // 2 - 512, exact and not step % 2
    return np.clip(place, 0, 1024 * (size - 1)), exact


class Interpolation(NamedTuple):
    """Per position along an axis: the neighbors below and above, and the weight of the one above (float32)."""

    below: ValueLike
    above: ValueLike
    share: ValueLike
    rest: ValueLike


def interpolation_of(place: Array) -> Interpolation:
    """Return the interpolation at coordinates in 1/1024."""
    share = np.float32(place % 1024 / 1024)
    return Interpolation(place // 1024, -(-place // 1024), share, 1 - share)


def emit_interpolation(ctx: Context, size: Value, output_size: Value) -> Interpolation:
    """Emit the interpolation for runtime sizes, see :func:`coordinates_in_1024ths`."""
    ops, o = ctx.ops, ctx.options
    ends = ops.Where(ops.Greater(output_size, 1), 1, 0) if o.align_corners else np.int64(0)
    part, whole = ops.Mul(ops.Sub(size, ends), 1024), ops.Sub(output_size, ends)
    step = ops.Div(ops.Add(part, ops.Div(whole, 2)), whole)
    place = ops.Mul(ops.Range(0, output_size, 1), step)
    if o.half_pixel_centers:
        place = ops.Add(place, ops.Sub(ops.Div(step, 2), 512))
    place = ops.Min(ops.Max(place, np.int64(0)), ops.Mul(ops.Sub(size, 1), 1024))
    below = ops.Div(place, 1024)
    over = ops.Sub(place, ops.Mul(below, 1024))
    share = ops.Div(ops.Cast(over, to="float32"), np.float32(1024))
    return Interpolation(below, ops.Add(below, ops.Min(over, np.int64(1))), share, ops.Sub(np.float32(1), share))


def interpolate_axis(ctx: Context, x: Value, axis: int, at: Interpolation) -> Value:
    """Emit means of two neighbors along an axis of slot 0."""
    ops, k = ctx.ops, ctx.axis(axis)
    along = np.asarray(ctx.permute_entries([-1 if one == axis else 1 for one in range(4)]), np.int64)
    share, rest = (
        one.reshape(along.tolist()) if isinstance(one, np.ndarray) else ops.Reshape(one, along)
        for one in (at.share, at.rest)
    )
    return ops.Add(ops.Mul(ops.Gather(x, at.below, axis=k), rest), ops.Mul(ops.Gather(x, at.above, axis=k), share))


def coordinate_mode(ctx: Context) -> str:
    o = ctx.options
    return "align_corners" if o.align_corners else "half_pixel" if o.half_pixel_centers else "asymmetric"


def output_shape(ctx: Context, size: Value, perm: Sequence[int]) -> Value | Array:
    """Return the output's shape in a layout: batch and channels unchanged, [height, width] from the operand."""
    n, _, _, c = ctx.op[0].dims
    constant = ctx.op.constant(1)
    if constant is not None and n is not None and c is not None:
        return np.asarray([[n, *constant.reshape(-1), c][axis] for axis in perm], np.int64)
    shape, wanted = ctx.ops.Shape(ctx.quantized_values(0)), ctx.ops.Cast(size, to="int64")
    picked = {0: (shape, ctx.axis(0)), 1: (wanted, 0), 2: (wanted, 1), 3: (shape, ctx.axis(3))}
    return ctx.ops.Concat(*(ctx.ops.Gather(picked[axis][0], [picked[axis][1]]) for axis in perm), axis=0)


# --- nearest ----------------------------------------------------------------------------------


def nearest_indices(op: Operator) -> tuple[Array, Array] | None:
    """Return the indices of rows and columns; ``None`` for runtime sizes."""
    (_, height, width, _), times = op[0].dims, op.options.get("times")
    if height is None or width is None:
        return None
    if times is not None:  # repetitions of a fusion
        return np.repeat(np.arange(height), times[0]), np.repeat(np.arange(width), times[1])
    output_size = constant_integers(op, 1)
    return (
        None
        if output_size is None
        else (nearest_along(op, height, output_size[0]), nearest_along(op, width, output_size[1]))
    )


def nearest_along(op: Operator, size: int, output_size: int) -> Array:
    """Return the kernel's nearest indices, in float32 or fixed point (GetNearestNeighbor, optimized_ops.h)."""
    spend(4 * max(output_size, 0), 8, "the indices of resized rows or columns")
    o, place = op.options, np.arange(output_size)
    if uses_fixed_point(op):
        return np.asarray(np.minimum(place * ((size << 16) // output_size + 1) >> 16, size - 1))
    ends = int(o.align_corners and output_size > 1)
    scale = np.float32(size - ends) / np.float32(output_size - ends)
    at = (place + o.half_pixel_centers / 2).astype(np.float32) * scale
    below = np.floor(at)
    if o.align_corners:
        below += at - below >= 0.5
    return np.asarray(np.minimum(below.astype(np.int64), size - 1))


def emit_nearest(ctx: Context, size: Value, output_size: Value) -> Value:
    """Emit nearest indices for runtime sizes."""
    ops, o = ctx.ops, ctx.options
    place, last = ops.Range(0, output_size, 1), ops.Sub(size, 1)
    if uses_fixed_point(ctx.op):
        step = ops.Add(ops.Div(ops.Mul(size, 1 << 16), output_size), 1)
        return ops.Min(ops.Div(ops.Mul(place, step), 1 << 16), last)
    ends = ops.Where(ops.Greater(output_size, 1), 1, 0) if o.align_corners else 0
    place, part, whole = (ops.Cast(v, to="float32") for v in (place, ops.Sub(size, ends), ops.Sub(output_size, ends)))
    at = ops.Mul(ops.Add(place, o.half_pixel_centers / 2), ops.Div(part, whole))
    below = ops.Floor(at)
    if o.align_corners:
        below = ops.Where(ops.Less(ops.Sub(at, below), 0.5), below, ops.Add(below, 1.0))
    return ops.Min(ops.Cast(below, to="int64"), last)


def uses_fixed_point(op: Operator) -> bool:
    return op[0].dtype in ("int8", "uint8") and not (op.options.align_corners or op.options.half_pixel_centers)


def repetition_counts(op: Operator) -> list[int] | None:
    """Return how often rows and columns are repeated if all are equally often, where all Resize implementations agree."""
    indices = nearest_indices(op)
    if indices is None:
        return None
    times = [places.size // (size or 1) for size, places in zip(op[0].dims[1:3], indices, strict=True)]
    agree = (
        p.size == (n or 0) * t and np.array_equal(p, np.repeat(np.arange(n or 0), t))
        for n, p, t in zip(op[0].dims[1:3], indices, times, strict=True)
    )
    return times if all(agree) else None


def nearest_price(at: Instance) -> AxisPrice | None:
    """Return the price: a Gather of columns should move whole pixels; float Resize prefers channels first."""
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
    """Emit Resize of repeated pixels channels first; else a Gather of columns and one of rows."""
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
