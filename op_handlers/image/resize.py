"""Resizing images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Array,
    Attribute,
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


def sampled(at: Instance) -> Along | None:
    """Resizing many channels is faster with the channels last; what was dequantized has a price of its own."""
    if (at.op[0].dims[3] or 1) < 8:
        return None
    return Along("Resize" if at.op[0].dtype == "float32" else "Resize/dequantized", "h w", slot=out(0))


def resizable(at: Instance) -> Attribute | Implicit:
    """Height and width anywhere, or last where the target resizes no others."""
    last = "Resize" in at.target.last_axes_only
    return Implicit({0: "n c h w", out(0): "n c h w"}) if last else Attribute(unordered="n c")


@handler(
    "RESIZE_BILINEAR",
    max_version=4,
    layout=resizable,
    axes="n h w c -> n h w c",
    along=sampled,
    quantization=Dequantized(),
)
def resize_bilinear(ctx: Context, x: Value, size: Value) -> Value:
    """Resize, linear. Integers without a scale are rounded, as the kernel does; ONNX Runtime's Resize cuts them off."""
    dtype = ctx.op[0].dtype
    if "float" in dtype or ctx.op[0].quantization is not None:
        return between_pixels(ctx, x, size)
    y = between_pixels(ctx, ctx.ops.Cast(x, to="float32"), size)
    return ctx.ops.Cast(ctx.ops.Round(y), to=dtype)


def between_pixels(ctx: Context, x: Value, size: Value) -> Value:
    """Floats resized; of int16 a mean of two rows and one of two columns where the kernel rounds their places."""
    rounded = rounded_places(ctx.op) if ctx.op[0].dtype == "int16" else None
    if rounded is not None:
        return reinterpret_scale(ctx, between(ctx, between(ctx, x, 1, shares(rounded[0])), 2, shares(rounded[1])))
    if ctx.op[0].dtype == "int16" and (None in ctx.op[0].dims[1:3] or not ctx.op[1].constant):
        for k in (0, 1):
            output_size = ctx.ops.Gather(cast_to_int64(ctx, 1, size), np.asarray(k))
            input_size = ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(ctx.axis(1 + k)))
            x = between(ctx, x, 1 + k, shares_at_run_time(ctx, input_size, output_size))
        return reinterpret_scale(ctx, x)
    more = upwards(ctx.op)
    before = math.prod(ctx.op[0].shape) <= math.prod(ctx.op[out(0)].shape)  # where there are fewer: means carry it on
    if more and before:
        x = ctx.ops.Add(x, more)
    y = linear(ctx, x, size)
    return reinterpret_scale(ctx, ctx.ops.Add(y, more) if more and not before else y)


def linear(ctx: Context, x: Value, size: Value) -> Value:
    """Resize, of neighbouring axes behind the first or at the end. Of others, which ONNX Runtime has not, one after the other.

    Those of unknown size channels first; known ones not, for ONNX Runtime moves Transposes behind a Resize that it cannot run then.
    """
    perm, how = ctx.perm(), coordinates(ctx)
    if {perm.index(1), perm.index(2)} in ({1, 2}, {2, 3}):
        wanted = sizes(ctx, size, perm)
        return ctx.ops.Resize(x, None, None, wanted, mode="linear", coordinate_transformation_mode=how)
    known = [size for size in ctx.shape(0) if size is not None]
    if len(known) == len(perm) and ctx.op[1].constant:
        wanted = np.asarray(sizes(ctx, size, perm))
        for axis in (perm.index(1), perm.index(2)):
            before, after = math.prod(known[:axis]), math.prod(known[axis + 1 :])
            x = ctx.ops.Reshape(x, [before, known[axis], after])
            known[axis] = int(wanted[axis])
            along = np.asarray([before, known[axis], after], np.int64)
            x = ctx.ops.Resize(x, None, None, along, mode="linear", coordinate_transformation_mode=how)
        return ctx.ops.Reshape(x, known)
    x = ctx.ops.Transpose(x, perm=[perm.index(axis) for axis in CHANNELS_FIRST])
    wanted = sizes(ctx, size, CHANNELS_FIRST)
    y = ctx.ops.Resize(x, None, None, wanted, mode="linear", coordinate_transformation_mode=how)
    return ctx.ops.Transpose(y, perm=[CHANNELS_FIRST.index(axis) for axis in perm])


