"""Arithmetic of two operands in any layout. The host aligns broadcast ranks."""

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
from op_handlers.kernels.half_rounding import rounding_offset
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
    """Emit Add."""
    offset = rounding_offset(ctx.op, 1)
    return ctx.ops.Add(ctx.ops.Add(x, y), offset) if offset else ctx.ops.Add(x, y)


@handler(
    "SUB",
    max_version=5,
    layout=Transparent(),
    quantization=Dequantized(),
    activation=CLAMPED_UNLESS_FLOAT16,
    accepts=require_scale("int8", "uint8"),
)
def sub(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Sub."""
    offset = rounding_offset(ctx.op, -1)
    return ctx.ops.Add(ctx.ops.Sub(x, y), offset) if offset else ctx.ops.Sub(x, y)


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
    """Emit Mul, or for complex numbers products and sums of their parts.

    A complex number is a pair along an additional last axis.
    """
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
    """Emit Div. Integers are truncated toward zero."""
    return ctx.ops.Div(x, y)


@handler("POW", max_version=1, layout=Transparent())
def power(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Pow, or products for int32 and a constant exponent.

    The products wrap around as in the kernel (BroadcastPow4D, optimized_ops.h).
    """
    exponent, (base, exponent_tensor) = ctx.constant(1), (ctx.op[0], ctx.op[1])
    if (
        exponent is None
        or exponent.size != 1
        or base.dtype != "int32"
        or exponent_tensor.rank > base.rank
        or exponent.item() < 1
    ):
        return ctx.ops.Pow(x, y)
    return emit_power(ctx, x, exponent.item())


def emit_power(ctx: Context, x: Value, exponent: int) -> Value:
    if exponent == 1:
        return x
    half = emit_power(ctx, x, exponent // 2)
    square = ctx.ops.Mul(half, half)
    return ctx.ops.Mul(square, x) if exponent % 2 else square


def rounded_operand(at: Instance) -> int | None:
    """Return the slot of the int8 operand with the smaller scale.

    The kernel rounds this operand to 1/64 of the other scale. The result is None for equal scales.
    """
    scales = [q.scale[0] for tensor in at.op.inputs if tensor and isinstance(q := tensor.quantization, Quantization)]
    if at.op[0].dtype != "int8" or len(scales) != 2 or scales[0] == scales[1]:
        return None
    return int(scales[1] < scales[0])


def difference_quantization(at: Instance) -> Dequantized:
    slot = rounded_operand(at)
    return Dequantized() if slot is None else Dequantized(as_in_file=(slot,))


@handler("SQUARED_DIFFERENCE", max_version=2, layout=Transparent(), quantization=difference_quantization)
def squared_difference(ctx: Context, x: Value, y: Value) -> Value:
    """Emit the squared difference, after rounding one of two quantized operands."""
    slot = rounded_operand(ctx) if ctx.is_quantized else None
    if slot is not None:
        x, y = (round_to_64ths(ctx, k, value) if k == slot else value for k, value in enumerate((x, y)))
    difference = ctx.ops.Sub(x, y)
    return ctx.ops.Mul(difference, difference)


def round_to_64ths(ctx: Context, slot: int, quantized: Value) -> Value:
    """Return the float32 value that the kernel uses for each quantized value.

    Source: SquaredDifference (squared_difference.cc).
    """
    quantization, other_quantization = (require_quantization(ctx.op[k]) for k in (slot, 1 - slot))
    steps = rescale(
        (quantized_values("int8").astype(np.int64) - quantization.zero_point[0]) << 7,
        quantization.scale[0] / (2 * other_quantization.scale[0]),
    )
    table = (steps * (other_quantization.scale[0] / 64)).astype(np.float32)
    return ctx.ops.Gather(table, ctx.ops.Cast(quantized, to="int32"))


@handler("MAXIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def maximum(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Max of quantized values; scales are ignored (maximum_minimum.cc)."""
    return emit_min_max(ctx, "Max", x, y)


@handler("MINIMUM", max_version=4, layout=Transparent(), quantization=Raw(shift_safe=True))
def minimum(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Min of quantized values; scales are ignored (maximum_minimum.cc)."""
    return emit_min_max(ctx, "Min", x, y)


@handler("ADD_N", max_version=1, layout=Transparent())
def add_n(ctx: Context, *operands: Value) -> Value:
    """Emit Sum, or a chain of Add for integers, which Sum does not support."""
    return ctx.ops.Sum(*operands) if ctx.op[0].dtype == "float32" else reduce(ctx.ops.Add, operands)


@handler("FLOOR_DIV", max_version=3, layout=Transparent(), quantization=Raw(), types="T, T -> T")
def floor_div(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Floor(Div) in float64 of quantized values; scales are ignored.

    The kernel also computes integers in float64 (reference/floor_div.h).
    """
    ops = ctx.ops
    quotient = ops.Div(ops.Cast(x, to="float64"), ops.Cast(y, to="float64"))
    return ops.Cast(ops.Floor(quotient), to=ctx.dtype(0))


@handler("FLOOR_MOD", max_version=2, layout=Transparent(), quantization=Raw(), types="T, T -> T")
def floor_mod(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Mod with the sign of the divisor (reference/floor_mod.h).

    ONNX's Mod of floats has the sign of the dividend, so the divisor is added where signs differ.
    """
    ops = ctx.ops
    if ctx.dtype(0) != "float32":
        return ops.Mod(x, y)
    remainder = ops.Mod(x, y, fmod=1)
    signs_differ = ops.Xor(ops.Less(y, 0.0), ops.Less(remainder, 0.0))
    needs_divisor = ops.And(ops.Not(ops.Equal(remainder, 0.0)), signs_differ)
    return ops.Where(needs_divisor, ops.Add(remainder, y), remainder)


def check_equal_shapes(at: Instance) -> Decline | None:
    """Return a Decline for different shapes.

    The kernel compares only ranks, and reads operand 1 with the shape of operand 0.
    """
    first, second = at.op[0].dims, at.op[1].dims
    if first == second:
        return None
    return Decline(
        f"the operands have shapes {first} and {second}, which the kernel does not broadcast; broadcast them in the model"
    )


@handler("ATAN2", max_version=1, layout=Transparent(), accepts=check_equal_shapes)
def atan2(ctx: Context, y: Value, x: Value) -> Value:
    """Emit Atan of the quotient, plus or minus pi for a negative x.

    -0 counts as negative. For operands of equal magnitude, including 0 and infinity, the quotient is replaced by 1, -1
    or 0.
    """
    ops, dtype = ctx.ops, ctx.op[0].dtype
    if dtype != "float32":
        y, x = (ops.Cast(operand, to="float32") for operand in (y, x))

    def is_negative(value: Value) -> Value:
        return ops.Or(ops.Less(value, 0.0), ops.Less(ops.Reciprocal(value), 0.0))

    x_is_negative = is_negative(x)
    signed_unit = ops.Where(ops.Equal(y, 0.0), y, ops.Sign(y))
    has_equal_magnitudes = ops.Equal(ops.Abs(x), ops.Abs(y))
    quotient = ops.Where(
        has_equal_magnitudes, ops.Where(x_is_negative, ops.Neg(signed_unit), signed_unit), ops.Div(y, x)
    )
    half_circle = ops.Where(is_negative(y), -pi, pi)
    angle = ops.Add(ops.Atan(quotient), ops.Where(x_is_negative, half_circle, 0.0))
    return angle if dtype == "float32" else ops.Cast(angle, to=dtype)


# --- bitwise operators -----------------------------------------------------------------------


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
    """Emit BitwiseXor of quantized values."""
    return ctx.ops.BitwiseXor(x, y)


@handler("RIGHT_SHIFT", max_version=1, layout=Transparent(), quantization=Raw(), types=f"{INTEGERS}, {INTEGERS}")
def right_shift(ctx: Context, x: Value, y: Value) -> Value:
    """Emit floor division by a power of two in float64.

    float64 represents all dtypes of the kernel exactly, and BitShift does not support signed integers. The kernel
    clips the shift to 0 ... bits - 1 (right_shift.cc).
    """
    ops, max_shift = ctx.ops, np.iinfo(ctx.dtype(0)).bits - 1.0
    bits = ops.Min(ops.Max(ops.Cast(y, to="float64"), np.float64(0)), np.float64(max_shift))
    quotient = ops.Div(ops.Cast(x, to="float64"), ops.Pow(np.float64(2), bits))
    return ops.Cast(ops.Floor(quotient), to=ctx.dtype(0))
