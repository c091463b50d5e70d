"""Convolutions: TFLite's channels-last data and OHWI weights; ONNX wants channels first and OIHW."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Implicit, conv_pads, handler, out, transposed_pads

BIASED = Dequantized(bias={2: (0, 1)})


@handler(
    "CONV_2D",
    max_version=8,
    layout=Implicit(onnx={0: "n c h w", 1: "o i j k"}),
    axes="n h w c, o j k i, o -> n y x o",
    quantization=BIASED,
    activation="fused_activation_function",
)
def conv_2d(ctx: Context, x: Any, w: Any, b: Any = None) -> Any:
    """Conv; groups are implied where the filter has fewer channels than the input (kernels/conv.cc)."""
    (_, *size, channels), (_, *kernel, depth) = ctx.op[0].dims, ctx.op[1].shape
    return convolution(ctx, x, w, b, size, kernel, group=(channels or depth) // depth)


@handler(
    "DEPTHWISE_CONV_2D",
    max_version=7,
    layout=Implicit(onnx={0: "n c h w", 1: "o u j k"}),
    axes="n h w c, u j k o, o -> n y x o",
    quantization=BIASED,
    activation="fused_activation_function",
)
def depthwise_conv_2d(ctx: Context, x: Any, w: Any, b: Any = None) -> Any:
    """Conv with a group per input channel; the multiplier is Cout / Cin whatever the options say (depthwise_conv.cc)."""
    (_, *size, channels), (_, *kernel, _) = ctx.op[0].dims, ctx.op[1].shape
    return convolution(ctx, x, w, b, size, kernel, group=channels)


def convolution(ctx: Context, x: Any, w: Any, b: Any, size: Any, kernel: Any, group: Any) -> Any:
    o = ctx.options
    strides, dilations = [o.stride_h, o.stride_w], [o.dilation_h_factor, o.dilation_w_factor]
    pads = conv_pads(o.padding, size, kernel, strides, dilations)
    return ctx.ops.Conv(x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, group=group)


@handler(
    "TRANSPOSE_CONV",
    max_version=5,
    layout=Implicit(onnx={1: "i o j k", 2: "n i h w", out(0): "n o y x"}),
    axes="_, o j k i, n h w i, o -> n y x o",
    quantization=Dequantized(bias={3: (2, 1)}),
    activation="fused_activation_function",
)
def transpose_conv(ctx: Context, _shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    """ConvTranspose, padded as the forward convolution of its output would be (transpose_conv.cc)."""
    o = ctx.options
    (_, *size, _), (_, *kernel, _), (_, *wanted, _) = ctx.op[2].dims, ctx.op[1].shape, ctx.op[out(0)].dims
    strides = [o.stride_h, o.stride_w]
    pads, extra = transposed_pads(o.padding, tuple(wanted), tuple(size), kernel, strides)
    return ctx.ops.ConvTranspose(x, w, b, kernel_shape=kernel, strides=strides, pads=pads, output_padding=extra)
