"""Functions of one operand, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Instance,
    Operator,
    Raw,
    Transparent,
    handler,
    out,
)
from op_handlers.kernels.tables import looked_up, words_by_table
from op_handlers.kernels.widening import computed_in, widened


@handler("ABS", max_version=5, layout=Transparent(), quantization=Dequantized())
def absolute(ctx: Context, x: Any) -> Any:
    """Abs."""
    return ctx.ops.Abs(x)


@handler("FLOOR", max_version=1, layout=Transparent())
def floor(ctx: Context, x: Any) -> Any:
    """Floor."""
    return widened(ctx, "Floor", x)


@handler("NEG", max_version=1, layout=Transparent(), quantization=Raw())
def neg(ctx: Context, x: Any) -> Any:
    """Neg; the kernel negates the stored value and ignores the zero point (neg.cc)."""
    return ctx.ops.Neg(x)


@handler("SQUARE", max_version=1, layout=Transparent())
def square(ctx: Context, x: Any) -> Any:
    """Itself times itself."""
    return ctx.ops.Mul(x, x)


@handler("EXP", max_version=2, layout=Transparent(), quantization=words_by_table)
def exponential(ctx: Context, x: Any) -> Any:
    """Exp; of int16 a table (exp.cc)."""
    return looked_up(ctx, x, np.exp) if ctx.integers else ctx.ops.Exp(x)


@handler("LOG", max_version=2, layout=Transparent(), quantization=words_by_table)
def logarithm(ctx: Context, x: Any) -> Any:
    """Log, of int16 a table; numbers up to 0 give the quantized dtype's lowest (LogLUTPrepare, elementwise.cc)."""
    made = ctx.quantization(out(0))
    if made is None:
        return ctx.ops.Log(x)
    if not ctx.integers:
        return ctx.ops.Log(ctx.ops.Max(x, 0.0))
    lowest = np.float32(-32768) * np.float32(made.scale[0])
    return looked_up(ctx, x, lambda real: np.where(real > 0, np.log(np.abs(real)), lowest))


@handler("SQRT", max_version=2, layout=Transparent(), quantization=Dequantized())
def square_root(ctx: Context, x: Any) -> Any:
    """Sqrt; the kernel cuts its integers off where others round (SqrtEvalQuantized, elementwise.cc)."""
    root, made = ctx.ops.Sqrt(x), ctx.quantization(out(0))
    return root if made is None else ctx.ops.Mul(ctx.ops.Floor(ctx.ops.Div(root, made.scale[0])), made.scale[0])


@handler("RSQRT", max_version=3, layout=Transparent(), quantization=words_by_table)
def reciprocal_square_root(ctx: Context, x: Any) -> Any:
    """Reciprocal of Sqrt, of int16 a table; a quantized zero gives the dtype's highest, as infinity does."""
    made = ctx.quantization(out(0))
    if made is None or not ctx.integers:
        return ctx.ops.Reciprocal(ctx.ops.Sqrt(x))
    highest = np.float32(32767) * np.float32(made.scale[0])
    return looked_up(ctx, x, lambda real: np.where(real > 0, 1 / np.sqrt(np.abs(real)), highest))


@handler("CEIL", max_version=1, layout=Transparent())
def ceil(ctx: Context, x: Any) -> Any:
    """Ceil."""
    return widened(ctx, "Ceil", x)


@handler("ROUND", max_version=1, layout=Transparent())
def round_(ctx: Context, x: Any) -> Any:
    """Round; halves go to the even number, in ONNX as in the kernel (RoundToNearest, reference/round.h)."""
    return widened(ctx, "Round", x)


@handler("SIGN", max_version=2, layout=Transparent())
def sign(ctx: Context, x: Any) -> Any:
    """Sign; NaN stays NaN (sign.cc)."""
    return ctx.ops.Sign(x)


@handler("SIN", max_version=2, layout=Transparent())
def sine(ctx: Context, x: Any) -> Any:
    """Sin; of float16 in float32, as the kernel computes it (SinEval, elementwise.cc)."""
    return in_float32(ctx, "Sin", x)


@handler("COS", max_version=2, layout=Transparent())
def cosine(ctx: Context, x: Any) -> Any:
    """Cos; of float16 in float32."""
    return in_float32(ctx, "Cos", x)


def in_float32(ctx: Context, onnx: str, x: Any) -> Any:
    """An ONNX operator on float32, whatever real dtype the file has."""
    dtype = ctx.dtype(0)
    return computed_in(ctx, None if dtype == "float32" else "float32", dtype, onnx, x)


# --- complex numbers, which are pairs along a last axis -----------------------------------------


@handler("REAL", max_version=1, layout=Transparent())
def real_part(ctx: Context, x: Any) -> Any:
    """The first number of each pair."""
    return ctx.ops.Gather(x, np.asarray(0), axis=-1)


@handler("IMAG", max_version=1, layout=Transparent())
def imaginary_part(ctx: Context, x: Any) -> Any:
    """The second number of each pair."""
    return ctx.ops.Gather(x, np.asarray(1), axis=-1)


@handler("COMPLEX_ABS", max_version=1, layout=Transparent())
def complex_absolute(ctx: Context, x: Any) -> Any:
    """The length of each pair, in float64: the kernel's hypot does not overflow where the squares do."""
    ops = ctx.ops
    real, imaginary = (ops.Cast(ops.Gather(x, np.asarray(part), axis=-1), to="float64") for part in (0, 1))
    length = ops.Sqrt(ops.Add(ops.Mul(real, real), ops.Mul(imaginary, imaginary)))
    return ops.Cast(length, to=ctx.op[out(0)].dtype)


# --- intervals ----------------------------------------------------------------------------------


def boundaries(op: Operator) -> Array:
    """The ascending bounds of the intervals, float32."""
    return np.asarray(op.options.boundaries, np.float32).reshape(-1)


def ascending(at: Instance) -> Decline | None:
    held = boundaries(at.op)
    return None if (held[:-1] <= held[1:]).all() else Decline("its boundaries do not ascend; sort them")


@handler("BUCKETIZE", max_version=1, layout=Transparent(), accepts=ascending)
def bucketize(ctx: Context, x: Any) -> Any:
    """How many boundaries a number is not below: one that equals a boundary lies above it, and NaN above all.

    Integers are compared in float32, as std::upper_bound converts them (bucketize.cc).
    """
    ops, bounds = ctx.ops, boundaries(ctx.op)
    if ctx.op[0].dtype == "float64":
        bounds = bounds.astype(np.float64)
    elif ctx.op[0].dtype != "float32":
        x = ops.Cast(x, to="float32")
    last = len(ctx.shape(0))
    passed = ops.Not(ops.Less(ops.Unsqueeze(x, [last]), bounds))
    return ops.ReduceSum(ops.Cast(passed, to="int32"), [last], keepdims=0)
