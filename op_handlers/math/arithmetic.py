"""Arithmetic of two operands: any order will do, the host aligns broadcast ranks."""

from __future__ import annotations

from functools import reduce
from math import pi

import numpy as np

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Context,
    Decline,
    Dequantized,
    FusedActivation,
    Instance,
    Quantization,
    Raw,
    Transparent,
    Value,
    handler,
)
from op_handlers.kernels.activation import CLAMPED_UNLESS_FLOAT16
from op_handlers.kernels.fixed_point import rescale
from op_handlers.kernels.half_rounding import half_offset
from op_handlers.kernels.lookup_tables import quantized_values
from op_handlers.kernels.min_max import emit_min_max
from op_handlers.kernels.operands import require_quantization, require_scale

FUSED = "fused_activation_function"


@handler(
    "ADD",
    max_version=6,
    layout=Transparent(),
    quantization=Dequantized(),
    activation=FUSED,
    accepts=require_scale("int8", "uint8"),
)
def add(ctx: Context, x: Value, y: Value) -> Value:
    """Add."""
    more = half_offset(ctx.op, 1)
    return ctx.ops.Add(ctx.ops.Add(x, y), more) if more else ctx.ops.Add(x, y)


@handler(
    "SUB",
    max_version=5,
    layout=Transparent(),
    quantization=Dequantized(),
    activation=CLAMPED_UNLESS_FLOAT16,
    accepts=require_scale("int8", "uint8"),
)
def sub(ctx: Context, x: Value, y: Value) -> Value:
    """Sub."""
    more = half_offset(ctx.op, -1)
    return ctx.ops.Add(ctx.ops.Sub(x, y), more) if more else ctx.ops.Sub(x, y)


def product_activation(at: Instance) -> ActivationKernel:
    dtype = at.op[0].dtype
    if dtype.startswith("complex"):
        return ActivationKernel.UNFUSED
    return ActivationKernel.UNSIGNED if dtype == "uint32" else ActivationKernel.CLAMPED


@handler(
    "MUL",
    max_version=8,
    layout=Transparent(),
    quantization=Dequantized(),
    activation=FusedActivation(product_activation),
    accepts=require_scale("int8", "uint8"),
)
def mul(ctx: Context, x: Value, y: Value) -> Value:
    """Mul; of complex numbers, which are pairs along a last axis, by its parts."""
    ops = ctx.ops
    if not ctx.op[0].dtype.startswith("complex"):
        return ops.Mul(x, y)
    (a, b), (c, d) = ([ops.Gather(v, [part], axis=-1) for part in (0, 1)] for v in (x, y))
    return ops.Concat(ops.Sub(ops.Mul(a, c), ops.Mul(b, d)), ops.Add(ops.Mul(a, d), ops.Mul(b, c)), axis=-1)


@handler(
    "DIV",
    max_version=2,
    layout=Transparent(),
    quantization=Dequantized(),
    activation=CLAMPED_UNLESS_FLOAT16,
    accepts=require_scale("int8", "uint8", "int16"),
)
def div(ctx: Context, x: Value, y: Value) -> Value:
    """Div; integers are divided towards zero."""
    return ctx.ops.Div(x, y)


@handler("POW", max_version=1, layout=Transparent())
def power(ctx: Context, x: Value, y: Value) -> Value:
    """Pow; integers to one known power are multiplied, which wraps as in the kernel (BroadcastPow4D, optimized_ops.h)."""
    exponent, (base, by) = ctx.constant(1), (ctx.op[0], ctx.op[1])
    if exponent is None or exponent.size != 1 or base.dtype != "int32" or by.rank > base.rank or exponent.item() < 1:
        return ctx.ops.Pow(x, y)
    return to_the(ctx, x, exponent.item())


