"""Pools over height and width."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Implicit, Quantization, Raw, conv_pads, handler, out

CHANNELS_FIRST = Implicit(onnx={0: "n c h w", out(0): "n c y x"})
AXES = "n h w c -> n y x c"
FUSED = "fused_activation_function"


@handler(
    "AVERAGE_POOL_2D", max_version=3, layout=CHANNELS_FIRST, axes=AXES, quantization=Dequantized(), activation=FUSED
)
def average_pool_2d(ctx: Context, x: Any) -> Any:
    """AveragePool that leaves padding out of the mean (reference/pooling.h); over the whole image, GlobalAveragePool."""
    window = windows(ctx)
    if window["kernel_shape"] == list(ctx.op[0].dims[1:3]) and not any(window["pads"]):
        return unscaled(ctx, ctx.ops.GlobalAveragePool(x))
    return unscaled(ctx, ctx.ops.AveragePool(x, count_include_pad=0, **window))


def unscaled(ctx: Context, y: Any) -> Any:
    """The kernel averages stored values and never rescales them: another output scale gives them another meaning."""
    before, after = ctx.op[0].quantization, ctx.op[out(0)].quantization
    if before == after or not isinstance(before, Quantization) or not isinstance(after, Quantization):
        return y
    offset = (before.zero_point[0] - after.zero_point[0]) * after.scale[0]
    return ctx.ops.Add(ctx.ops.Mul(y, after.scale[0] / before.scale[0]), offset)


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
    o = ctx.options
    kernel, strides = [o.filter_height, o.filter_width], [o.stride_h, o.stride_w]
    pads = conv_pads(o.padding, ctx.op[0].dims[1:3], kernel, strides, [1, 1])
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}
