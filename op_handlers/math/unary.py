"""Elementwise functions of one operand."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Instance,
    Lookup,
    Operator,
    Quantization,
    Raw,
    Transparent,
    Value,
    handler,
    out,
)
from op_handlers.kernels.lookup_tables import interpolated_table


@handler("ABS", max_version=5, layout=Transparent(), quantization=Dequantized())
def absolute(ctx: Context, x: Value) -> Value:
    """Emit Abs."""
    return ctx.ops.Abs(x)


@handler("FLOOR", max_version=1, layout=Transparent())
def floor(ctx: Context, x: Value) -> Value:
    """Emit Floor."""
    return ctx.ops.Floor(x)


@handler("NEG", max_version=1, layout=Transparent(), quantization=Raw())
def neg(ctx: Context, x: Value) -> Value:
    """Emit Neg of quantized values; the kernel ignores the zero point (neg.cc)."""
    return ctx.ops.Neg(x)


@handler("SQUARE", max_version=1, layout=Transparent())
def square(ctx: Context, x: Value) -> Value:
    """Emit the operand times itself."""
    return ctx.ops.Mul(x, x)


def log(x: Array) -> Array:
    return np.where(x > 0, np.log(np.abs(x)), -np.inf)


def rsqrt(x: Array) -> Array:
    return np.where(x > 0, 1 / np.sqrt(np.abs(x)), np.inf)


def check_exp_range(at: Instance) -> Decline | None:
    """Return a Decline if exp overflows float32.

    The kernel's int16 table would convert infinity to integers.
    """
    quantization = at.op[0].quantization
    if at.op[0].dtype != "int16" or not isinstance(quantization, Quantization):
        return None
    largest = (np.iinfo(np.int16).max - quantization.zero_point[0]) * quantization.scale[0]
    limit = float(np.log(np.finfo(np.float32).max))
    if largest <= limit:
        return None
    return Decline(
        f"the operand's range reaches {largest:.4g}, but exp of more than {limit:.4g} exceeds float32; use a smaller scale"
    )


@handler(
    "EXP", max_version=2, layout=Transparent(), quantization=Lookup(interpolated_table(np.exp)), accepts=check_exp_range
)
def exponential(ctx: Context, x: Value) -> Value:
    """Emit Exp (exp.cc)."""
    return ctx.ops.Exp(x)


@handler("LOG", max_version=2, layout=Transparent(), quantization=Lookup(interpolated_table(log)))
def logarithm(ctx: Context, x: Value) -> Value:
    """Emit Log; quantized non-positive values give the quantized minimum.

    Source: LogLUTPrepare (elementwise.cc).
    """
    return ctx.ops.Log(ctx.ops.Max(x, 0.0) if ctx.is_quantized else x)


@handler("SQRT", max_version=2, layout=Transparent(), quantization=Dequantized())
def square_root(ctx: Context, x: Value) -> Value:
    """Emit Sqrt.

    The kernel truncates quantized results instead of rounding (SqrtEvalQuantized, elementwise.cc).
    """
    y, quantization = ctx.ops.Sqrt(x), ctx.quantization(out(0))
    return (
        y
        if quantization is None
        else ctx.ops.Mul(ctx.ops.Floor(ctx.ops.Div(y, quantization.scale[0])), quantization.scale[0])
    )


@handler("RSQRT", max_version=3, layout=Transparent(), quantization=Lookup(interpolated_table(rsqrt)))
def reciprocal_square_root(ctx: Context, x: Value) -> Value:
    """Emit Reciprocal of Sqrt; a quantized zero gives the quantized maximum.

    The maximum is the quantized value of infinity.
    """
    return ctx.ops.Reciprocal(ctx.ops.Sqrt(x))


@handler("CEIL", max_version=1, layout=Transparent())
def ceil(ctx: Context, x: Value) -> Value:
    """Emit Ceil."""
    return ctx.ops.Ceil(x)


@handler("ROUND", max_version=1, layout=Transparent())
def round_(ctx: Context, x: Value) -> Value:
    """Emit Round, which rounds half to even, as the kernel does.

    Source: RoundToNearest (reference/round.h).
    """
    return ctx.ops.Round(x)


@handler("SIGN", max_version=2, layout=Transparent())
def sign(ctx: Context, x: Value) -> Value:
    """Emit Sign, which keeps NaN (sign.cc)."""
    return ctx.ops.Sign(x)


@handler("SIN", max_version=2, layout=Transparent())
def sine(ctx: Context, x: Value) -> Value:
    """Emit Sin."""
    return ctx.ops.Sin(x)


@handler("COS", max_version=2, layout=Transparent())
def cosine(ctx: Context, x: Value) -> Value:
    """Emit Cos."""
    return ctx.ops.Cos(x)


# --- complex numbers, which are pairs along a last axis -----------------------------------------


PART_TYPES = ("complex64 -> float32", "complex128 -> float64")


@handler("REAL", max_version=1, layout=Transparent(), types=PART_TYPES)
def real_part(ctx: Context, x: Value) -> Value:
    """Emit the first number of each pair."""
    return ctx.ops.Gather(x, np.asarray(0), axis=-1)


@handler("IMAG", max_version=1, layout=Transparent(), types=PART_TYPES)
def imaginary_part(ctx: Context, x: Value) -> Value:
    """Emit the second number of each pair."""
    return ctx.ops.Gather(x, np.asarray(1), axis=-1)


@handler("COMPLEX_ABS", max_version=1, layout=Transparent(), types=PART_TYPES)
def complex_absolute(ctx: Context, x: Value) -> Value:
    """Emit the length of each pair in float64.

    The kernel's hypot does not overflow where squares in float32 would.
    """
    ops = ctx.ops
    real, imaginary = (ops.Cast(ops.Gather(x, np.asarray(part), axis=-1), to="float64") for part in (0, 1))
    length = ops.Sqrt(ops.Add(ops.Mul(real, real), ops.Mul(imaginary, imaginary)))
    return ops.Cast(length, to=ctx.op[out(0)].dtype)


# --- intervals ----------------------------------------------------------------------------------


def boundaries(op: Operator) -> Array:
    """Return the ascending bounds of the intervals in float32."""
    return np.asarray(op.options.boundaries, np.float32).reshape(-1)


def check_boundaries(at: Instance) -> Decline | None:
    limits = boundaries(at.op)
    return None if (limits[:-1] <= limits[1:]).all() else Decline("the boundaries are not ascending; sort them")


@handler("BUCKETIZE", max_version=1, layout=Transparent(), accepts=check_boundaries)
def bucketize(ctx: Context, x: Value) -> Value:
    """Emit the number of boundaries that are at most x.

    NaN is above all boundaries. Integers are compared in float32, as std::upper_bound converts them (bucketize.cc).
    """
    ops, bounds = ctx.ops, boundaries(ctx.op)
    if ctx.op[0].dtype == "float64":
        bounds = bounds.astype(np.float64)
    elif ctx.op[0].dtype != "float32":
        x = ops.Cast(x, to="float32")
    boundary_axis = len(ctx.shape(0))
    is_reached = ops.Not(ops.Less(ops.Unsqueeze(x, [boundary_axis]), bounds))
    return ops.ReduceSum(ops.Cast(is_reached, to="int32"), [boundary_axis], keepdims=0)
