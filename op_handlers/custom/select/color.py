"""Conversion and adjustment of colors in images with channels last."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Instance, Terminate, Value, handler
from op_handlers.custom.select.nodedef import PREFIX
from op_handlers.custom.select.rewriting import (
    Accepts,
    HandlerDecorator,
    acceptance_check,
    element_count_check,
    make_kernel,
)
from op_handlers.kernels.operands import reshape_to_scalar

PRIMARY_HUES = (0.0, 2 / 6, 4 / 6)
"""Hue of red, green and blue."""


def check_channels(instance: Instance) -> Decline | None:
    """Return a Decline for images without 3 channels."""
    dims = instance.op[0].dims
    if dims and dims[-1] in (3, None):
        return None
    return Decline(f"the image has shape {list(dims)}; expected 3 channels in the last axis")


def check_image_rank(instance: Instance) -> Decline | None:
    rank = instance.op[0].rank
    return None if rank >= 3 else Decline(f"the image has rank {rank}, expected at least 3")


def color_operator(name: str, operands: int, function: Any, check: Accepts = check_channels) -> HandlerDecorator:
    """Return a decorator that declares an operator on a float32 image.

    ``operands``: 1, or 2 for an image and a scalar. ``function``: the operator in NumPy.
    """
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Terminate(),
        types=", ".join(["float32"] * operands) + " -> float32",
        accepts=acceptance_check(
            operands, accepts=element_count_check(check, slot=1, count=1) if operands == 2 else check
        ),
        kernel=make_kernel(function),
    )


# --- reference ----------------------------------------------------------------------------------


def compute_hue(x: Array) -> Array:
    """Return the hue of RGB colors in [0, 1); 0 for gray."""
    r, g, b = (x[..., k] for k in range(3))
    largest, extent = x.max(-1), x.max(-1) - x.min(-1)
    slope = np.divide(1, 6 * extent, out=np.zeros_like(extent), where=extent > 0)
    hue = np.where(g == largest, slope * (b - r) + PRIMARY_HUES[1], slope * (r - g) + PRIMARY_HUES[2])
    hue = np.where(extent > 0, np.where(r == largest, slope * (g - b), hue), 0)
    return np.asarray(np.where(hue < 0, hue + 1, hue), np.float32)


def saturated_rgb(hue: Array) -> Array:
    """Return red, green and blue of the saturated color of a hue, from 0 to 1."""
    h = hue * 6
    channels = np.stack([np.abs(h - 3) - 1, 2 - np.abs(h - 2), 2 - np.abs(h - 4)], -1)
    return np.asarray(np.clip(channels, 0, 1), np.float32)


def to_hsv(x: Array) -> Array:
    largest, extent = x.max(-1), x.max(-1) - x.min(-1)
    saturation = np.where(largest > 0, extent / largest, 0)
    return np.stack([compute_hue(x), saturation, largest], -1).astype(np.float32)


def to_rgb(x: Array) -> Array:
    hue, saturation, value = (x[..., k] for k in range(3))
    channels = (1 - saturation)[..., None] + saturation[..., None] * saturated_rgb(hue)
    return np.asarray(channels * value[..., None], np.float32)


def scale_saturation(x: Array, scale: Array) -> Array:
    hsv = to_hsv(x)
    hsv[..., 1] = np.clip(hsv[..., 1] * scale.reshape(()), 0, 1)
    return to_rgb(hsv)


def rotate_hue(x: Array, delta: Array) -> Array:
    hue = np.mod(compute_hue(x) + delta.reshape(()), 1)
    smallest, largest = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return np.asarray(smallest + (largest - smallest) * saturated_rgb(hue), np.float32)


def scale_contrast(x: Array, factor: Array) -> Array:
    mean = x.mean((-3, -2), keepdims=True, dtype=np.float64)
    return np.asarray((x - mean) * factor.reshape(()) + mean, np.float32)


# --- lowering -----------------------------------------------------------------------------------


class _Color(NamedTuple):
    """Hue and extreme channels of colors, each with a last axis of size 1.

    ``extent``: the difference of largest and smallest channel.
    """

    hue: Value
    smallest: Value
    largest: Value
    extent: Value


def emit_color(ctx: Context, x: Value) -> _Color:
    """Emit the hue and the extreme channels of RGB colors."""
    ops, zero, one = ctx.ops, np.float32(0), np.float32(1)
    red, green, blue = ops.Split(x, axis=-1, num_outputs=3, outputs=3)
    largest, smallest = (reduce(x, np.asarray([-1]), keepdims=1) for reduce in (ops.ReduceMax, ops.ReduceMin))
    extent = ops.Sub(largest, smallest)
    is_gray = ops.LessOrEqual(extent, zero)
    divisor = ops.Mul(ops.Where(is_gray, one, extent), np.float32(6))

    def hue_near(primary: int, next_channel: Value, previous_channel: Value) -> Value:
        """Return the hue of colors whose largest channel is ``primary``."""
        difference = ops.Div(ops.Sub(next_channel, previous_channel), divisor)
        return ops.Add(difference, np.float32(PRIMARY_HUES[primary]))

    hue = ops.Where(ops.Equal(green, largest), hue_near(1, blue, red), hue_near(2, red, green))
    hue = ops.Where(ops.Equal(red, largest), hue_near(0, green, blue), hue)
    hue = ops.Where(is_gray, zero, hue)
    return _Color(ops.Where(ops.Less(hue, zero), ops.Add(hue, one), hue), smallest, largest, extent)


def emit_saturation(ctx: Context, color: _Color) -> Value:
    """Emit the extent divided by the largest channel; 0 for black."""
    ops, zero, one = ctx.ops, np.float32(0), np.float32(1)
    is_black = ops.LessOrEqual(color.largest, zero)
    return ops.Where(is_black, zero, ops.Div(color.extent, ops.Where(is_black, one, color.largest)))


def emit_saturated_rgb(ctx: Context, hue: Value) -> Value:
    """Return red, green and blue of the saturated color of a hue, from 0 to 1."""
    ops = ctx.ops
    distance = ops.Abs(ops.Sub(ops.Mul(hue, np.float32(6)), np.asarray([3, 2, 4], np.float32)))
    channels = ops.Add(ops.Mul(distance, np.asarray([1, -1, -1], np.float32)), np.asarray([-1, 2, 2], np.float32))
    return ops.Clip(channels, np.float32(0), np.float32(1))


def emit_rgb(ctx: Context, hue: Value, saturation: Value, value: Value) -> Value:
    ops = ctx.ops
    channels = ops.Add(ops.Sub(np.float32(1), saturation), ops.Mul(saturation, emit_saturated_rgb(ctx, hue)))
    return ops.Mul(channels, value)


@color_operator("RGBToHSV", 1, to_hsv)
def rgb_to_hsv(ctx: Context, x: Value) -> Value:
    """Emit hue, saturation and value of colors."""
    color = emit_color(ctx, x)
    return ctx.ops.Concat(color.hue, emit_saturation(ctx, color), color.largest, axis=-1)


@color_operator("HSVToRGB", 1, to_rgb)
def hsv_to_rgb(ctx: Context, x: Value) -> Value:
    """Emit a piecewise linear function of the hue."""
    hue, saturation, value = ctx.ops.Split(x, axis=-1, num_outputs=3, outputs=3)
    return emit_rgb(ctx, hue, saturation, value)


@color_operator("AdjustSaturation", 2, scale_saturation)
def adjust_saturation(ctx: Context, x: Value, scale: Value) -> Value:
    """Emit colors whose saturation is multiplied by a scale, and clipped to 0 ... 1."""
    color = emit_color(ctx, x)
    scaled = ctx.ops.Mul(emit_saturation(ctx, color), reshape_to_scalar(ctx, 1, scale))
    return emit_rgb(ctx, color.hue, ctx.ops.Clip(scaled, np.float32(0), np.float32(1)), color.largest)


@color_operator("AdjustHue", 2, rotate_hue)
def adjust_hue(ctx: Context, x: Value, delta: Value) -> Value:
    """Emit the colors with hue + delta, modulo 1, and unchanged extreme channels."""
    ops, color = ctx.ops, emit_color(ctx, x)
    hue_sum = ops.Add(color.hue, reshape_to_scalar(ctx, 1, delta))
    channels = emit_saturated_rgb(ctx, ops.Sub(hue_sum, ops.Floor(hue_sum)))
    return ops.Add(color.smallest, ops.Mul(color.extent, channels))


@color_operator("AdjustContrastv2", 2, scale_contrast, check_image_rank)
def adjust_contrast(ctx: Context, x: Value, factor: Value) -> Value:
    """Emit (x - mean) * factor + mean, with the mean of each channel."""
    ops = ctx.ops
    mean = ops.ReduceMean(x, np.asarray([-3, -2]), keepdims=1)
    return ops.Add(ops.Mul(ops.Sub(x, mean), reshape_to_scalar(ctx, 1, factor)), mean)
