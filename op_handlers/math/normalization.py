"""Normalization along the last axis, of all of it or of neighbours."""

from __future__ import annotations

from onnx_tflite_plugin.api import Along, Attribute, Context, FixedOutputRange, Implicit, Value, handler, out


@handler(
    "L2_NORMALIZATION",
    max_version=2,
    layout=Attribute(unordered="k"),
    axes="... k -> ... k",
    along=Along("ReduceL2", "k"),
    quantization=FixedOutputRange({"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}),
)
def l2_normalization(ctx: Context, x: Value) -> Value:
    """Over the length of the last axis, which counts as at least 1e-6 (l2normalization.h)."""
    last = [ctx.axis(-1)]
    length = ctx.ops.ReduceL2(x, last)
    return ctx.ops.Div(x, ctx.ops.Max(length, 1e-6))


@handler(
    "LOCAL_RESPONSE_NORMALIZATION",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w", out(0): "n c h w"}),
    axes="n h w c -> n h w c",
)
def local_response_normalization(ctx: Context, x: Value) -> Value:
    """LRN over 2 * radius + 1 channels, whose alpha ONNX divides by that number (optimized_ops.h)."""
    o, ops = ctx.options, ctx.ops
    size = 2 * o.radius + 1
    # ONNX Runtime's LRN takes neither, and carries a sum from channel to channel, which cancels where each is alone.
    if min(o.alpha, o.beta) <= 0 or not o.radius:  # padding with zeros counts towards the mean
        square = ops.Unsqueeze(ops.Mul(x, x), [1])
        mean = ops.AveragePool(square, kernel_shape=[size, 1, 1], pads=[o.radius, 0, 0] * 2, count_include_pad=1)
        total = ops.Add(ops.Mul(ops.Squeeze(mean, [1]), o.alpha * size), o.bias)
        return ops.Mul(x, ops.Pow(total, -o.beta))
    return ctx.ops.LRN(x, size=size, alpha=o.alpha * size, beta=o.beta, bias=o.bias)
