"""Pools over height and width."""

from __future__ import annotations

from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Dequantized,
    Implicit,
    Instance,
    Integer,
    Padding,
    Quantization,
    Raw,
    Value,
    handler,
    out,
    padding_attributes,
)
from op_handlers.kernels.activation import CLAMPED_UNLESS_FLOAT16
from op_handlers.kernels.operands import reinterpret_scale
from op_handlers.kernels.windows import pool_shape

CHANNELS_FIRST = Implicit(onnx={0: "n c h w", out(0): "n c y x"}, squeezable=("h y", "w x"))
AXES = "n h w c -> n y x c"
BYTES = ("int8", "uint8")
FUSED = "fused_activation_function"


def means(at: Instance) -> Dequantized | Integer:
    """The kernel rounds means of what is stored; halves away from its 0, not from the zero point, and not to even."""
    return Integer() if at.op[0].dtype in BYTES and at.target.has_kernel("Clip", at.op[0].dtype) else Dequantized()


@handler(
    "AVERAGE_POOL_2D",
    max_version=3,
    layout=CHANNELS_FIRST,
    axes=AXES,
    quantization=means,
    activation=CLAMPED_UNLESS_FLOAT16,
    sizes=pool_shape,
)
def average_pool_2d(ctx: Context, x: Value) -> Value:
    """AveragePool that leaves padding out of the mean (reference/pooling.h); over the whole image, GlobalAveragePool."""
    window, zero = windows(ctx), stored_zero(ctx)
    if zero is not None:
        x = ctx.ops.DequantizeLinear(x, np.float32(1), zero)
    if window["kernel_shape"] == list(ctx.shape(0)[2:]) and not any(window.get("pads", [1])):
        y = ctx.ops.GlobalAveragePool(x)
    else:
        y = ctx.ops.AveragePool(x, count_include_pad=0, **window)
    return (
        reinterpret_scale(ctx, y)
        if zero is None
        else ctx.ops.QuantizeLinear(y, tilted(prod(window["kernel_shape"])), zero)
    )


def stored_zero(ctx: Context) -> Array | None:
    """The 0 of the file's integers, as they are delivered; ``None`` where floats are."""
    file, stored = ctx.op[out(0)].quantization, ctx.quantization(out(0))
    if not ctx.integers or stored is None or not isinstance(file, Quantization):
        return None
    return np.asarray(stored.zero_point[0] - file.zero_point[0], ctx.dtype(out(0)))


def tilted(count: int) -> np.float32:
    """A scale so little under 1 that of all means of so many numbers only halves are rounded otherwise, away from 0."""
    return np.float32(1 / (1 + min(2.0**-15, 2.0**-10 / count)))


@handler(
    "MAX_POOL_2D",
    max_version=3,
    layout=CHANNELS_FIRST,
    axes=AXES,
    quantization=Raw(shift_safe=True, onnx="MaxPool"),
    activation=FUSED,
    sizes=pool_shape,
)
def max_pool_2d(ctx: Context, x: Value) -> Value:
    """MaxPool; padding never wins, and stored values are never rescaled (pooling.cc)."""
    return ctx.ops.MaxPool(x, **windows(ctx))


@handler("L2_POOL_2D", max_version=1, layout=CHANNELS_FIRST, axes=AXES, activation=FUSED, sizes=pool_shape)
def l2_pool_2d(ctx: Context, x: Value) -> Value:
    """The root of the mean square; padding counts for nothing, where LpPool takes the root of the sum (reference/pooling.h)."""
    return ctx.ops.Sqrt(ctx.ops.AveragePool(ctx.ops.Mul(x, x), count_include_pad=0, **windows(ctx)))


class Window(Padding):
    kernel_shape: list[int]
    strides: list[int]


def windows(ctx: Context) -> Window:
    """The window along the axes that the plan leaves."""
    along = [("height", "width")[axis - 1] for axis in ctx.perm()[2:]]
    kernel = [ctx.options[f"filter_{axis}"] for axis in along]
    strides = [ctx.options[f"stride_{axis[0]}"] for axis in along]
    pads = padding_attributes(ctx.options.padding, ctx.shape(0)[2:], kernel, strides, [1] * len(kernel))
    return {"kernel_shape": kernel, "strides": strides, **pads}
