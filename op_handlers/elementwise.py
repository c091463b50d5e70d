"""Elementwise operators: any order will do, the host aligns broadcast ranks."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Dequantized, FixedOutputRange, Raw, SameScale, Transparent, handler

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
    """Mul."""
    return ctx.ops.Mul(x, y)


@handler("MAXIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True, onnx="Max"))
def maximum(ctx: Context, x: Any, y: Any) -> Any:
    """Max; quantized operands are compared as stored, whatever their scales (maximum_minimum.cc)."""
    return ctx.ops.Max(x, y)


@handler("NEG", max_version=1, layout=Transparent(), quantization=Raw())
def neg(ctx: Context, x: Any) -> Any:
    """Neg; the kernel negates the stored value and ignores the zero point (neg.cc)."""
    return ctx.ops.Neg(x)


# --- activations of their own -----------------------------------------------------------------


@handler("RELU", max_version=3, layout=Transparent(), quantization=SameScale(onnx="Clip"), activation=lambda op: "RELU")
def relu(ctx: Context, x: Any) -> Any:
    """The activation alone; with other output parameters it rescales too (activations.cc)."""
    return x


@handler("RELU6", max_version=3, layout=Transparent(), quantization=SameScale(onnx="Clip"), activation=lambda op: "RELU6")
def relu6(ctx: Context, x: Any) -> Any:
    """The activation alone."""
    return x


@handler(
    "LOGISTIC",
    max_version=3,
    layout=Transparent(),
    quantization=FixedOutputRange({"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}),
)
def logistic(ctx: Context, x: Any) -> Any:
    """Sigmoid."""
    return ctx.ops.Sigmoid(x)


@handler("HARD_SWISH", max_version=1, layout=Transparent(), quantization=Dequantized())
def hard_swish(ctx: Context, x: Any) -> Any:
    """HardSwish, or x * Clip(x + 3, 0, 6) / 6 below opset 14."""
    ops = ctx.ops
    if ctx.opset >= 14:
        return ops.HardSwish(x)
    return ops.Div(ops.Mul(x, ops.Clip(ops.Add(x, 3.0), 0.0, 6.0)), 6.0)
