"""Between real numbers and integers."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Transparent, handler, out


@handler("QUANTIZE", max_version=6, layout=Transparent(), quantization=Dequantized())
def quantize(ctx: Context, x: Any) -> Any:
    """The host's Q; from integers, its DQ and Q."""
    return x


@handler("DEQUANTIZE", max_version=9, layout=Transparent(), quantization=Dequantized())
def dequantize(ctx: Context, x: Any) -> Any:
    """The host's DQ; float16 is a Cast, which runtimes fold into the weights."""
    return ctx.ops.Cast(x, to=ctx.op[out(0)].dtype) if ctx.op[0].dtype in ("float16", "bfloat16") else x