def to_the(ctx: Context, x: Value, exponent: int) -> Value:
    if exponent == 1:
        return x
    half = to_the(ctx, x, exponent // 2)
    square = ctx.ops.Mul(half, half)
    return ctx.ops.Mul(square, x) if exponent % 2 else square


def rounded_operand(at: Instance) -> int | None:
    """Of 8 bits the operand of the smaller scale, which the kernel rounds to 1/64 of the other's; None where both are alike."""
    scales = [q.scale[0] for tensor in at.op.inputs if tensor and isinstance(q := tensor.quantization, Quantization)]
    if at.op[0].dtype != "int8" or len(scales) != 2 or scales[0] == scales[1]:
        return None
    return int(scales[1] < scales[0])


def stored_where_rounded(at: Instance) -> Dequantized:
    slot = rounded_operand(at)
    return Dequantized() if slot is None else Dequantized(stored=(slot,))


@handler("SQUARED_DIFFERENCE", max_version=2, layout=Transparent(), quantization=stored_where_rounded)
def squared_difference(ctx: Context, x: Value, y: Value) -> Value:
    """The difference times itself; of integers one operand is rounded before."""
    slot = rounded_operand(ctx) if ctx.quantized else None
    if slot is not None:
        x, y = (in_64ths(ctx, k, value) if k == slot else value for k, value in enumerate((x, y)))
    difference = ctx.ops.Sub(x, y)
    return ctx.ops.Mul(difference, difference)


def in_64ths(ctx: Context, slot: int, stored: Value) -> Value:
    """What the kernel computes with in place of each stored number, float32 (SquaredDifference, squared_difference.cc)."""
    own, other = (require_quantization(ctx.op[k]) for k in (slot, 1 - slot))
    steps = rescale(
        (quantized_values("int8").astype(np.int64) - own.zero_point[0]) << 7, own.scale[0] / (2 * other.scale[0])
    )
    table = (steps * (other.scale[0] / 64)).astype(np.float32)
    return ctx.ops.Gather(table, ctx.ops.Cast(stored, to="int32"))


@handler("MAXIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def maximum(ctx: Context, x: Value, y: Value) -> Value:
    """Max; quantized operands are compared as stored, whatever their scales (maximum_minimum.cc)."""
    return emit_min_max(ctx, "Max", x, y)


@handler("MINIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def minimum(ctx: Context, x: Value, y: Value) -> Value:
    """Min; quantized operands are compared as stored, whatever their scales (maximum_minimum.cc)."""
    return emit_min_max(ctx, "Min", x, y)


@handler("ADD_N", max_version=1, layout=Transparent())
def add_n(ctx: Context, *operands: Value) -> Value:
    """Sum, which ONNX has of floats only; of integers a chain of Add."""
    return ctx.ops.Sum(*operands) if ctx.op[0].dtype == "float32" else reduce(ctx.ops.Add, operands)


@handler("FLOOR_DIV", max_version=3, layout=Transparent(), quantization=Raw(), types="T, T -> T")
def floor_div(ctx: Context, x: Value, y: Value) -> Value:
    """Floor(Div) in float64, as the kernel has it for integers too, whatever their scales (reference/floor_div.h)."""
    ops = ctx.ops
    quotient = ops.Div(ops.Cast(x, to="float64"), ops.Cast(y, to="float64"))
    return ops.Cast(ops.Floor(quotient), to=ctx.dtype(0))


@handler("FLOOR_MOD", max_version=2, layout=Transparent(), quantization=Raw(), types="T, T -> T")
def floor_mod(ctx: Context, x: Value, y: Value) -> Value:
    """Mod, with the divisor's sign; of floats Mod has the dividend's, so the divisor is added (reference/floor_mod.h)."""
    ops = ctx.ops
    if ctx.dtype(0) != "float32":
        return ops.Mod(x, y)
    rest = ops.Mod(x, y, fmod=1)
    other_sign = ops.Xor(ops.Less(y, 0.0), ops.Less(rest, 0.0))
    turned = ops.And(ops.Not(ops.Equal(rest, 0.0)), other_sign)
    return ops.Where(turned, ops.Add(rest, y), rest)


def alike(at: Instance) -> Decline | None:
    """The kernel compares ranks only, and reads the second operand with the first one's shape."""
    first, second = at.op[0].dims, at.op[1].dims
    if first == second:
        return None
    return Decline(f"its operands have shapes {first} and {second}, which the kernel does not broadcast; do it before")


@handler("ATAN2", max_version=1, layout=Transparent(), accepts=alike)
def atan2(ctx: Context, y: Value, x: Value) -> Value:
    """Atan of the quotient, turned by half a circle left of the y axis, where x may be -0 too.

    Operands of one size, which may both be 0 or infinite, have the quotient 1 with their signs, or that 0.
    """
    ops, dtype = ctx.ops, ctx.op[0].dtype
    if dtype != "float32":
        y, x = (ops.Cast(operand, to="float32") for operand in (y, x))

    def negative(value: Value) -> Value:
        return ops.Or(ops.Less(value, 0.0), ops.Less(ops.Reciprocal(value), 0.0))

    left = negative(x)
    signed = ops.Where(ops.Equal(y, 0.0), y, ops.Sign(y))
    same_size = ops.Equal(ops.Abs(x), ops.Abs(y))
    quotient = ops.Where(same_size, ops.Where(left, ops.Neg(signed), signed), ops.Div(y, x))
    half_circle = ops.Where(negative(y), -pi, pi)
    angle = ops.Add(ops.Atan(quotient), ops.Where(left, half_circle, 0.0))
    return angle if dtype == "float32" else ops.Cast(angle, to=dtype)


# --- integers bit by bit -----------------------------------------------------------------------


INTEGERS = "int8 uint8 int16 uint16 int32 uint32"


@handler(
    "BITWISE_XOR",
    max_version=1,
    layout=Transparent(),
    quantization=Raw(),
    min_opset=18,
    types=f"{INTEGERS}, {INTEGERS}",
)
def bitwise_xor(ctx: Context, x: Value, y: Value) -> Value:
    """BitwiseXor of what is stored."""
    return ctx.ops.BitwiseXor(x, y)


@handler("RIGHT_SHIFT", max_version=1, layout=Transparent(), quantization=Raw(), types=f"{INTEGERS}, {INTEGERS}")
def right_shift(ctx: Context, x: Value, y: Value) -> Value:
    """Divided by a power of two and rounded down, in float64, which holds every integer of the kernel's dtypes.

    BitShift has no signed integers. The kernel cuts the shift to 0 ... bits - 1 (right_shift.cc).
    """
    ops, most = ctx.ops, np.iinfo(ctx.dtype(0)).bits - 1.0
    bits = ops.Min(ops.Max(ops.Cast(y, to="float64"), np.float64(0)), np.float64(most))
    quotient = ops.Div(ops.Cast(x, to="float64"), ops.Pow(np.float64(2), bits))
    return ops.Cast(ops.Floor(quotient), to=ctx.dtype(0))
