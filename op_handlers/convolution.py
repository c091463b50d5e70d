"""Convolutions: TFLite's channels-last data and OHWI or DHWIO weights; ONNX wants channels first and OIHW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Implicit, Options, conv_pads, handler, out, transposed_pads
from op_handlers.operands import signed_bytes

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
    return convolution(ctx, x, signed_bytes(ctx, 1, w), b, size, kernel, group=(channels or depth) // depth)


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


@handler(
    "CONV_3D",
    max_version=1,
    layout=Implicit(onnx={0: "n c d h w", 1: "o c i j k"}),
    axes="n d h w c, i j k c o, o -> n z y x o",
    activation="fused_activation_function",
)
def conv_3d(ctx: Context, x: Any, w: Any, b: Any = None) -> Any:
    """Conv over depth, height and width; the kernel knows no groups (conv3d.cc)."""
    return convolution(ctx, x, w, b, ctx.op[0].dims[1:-1], ctx.op[1].shape[:3], group=1)


def convolution(ctx: Context, x: Any, w: Any, b: Any, size: Any, kernel: Any, group: Any) -> Any:
    """Conv; pads are those of SAME or VALID, or of a fusion that knows better."""
    strides, dilations = steps(ctx.options, kernel)
    pads = ctx.options.get("pads") or conv_pads(ctx.options.padding, size, kernel, strides, dilations)
    return ctx.ops.Conv(x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, group=group)


def steps(options: Options, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """Strides and dilations along the kernel's axes; a transposed convolution in 2-D has no dilation."""
    axes = "dhw"[-len(kernel) :]
    return [options[f"stride_{axis}"] for axis in axes], [options.get(f"dilation_{axis}_factor", 1) for axis in axes]


@handler(
    "TRANSPOSE_CONV",
    max_version=5,
    layout=Implicit(onnx={1: "i o j k", 2: "n i h w", out(0): "n o y x"}),
    axes="_, o j k i, n h w i, o -> n y x o",
    quantization=Dequantized(bias={3: (2, 1)}),
    activation="fused_activation_function",
)
def transpose_conv(ctx: Context, _shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    """ConvTranspose."""
    return transposed(ctx, x, w, b, ctx.op[1].shape[1:3])


@handler(
    "CONV_3D_TRANSPOSE",
    max_version=1,
    layout=Implicit(onnx={1: "c o i j k", 2: "n c d h w", out(0): "n o z y x"}),
    axes="_, i j k o c, n d h w c, o -> n z y x o",
    activation="fused_activation_function",
)
def conv_3d_transpose(ctx: Context, _shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    """ConvTranspose over depth, height and width."""
    return transposed(ctx, x, w, b, ctx.op[1].shape[:3])


def transposed(ctx: Context, x: Any, w: Any, b: Any, kernel: Sequence[int]) -> Any:
    """ConvTranspose, padded as the forward convolution of its output would be (transpose_conv.cc)."""
    strides, dilations = steps(ctx.options, kernel)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads, extra = transposed_pads(ctx.options.padding, ctx.op[out(0)].dims[1:-1], ctx.op[2].dims[1:-1], reach, strides)
    windows = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    return ctx.ops.ConvTranspose(x, w, b, **windows, pads=pads, output_padding=extra)
