"""Pooling over height and width."""

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
INT8_DTYPES = ("int8", "uint8")
FUSED = "fused_activation_function"


def mean_quantization(at: Instance) -> Dequantized | Integer:
    """Return Integer() if the target can round means as the kernel does.

    The kernel rounds half away from quantized value 0.
    """
    return (
        Integer() if at.op[0].dtype in INT8_DTYPES and at.target.has_kernel("Clip", at.op[0].dtype) else Dequantized()
    )


@handler(
    "AVERAGE_POOL_2D",
    max_version=3,
    layout=CHANNELS_FIRST,
    axes=AXES,
    quantization=mean_quantization,
    activation=CLAMPED_UNLESS_FLOAT16,
    result_shape=pool_shape,
)
def average_pool_2d(ctx: Context, x: Value) -> Value:
    """Emit AveragePool, or GlobalAveragePool for a window that covers the image.

    Padding is excluded from the mean (reference/pooling.h).
    """
    window, zero = window_attributes(ctx), stored_zero(ctx)
    if zero is not None:
        x = ctx.ops.DequantizeLinear(x, np.float32(1), zero)
    if window["kernel_shape"] == list(ctx.shape(0)[2:]) and not any(window.get("pads", [1])):
        y = ctx.ops.GlobalAveragePool(x)
    else:
        y = ctx.ops.AveragePool(x, count_include_pad=0, **window)
    return (
        reinterpret_scale(ctx, y)
        if zero is None
        else ctx.ops.QuantizeLinear(y, half_rounding_scale(prod(window["kernel_shape"])), zero)
    )


def stored_zero(ctx: Context) -> Array | None:
    """Return the integer that the model stores for quantized value 0 of the file.

    The result is None if the means are computed in float.
    """
    file_quantization, stored_quantization = ctx.op[out(0)].quantization, ctx.quantization(out(0))
    if not ctx.uses_integers or stored_quantization is None or not isinstance(file_quantization, Quantization):
        return None
    return np.asarray(stored_quantization.zero_point[0] - file_quantization.zero_point[0], ctx.dtype(out(0)))


def half_rounding_scale(count: int) -> np.float32:
    """Return a scale with which QuantizeLinear rounds half away from 0.

    The scale is so close to 1 that only ties are rounded differently. ``count``: number of values per mean.
    """
    return np.float32(1 / (1 + min(2.0**-15, 2.0**-10 / count)))


@handler(
    "MAX_POOL_2D",
    max_version=3,
    layout=CHANNELS_FIRST,
    axes=AXES,
    quantization=Raw(shift_safe=True, onnx="MaxPool"),
    activation=FUSED,
    result_shape=pool_shape,
)
def max_pool_2d(ctx: Context, x: Value) -> Value:
    """Emit MaxPool of quantized values, which are not rescaled (pooling.cc)."""
    return ctx.ops.MaxPool(x, **window_attributes(ctx))


@handler("L2_POOL_2D", max_version=1, layout=CHANNELS_FIRST, axes=AXES, activation=FUSED, result_shape=pool_shape)
def l2_pool_2d(ctx: Context, x: Value) -> Value:
    """Emit the root of the mean square; padding is excluded from the mean.

    ONNX's LpPool computes the root of the sum (reference/pooling.h).
    """
    return ctx.ops.Sqrt(ctx.ops.AveragePool(ctx.ops.Mul(x, x), count_include_pad=0, **window_attributes(ctx)))


class WindowAttributes(Padding):
    kernel_shape: list[int]
    strides: list[int]


def window_attributes(ctx: Context) -> WindowAttributes:
    """Return kernel shape, strides and pads in the planned layout."""
    names = [("height", "width")[axis - 1] for axis in ctx.perm()[2:]]
    kernel = [ctx.options[f"filter_{name}"] for name in names]
    strides = [ctx.options[f"stride_{name[0]}"] for name in names]
    pads = padding_attributes(ctx.options.padding, ctx.shape(0)[2:], kernel, strides, [1] * len(kernel))
    return {"kernel_shape": kernel, "strides": strides, **pads}
