"""Normalization along the last axis."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Along, Attribute, Context, FixedOutputRange, handler


@handler(
    "L2_NORMALIZATION",
    max_version=2,
    layout=Attribute(unordered="k"),
    axes="... k -> ... k",
    along=Along("ReduceL2", "k"),
    quantization=FixedOutputRange({"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}),
)
def l2_normalization(ctx: Context, x: Any) -> Any:
    """Over the length of the last axis, which counts as at least 1e-6 (l2normalization.h)."""
    last = [ctx.axis(-1)]
    length = ctx.ops.ReduceL2(x, last) if ctx.opset >= 18 else ctx.ops.ReduceL2(x, axes=last)
    return ctx.ops.Div(x, ctx.ops.Max(length, 1e-6))
