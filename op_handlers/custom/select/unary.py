"""Functions of one operand, element by element."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Handler, NotQuantizable, Transparent, Value, handler, out
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.twins import ANY, FLOATS, REAL, Declare, acceptable, alike, arrays, twin
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
        types=alike(types, result=result),
        converts={} if result == "T" else {"*": ("*",)},
        accepts=acceptable(1),
        kernel=arrays(function),
    )(lower)


def one_by_one(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function on arrays that applies a function of Python numbers."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(x.dtype)


abs_ = twin("Abs", builtin.absolute, arrays(np.abs), types=alike(REAL))
ceil = twin("Ceil", builtin.ceil, arrays(np.ceil), types=alike(FLOATS))
cos = twin("Cos", builtin.cosine, arrays(np.cos), types=alike(FLOATS))
exp = twin("Exp", builtin.exponential, arrays(np.exp), types=alike(FLOATS))
floor = twin("Floor", builtin.floor, arrays(np.floor), types=alike(FLOATS))
log = twin("Log", builtin.logarithm, arrays(np.log), types=alike(FLOATS))
neg = twin("Neg", builtin.neg, arrays(np.negative), types=alike(REAL))
round_ = twin("Round", builtin.round_, arrays(np.round), types=alike(FLOATS))
rint = twin("Rint", builtin.round_, arrays(np.round), types=alike(FLOATS))
rsqrt = twin("Rsqrt", builtin.reciprocal_square_root, arrays(lambda x: 1 / np.sqrt(x)), types=alike(FLOATS))
sign = twin("Sign", builtin.sign, arrays(np.sign), types=alike(REAL))
sin = twin("Sin", builtin.sine, arrays(np.sin), types=alike(FLOATS))
sqrt = twin("Sqrt", builtin.square_root, arrays(np.sqrt), types=alike(FLOATS))
square = twin("Square", builtin.square, arrays(np.square), types=alike(REAL))

acos = direct("Acos", "Acos", np.arccos, "float16 float32")
acosh = direct("Acosh", "Acosh", np.arccosh, "float16 float32")
asin = direct("Asin", "Asin", np.arcsin, "float16 float32")
asinh = direct("Asinh", "Asinh", np.arcsinh, "float16 float32")
atan = direct("Atan", "Atan", np.arctan, "float16 float32")
atanh = direct("Atanh", "Atanh", np.arctanh, "float16 float32")
cosh = direct("Cosh", "Cosh", np.cosh, "float16 float32")
erf_ = direct("Erf", "Erf", one_by_one(erf), "float16 float32")
is_inf = direct("IsInf", "IsInf", np.isinf, "float32 float64", result="bool")
is_nan = direct("IsNan", "IsNaN", np.isnan, "float16 float32 float64", result="bool")
reciprocal = direct("Reciprocal", "Reciprocal", np.reciprocal)
inv = direct("Inv", "Reciprocal", np.reciprocal)
sinh = direct("Sinh", "Sinh", np.sinh, "float16 float32")
tan = direct("Tan", "Tan", np.tan, "float16 float32")


def elementwise(name: str, function: Callable[..., Any], types: str = "float16 float32") -> Declare:
    """Return the handler of a function of one operand that is several ONNX operators."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=alike(types),
        accepts=acceptable(1),
        kernel=arrays(function),
    )


@elementwise("Erfc", one_by_one(erfc))
def erfc_(ctx: Context, x: Value) -> Value:
    """Emit 1 - Erf."""
    return ctx.ops.Sub(ctx.scalar(1.0), ctx.ops.Erf(x))


@elementwise("Expm1", np.expm1)
def expm1(ctx: Context, x: Value) -> Value:
    """Emit Exp(x) - 1, below 1 as tanh(x/2) * (exp(x) + 1), which loses no digits near 0."""
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
    types=alike("float32 float64", result="bool"),
    converts={"*": ("*",)},
    accepts=acceptable(1),
    kernel=arrays(np.isfinite),
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


def is_noted(at: Any) -> Any:
    """Return a Decline for a result of another dtype than the attribute says."""
    from onnx_tflite_plugin.api import Decline

    noted, made = node_of(at.op).dtype("DstT", at.op[out(0)].dtype), at.op[out(0)].dtype
    return None if noted == made else Decline(f"the result has dtype {made}, but the NodeDef says {noted}")


cast = twin(
    "Cast",
    casts.cast,
    cast_array,
    types=f"{ANY} bfloat16 complex64 -> {ANY} bfloat16 complex64",
    accepts=is_noted,
)
