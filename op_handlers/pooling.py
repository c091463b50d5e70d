"""Pools over height and width."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Implicit, Raw, conv_pads, handler, out
from op_handlers.operands import unscaled

CHANNELS_FIRST = Implicit(onnx={0: "n c h w", out(0): "n c y x"}, lines=("h y", "w x"))
AXES = "n h w c -> n y x c"
FUSED = "fused_activation_function"


@handler(
    "AVERAGE_POOL_2D", max_version=3, layout=CHANNELS_FIRST, axes=AXES, quantization=Dequantized(), activation=FUSED
)
def average_pool_2d(ctx: Context, x: Any) -> Any:
    """AveragePool that leaves padding out of the mean (reference/pooling.h); over the whole image, GlobalAveragePool."""
    window = windows(ctx)
    if window["kernel_shape"] == list(ctx.shape(0)[2:]) and not any(window["pads"]):
        return unscaled(ctx, ctx.ops.GlobalAveragePool(x))
    return unscaled(ctx, ctx.ops.AveragePool(x, count_include_pad=0, **window))


@handler(
    "MAX_POOL_2D",
    max_version=3,
    layout=CHANNELS_FIRST,
    axes=AXES,
    quantization=Raw(shift_safe=True, onnx="MaxPool"),
    activation=FUSED,
)
def max_pool_2d(ctx: Context, x: Any) -> Any:
    """MaxPool; padding never wins, and stored values are never rescaled (pooling.cc)."""
    return ctx.ops.MaxPool(x, **windows(ctx))


def windows(ctx: Context) -> dict[str, list[int]]:
    """The window along the axes that the plan leaves."""
    along = [("height", "width")[axis - 1] for axis in ctx.perm()[2:]]
    kernel = [ctx.options[f"filter_{axis}"] for axis in along]
    strides = [ctx.options[f"stride_{axis[0]}"] for axis in along]
    pads = conv_pads(ctx.options.padding, ctx.shape(0)[2:], kernel, strides, [1] * len(kernel))
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}
