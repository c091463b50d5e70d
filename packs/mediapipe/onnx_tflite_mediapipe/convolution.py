"""Transposed convolution with a bias."""

from __future__ import annotations

from onnx_tflite_mediapipe.kernels import transposed_convolution as kernel
from onnx_tflite_mediapipe.options import read_transposed_convolution_options
from onnx_tflite_plugin.api import Context, Dims, Implicit, Refusal, Value, handler


def conv_transpose_pads(padding: str, sizes: Dims, kernel: Dims, strides: tuple[int, int]) -> list[int]:
    """Return ``[top, left, bottom, right]``, the pads that reduce the output.

    The source is Prepare in transpose_conv_bias.cc.

    Raises Refusal for SAME padding with a stride on a dynamic dimension.
    """
    pad_sums = [0, 0]
    for k, (size, length, step) in enumerate(zip(sizes, kernel, strides, strict=True)):
        if padding == "SAME":
            if size is None and step != 1:
                raise Refusal("SAME padding with a stride on a dynamic dimension; set its size with --input-shape")
            pad_sums[k] = max(0, (length or 0) - ((size or 1) - 1) % step - 1)
    return [total // 2 for total in pad_sums] + [total - total // 2 for total in pad_sums]


@handler(
    "CUSTOM.Convolution2DTransposeBias",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w", 1: "c o j k"}),
    axes="n h w c, o j k c, o -> n y x o",
    types="float32, float32, float32 -> float32",
    kernel=kernel,
)
def transposed_convolution(ctx: Context, x: Value, weights: Value, bias: Value) -> Value:
    """Emit ConvTranspose."""
    options = read_transposed_convolution_options(ctx.op)
    pads = conv_transpose_pads(options.padding, ctx.op[0].dims[1:3], ctx.op[1].dims[1:3], options.strides)
    return ctx.ops.ConvTranspose(x, weights, bias, strides=options.strides, pads=pads)