def upwards(op: Operator) -> float:
    """What makes halves go up, as XNNPACK rounds them (xnn_s8_ibilinear), where QuantizeLinear takes the even one.

    Twice as many rows and columns make a half of 5 to 16 in 100 pixels. The kernel without XNNPACK is off by up to 4 LSB.
    """
    q = op[0].quantization
    if op[0].dtype not in ("int8", "uint8") or not isinstance(q, Quantization) or q != op[out(0)].quantization:
        return 0.0
    return q.scale[0] * OFFSET_LSB


def rounded_places(op: Operator) -> tuple[Array, Array] | None:
    """Rows and columns in 1/1024, as the kernel has them (ResizeBilinearInteger, reference/resize_bilinear.h).

    ``None`` where they are not rounded, which Resize computes, and where sizes are known at run time only.
    """
    sizes, wanted = op[0].dims[1:3], constant_integers(op, 1)
    if wanted is None or None in sizes:
        return None
    rows, columns = (in_1024ths(op, size or 0, output_size) for size, output_size in zip(sizes, wanted, strict=True))
    return None if rows[1] and columns[1] else (rows[0], columns[0])


def in_1024ths(op: Operator, size: int, output_size: int) -> tuple[Array, bool]:
    """The places along one axis, and whether they are exact."""
    spend(4 * max(output_size, 0), 8, "the places of resized rows or columns")
    ends = int(bool(op.options.align_corners) and output_size > 1)
    step, rest = divmod(1024 * (size - ends) + (output_size - ends) // 2, output_size - ends)
    exact = rest == (output_size - ends) // 2
    place = np.arange(output_size) * step
    if op.options.half_pixel_centers:
        place, exact = place + step // 2 - 512, exact and not step % 2
    return np.clip(place, 0, 1024 * (size - 1)), exact


class Shares(NamedTuple):
    """Of each place along an axis: the neighbours below and above, and the share of the one above (float32)."""

    below: ValueLike
    above: ValueLike
    share: ValueLike
    rest: ValueLike


def shares(place: Array) -> Shares:
    """Of places in 1/1024."""
    share = np.float32(place % 1024 / 1024)
    return Shares(place // 1024, -(-place // 1024), share, 1 - share)


def shares_at_run_time(ctx: Context, size: Value, output_size: Value) -> Shares:
    """The same of sizes known as it runs, see ``in_1024ths``."""
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
    return Shares(below, ops.Add(below, ops.Min(over, np.int64(1))), share, ops.Sub(np.float32(1), share))


def between(ctx: Context, x: Value, axis: int, at: Shares) -> Value:
    """Means of two neighbours along an axis of slot 0."""
    ops, k = ctx.ops, ctx.axis(axis)
    along = np.asarray(ctx.by_axis([-1 if one == axis else 1 for one in range(4)]), np.int64)
    share, rest = (
        one.reshape(along.tolist()) if isinstance(one, np.ndarray) else ops.Reshape(one, along)
        for one in (at.share, at.rest)
    )
    return ops.Add(ops.Mul(ops.Gather(x, at.below, axis=k), rest), ops.Mul(ops.Gather(x, at.above, axis=k), share))


def coordinates(ctx: Context) -> str:
    o = ctx.options
    return "align_corners" if o.align_corners else "half_pixel" if o.half_pixel_centers else "asymmetric"


def sizes(ctx: Context, size: Value, perm: Sequence[int]) -> Value | Array:
    """The output's shape in an order: batch and channels as they are, [height, width] from the operand."""
    n, _, _, c = ctx.op[0].dims
    constant = ctx.op.constant(1)
    if constant is not None and n is not None and c is not None:
        return np.asarray([[n, *constant.reshape(-1), c][axis] for axis in perm], np.int64)
    shape, wanted = ctx.ops.Shape(ctx.raw(0)), ctx.ops.Cast(size, to="int64")
    picked = {0: (shape, ctx.axis(0)), 1: (wanted, 0), 2: (wanted, 1), 3: (shape, ctx.axis(3))}
    return ctx.ops.Concat(*(ctx.ops.Gather(picked[axis][0], [picked[axis][1]]) for axis in perm), axis=0)


# --- nearest ----------------------------------------------------------------------------------


def picked(op: Operator) -> tuple[Array, Array] | None:
    """The rows and the columns that are picked; ``None`` where sizes are known at run time only."""
    (_, height, width, _), times = op[0].dims, op.options.get("times")
    if height is None or width is None:
        return None
    if times is not None:  # a fusion says how often each is repeated
        return np.repeat(np.arange(height), times[0]), np.repeat(np.arange(width), times[1])
    output_size = constant_integers(op, 1)
    return None if output_size is None else (nearest(op, height, output_size[0]), nearest(op, width, output_size[1]))


def nearest(op: Operator, size: int, output_size: int) -> Array:
    """Where the kernels look, in float32 or fixed point as they do (GetNearestNeighbor, optimized_ops.h)."""
    spend(4 * max(output_size, 0), 8, "the places of resized rows or columns")
    o, place = op.options, np.arange(output_size)
    if in_fixed_point(op):
        return np.asarray(np.minimum(place * ((size << 16) // output_size + 1) >> 16, size - 1))
    ends = int(o.align_corners and output_size > 1)
    scale = np.float32(size - ends) / np.float32(output_size - ends)
    at = (place + o.half_pixel_centers / 2).astype(np.float32) * scale
    below = np.floor(at)
    if o.align_corners:
        below += at - below >= 0.5
    return np.asarray(np.minimum(below.astype(np.int64), size - 1))


def nearest_at_run_time(ctx: Context, size: Value, output_size: Value) -> Value:
    """The same of sizes known as it runs."""
    ops, o = ctx.ops, ctx.options
    place, last = ops.Range(0, output_size, 1), ops.Sub(size, 1)
    if in_fixed_point(ctx.op):
        step = ops.Add(ops.Div(ops.Mul(size, 1 << 16), output_size), 1)
        return ops.Min(ops.Div(ops.Mul(place, step), 1 << 16), last)
    ends = ops.Where(ops.Greater(output_size, 1), 1, 0) if o.align_corners else 0
    place, part, whole = (ops.Cast(v, to="float32") for v in (place, ops.Sub(size, ends), ops.Sub(output_size, ends)))
    at = ops.Mul(ops.Add(place, o.half_pixel_centers / 2), ops.Div(part, whole))
    below = ops.Floor(at)
    if o.align_corners:
        below = ops.Where(ops.Less(ops.Sub(at, below), 0.5), below, ops.Add(below, 1.0))
    return ops.Min(ops.Cast(below, to="int64"), last)


def in_fixed_point(op: Operator) -> bool:
    return op[0].dtype in ("int8", "uint8") and not (op.options.align_corners or op.options.half_pixel_centers)


def repeats(op: Operator) -> list[int] | None:
    """How often rows and columns are repeated where all are alike: there, every implementation of Resize agrees."""
    indices = picked(op)
    if indices is None:
        return None
    times = [places.size // (size or 1) for size, places in zip(op[0].dims[1:3], indices, strict=True)]
    alike = (
        p.size == (n or 0) * t and np.array_equal(p, np.repeat(np.arange(n or 0), t))
        for n, p, t in zip(op[0].dims[1:3], indices, times, strict=True)
    )
    return times if all(alike) else None


def picking(at: Instance) -> Along | None:
    """A Gather of columns had better move whole pixels; Resize of floats is at home channels first."""
    if repeats(at.op) is None:
        return Along("Gather", "h w", slot=out(0))
    return Along("Resize/nearest/integers", "h w", slot=out(0)) if at.op[0].dtype in ("int8", "uint8") else None


@handler(
    "RESIZE_NEAREST_NEIGHBOR",
    max_version=4,
    layout=Attribute(unordered="n c"),
    axes="n h w c -> n h w c",
    along=picking,
    quantization=Raw(shift_safe=True, onnx="Gather"),
)
def resize_nearest_neighbor(ctx: Context, x: Value, *size: Value) -> Value:
    """Resize of repeated pixels channels first; else a Gather of columns and one of rows, at the kernel's places."""
    times = repeats(ctx.op)
    if times not in (None, [1, 1]) and ctx.perm()[-2:] == (1, 2) and ctx.target.has_kernel("Resize", ctx.dtype(0)):
        scales = np.asarray(ctx.by_axis([1, *times, 1]), np.float32)
        return ctx.ops.Resize(
            x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
    indices, y = picked(ctx.op), x
    for k in (1, 0):
        axis = ctx.axis(1 + k)
        if indices is None:
            input_size = ctx.ops.Gather(ctx.ops.Shape(x), np.asarray(axis))
            output_size = ctx.ops.Gather(cast_to_int64(ctx, 1, *size), np.asarray(k))
            y = ctx.ops.Gather(y, nearest_at_run_time(ctx, input_size, output_size), axis=axis)
        elif indices[k].size != ctx.op[0].dims[1 + k] or not np.array_equal(indices[k], np.arange(indices[k].size)):
            y = ctx.ops.Gather(y, indices[k], axis=axis)
    return y
