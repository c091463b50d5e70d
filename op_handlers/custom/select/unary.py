"""Elementwise functions of one operand."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Handler, NotQuantizable, Transparent, Value, handler, out
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import (
    ANY,
    FLOATS,
    REAL,
    Declare,
    check_acceptable,
    kernel_of,
    rewrite_to,
    uniform_types,
)
from op_handlers.math import cast as casts
from op_handlers.math import unary as builtin


def direct(name: str, onnx: str, function: Callable[..., Any], types: str = FLOATS, result: str = "T") -> Handler:
    """Return the handler of a function that ONNX has."""

    def lower(ctx: Context, x: Value) -> Value:
        y: Value = ctx.ops.named(onnx)(x)
        return y

    lower.__name__, lower.__doc__ = name, f"{onnx}."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        quantization=NotQuantizable(),
        types=uniform_types(types, result=result),
        converts={} if result == "T" else {"*": ("*",)},
        accepts=check_acceptable(1),
        kernel=kernel_of(function),
    )(lower)


def apply_per_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function on arrays that applies a function of Python numbers."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(x.dtype)


abs_ = rewrite_to("Abs", builtin.absolute, kernel_of(np.abs), types=uniform_types(REAL))
ceil = rewrite_to("Ceil", builtin.ceil, kernel_of(np.ceil), types=uniform_types(FLOATS))
cos = rewrite_to("Cos", builtin.cosine, kernel_of(np.cos), types=uniform_types(FLOATS))
exp = rewrite_to("Exp", builtin.exponential, kernel_of(np.exp), types=uniform_types(FLOATS))
floor = rewrite_to("Floor", builtin.floor, kernel_of(np.floor), types=uniform_types(FLOATS))
log = rewrite_to("Log", builtin.logarithm, kernel_of(np.log), types=uniform_types(FLOATS))
neg = rewrite_to("Neg", builtin.neg, kernel_of(np.negative), types=uniform_types(REAL))
round_ = rewrite_to("Round", builtin.round_, kernel_of(np.round), types=uniform_types(FLOATS))
rint = rewrite_to("Rint", builtin.round_, kernel_of(np.round), types=uniform_types(FLOATS))
rsqrt = rewrite_to(
    "Rsqrt", builtin.reciprocal_square_root, kernel_of(lambda x: 1 / np.sqrt(x)), types=uniform_types(FLOATS)
)
sign = rewrite_to("Sign", builtin.sign, kernel_of(np.sign), types=uniform_types(REAL))
sin = rewrite_to("Sin", builtin.sine, kernel_of(np.sin), types=uniform_types(FLOATS))
sqrt = rewrite_to("Sqrt", builtin.square_root, kernel_of(np.sqrt), types=uniform_types(FLOATS))
square = rewrite_to("Square", builtin.square, kernel_of(np.square), types=uniform_types(REAL))

acos = direct("Acos", "Acos", np.arccos, "float16 float32")
acosh = direct("Acosh", "Acosh", np.arccosh, "float16 float32")
asin = direct("Asin", "Asin", np.arcsin, "float16 float32")
asinh = direct("Asinh", "Asinh", np.arcsinh, "float16 float32")
atan = direct("Atan", "Atan", np.arctan, "float16 float32")
atanh = direct("Atanh", "Atanh", np.arctanh, "float16 float32")
cosh = direct("Cosh", "Cosh", np.cosh, "float16 float32")
erf_ = direct("Erf", "Erf", apply_per_element(erf), "float16 float32")
is_inf = direct("IsInf", "IsInf", np.isinf, "float32 float64", result="bool")
is_nan = direct("IsNan", "IsNaN", np.isnan, "float16 float32 float64", result="bool")
reciprocal = direct("Reciprocal", "Reciprocal", np.reciprocal)
inv = direct("Inv", "Reciprocal", np.reciprocal)
sinh = direct("Sinh", "Sinh", np.sinh, "float16 float32")
tan = direct("Tan", "Tan", np.tan, "float16 float32")


def elementwise(name: str, function: Callable[..., Any], types: str = "float16 float32") -> Declare:
    """Return the handler of a function of one operand that needs several ONNX operators."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=uniform_types(types),
        accepts=check_acceptable(1),
        kernel=kernel_of(function),
    )


@elementwise("Erfc", apply_per_element(erfc))
def erfc_(ctx: Context, x: Value) -> Value:
    """Emit 1 - Erf."""
    return ctx.ops.Sub(ctx.scalar(1.0), ctx.ops.Erf(x))


@elementwise("Expm1", np.expm1)
def expm1(ctx: Context, x: Value) -> Value:
    """Emit Exp(x) - 1; for small x tanh(x/2) * (exp(x) + 1), which is accurate near 0."""
    ops, one = ctx.ops, ctx.scalar(1.0)
    power = ops.Exp(x)
    near = ops.Mul(ops.Tanh(ops.Mul(x, ctx.scalar(0.5))), ops.Add(power, one))
    return ops.Where(ops.Less(ops.Abs(x), one), near, ops.Sub(power, one))


@elementwise("Log1p", np.log1p)
def log1p(ctx: Context, x: Value) -> Value:
    """Emit Log(1 + x), corrected for the rounding of the sum: x * log(u) / (u - 1) with u = 1 + x."""
    ops, one = ctx.ops, ctx.scalar(1.0)
    total = ops.Add(x, one)
    rest = ops.Sub(total, one)
    inexact = ops.And(ops.Less(ops.Abs(x), one), ops.Not(ops.Equal(rest, ctx.scalar(0.0))))
    divisor = ops.Where(inexact, rest, one)
    small = ops.Equal(total, one)
    logarithm = ops.Log(total)
    return ops.Where(small, x, ops.Where(inexact, ops.Mul(x, ops.Div(logarithm, divisor)), logarithm))


@handler(
    PREFIX + "IsFinite",
    max_version=1,
    layout=Transparent(),
    types=uniform_types("float32 float64", result="bool"),
    converts={"*": ("*",)},
    accepts=check_acceptable(1),
    kernel=kernel_of(np.isfinite),
)
def is_finite(ctx: Context, x: Value) -> Value:
    """Emit Not of IsInf or IsNaN."""
    return ctx.ops.Not(ctx.ops.Or(ctx.ops.IsInf(x), ctx.ops.IsNaN(x)))


# --- between dtypes ---------------------------------------------------------------------------


def cast_array(op: Any, x: Array) -> Array:
    """Return the array in the result's dtype."""
    dtype = op[out(0)].dtype
    with np.errstate(all="ignore"):
        return (x if dtype.startswith("complex") else np.real(x)).astype(dtype)


def check_result_dtype(at: Any) -> Any:
    """Return a Decline for a result of another dtype than the attribute says."""
    from onnx_tflite_plugin.api import Decline

    stated, made = node_of(at.op).dtype("DstT", at.op[out(0)].dtype), at.op[out(0)].dtype
    return None if stated == made else Decline(f"the result has dtype {made}, but the NodeDef says {stated}")


cast = rewrite_to(
    "Cast",
    casts.cast,
    cast_array,
    types=f"{ANY} bfloat16 complex64 -> {ANY} bfloat16 complex64",
    accepts=check_result_dtype,
)
