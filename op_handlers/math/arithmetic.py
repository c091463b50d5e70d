"""Arithmetic of two operands: any order will do, the host aligns broadcast ranks."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, Raw, Transparent, handler
from op_handlers.kernels.widening import widened

FUSED = "fused_activation_function"


@handler("ADD", max_version=6, layout=Transparent(), quantization=Dequantized(), activation=FUSED)
def add(ctx: Context, x: Any, y: Any) -> Any:
    """Add."""
    return ctx.ops.Add(x, y)


@handler("SUB", max_version=5, layout=Transparent(), quantization=Dequantized(), activation=FUSED)
def sub(ctx: Context, x: Any, y: Any) -> Any:
    """Sub."""
    return ctx.ops.Sub(x, y)


@handler("MUL", max_version=8, layout=Transparent(), quantization=Dequantized(), activation=FUSED)
def mul(ctx: Context, x: Any, y: Any) -> Any:
    """Mul; of complex numbers, which are pairs along a last axis, by its parts."""
    ops = ctx.ops
    if not ctx.op[0].dtype.startswith("complex"):
        return ops.Mul(x, y)
    (a, b), (c, d) = ([ops.Gather(v, [part], axis=-1) for part in (0, 1)] for v in (x, y))
    return ops.Concat(ops.Sub(ops.Mul(a, c), ops.Mul(b, d)), ops.Add(ops.Mul(a, d), ops.Mul(b, c)), axis=-1)


@handler("DIV", max_version=2, layout=Transparent(), quantization=Dequantized(), activation=FUSED)
def div(ctx: Context, x: Any, y: Any) -> Any:
    """Div; integers are divided towards zero."""
    return ctx.ops.Div(x, y)


@handler("POW", max_version=1, layout=Transparent())
def power(ctx: Context, x: Any, y: Any) -> Any:
    """Pow."""
    return ctx.ops.Pow(x, y)


@handler("SQUARED_DIFFERENCE", max_version=2, layout=Transparent(), quantization=Dequantized())
def squared_difference(ctx: Context, x: Any, y: Any) -> Any:
    """The difference times itself."""
    difference = ctx.ops.Sub(x, y)
    return ctx.ops.Mul(difference, difference)


@handler("MAXIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def maximum(ctx: Context, x: Any, y: Any) -> Any:
    """Max; quantized operands are compared as stored, whatever their scales (maximum_minimum.cc)."""
    return widened(ctx, "Max", x, y)


@handler("MINIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def minimum(ctx: Context, x: Any, y: Any) -> Any:
    """Min; quantized operands are compared as stored, whatever their scales (maximum_minimum.cc)."""
    return widened(ctx, "Min", x, y)
