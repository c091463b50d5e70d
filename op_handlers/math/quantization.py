"""Between float and the integers of a quantization: what the host's QuantizeLinear and DequantizeLinear leave to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Context, Dequantized, Quantization, Refused, Tensor, Transparent, handler, out


@handler("QUANTIZE", max_version=6, layout=Transparent(), quantization=Dequantized())
def quantize(ctx: Context, x: Any) -> Any:
    """The host's Q; from integers, its DQ and Q. QuantizeLinear knows no int32, so to and from it by arithmetic."""
    ops, before, after = ctx.ops, ctx.op[0], ctx.op[out(0)]
    if before.dtype == "int32":
        scale, zero_point = affine(before)
        x = ops.Mul(ops.Cast(ops.Sub(x, np.asarray(zero_point, np.int32)), to="float32"), scale)
    if after.dtype == "int32":
        scale, zero_point = affine(after)
        x = ops.Add(ops.Cast(ops.Round(ops.Div(x, scale)), to="int32"), np.asarray(zero_point, np.int32))
    return x


def affine(tensor: Tensor) -> tuple[float, int]:
    """The one scale and zero point of a tensor."""
    if not isinstance(tensor.quantization, Quantization) or tensor.quantization.per_axis:
        raise Refused(f"its {tensor.dtype} operand {tensor.name!r} has no scale, or one per axis")
    return tensor.quantization.scale[0], tensor.quantization.zero_point[0]


@handler("DEQUANTIZE", max_version=9, layout=Transparent(), quantization=Dequantized())
def dequantize(ctx: Context, x: Any) -> Any:
    """The host's DQ; float16 is a Cast, which runtimes compute as they load the weights."""
    held = ctx.constant(0)
    if ctx.folds and held is not None and "float" in ctx.op[0].dtype:
        return ctx.constant_value(held.astype(np.float32))
    return ctx.ops.Cast(x, to=ctx.op[out(0)].dtype) if ctx.op[0].dtype in ("float16", "bfloat16") else x
