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
    HandlerDecorator,
    acceptance_check,
    make_kernel,
    rewrite_to,
    uniform_types,
)
from op_handlers.math import cast as builtin_cast
from op_handlers.math import unary as builtin


def single_node_handler(
    name: str, onnx: str, function: Callable[..., Any], types: str = FLOATS, result: str = "T"
) -> Handler:
    """Return the handler of a function that ONNX also has, under the name ``onnx``.

    ``function``: the function in NumPy. ``result``: dtype of the result, by default the operand's dtype.
    """

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
        result_dtypes={} if result == "T" else {"*": ("*",)},
        accepts=acceptance_check(1),
        kernel=make_kernel(function),
    )(lower)


def apply_per_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Return a function of arrays that applies ``function`` to each element."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x).astype(x.dtype)


abs_ = rewrite_to("Abs", builtin.absolute, make_kernel(np.abs), types=uniform_types(REAL))
ceil = rewrite_to("Ceil", builtin.ceil, make_kernel(np.ceil), types=uniform_types(FLOATS))
cos = rewrite_to("Cos", builtin.cosine, make_kernel(np.cos), types=uniform_types(FLOATS))
exp = rewrite_to("Exp", builtin.exponential, make_kernel(np.exp), types=uniform_types(FLOATS))
floor = rewrite_to("Floor", builtin.floor, make_kernel(np.floor), types=uniform_types(FLOATS))
log = rewrite_to("Log", builtin.logarithm, make_kernel(np.log), types=uniform_types(FLOATS))
neg = rewrite_to("Neg", builtin.neg, make_kernel(np.negative), types=uniform_types(REAL))
round_ = rewrite_to("Round", builtin.round_, make_kernel(np.round), types=uniform_types(FLOATS))
rint = rewrite_to("Rint", builtin.round_, make_kernel(np.round), types=uniform_types(FLOATS))
rsqrt = rewrite_to(
    "Rsqrt", builtin.reciprocal_square_root, make_kernel(lambda x: 1 / np.sqrt(x)), types=uniform_types(FLOATS)
)
sign = rewrite_to("Sign", builtin.sign, make_kernel(np.sign), types=uniform_types(REAL))
sin = rewrite_to("Sin", builtin.sine, make_kernel(np.sin), types=uniform_types(FLOATS))
sqrt = rewrite_to("Sqrt", builtin.square_root, make_kernel(np.sqrt), types=uniform_types(FLOATS))
square = rewrite_to("Square", builtin.square, make_kernel(np.square), types=uniform_types(REAL))

acos = single_node_handler("Acos", "Acos", np.arccos, "float16 float32")
acosh = single_node_handler("Acosh", "Acosh", np.arccosh, "float16 float32")
asin = single_node_handler("Asin", "Asin", np.arcsin, "float16 float32")
asinh = single_node_handler("Asinh", "Asinh", np.arcsinh, "float16 float32")
atan = single_node_handler("Atan", "Atan", np.arctan, "float16 float32")
atanh = single_node_handler("Atanh", "Atanh", np.arctanh, "float16 float32")
cosh = single_node_handler("Cosh", "Cosh", np.cosh, "float16 float32")
erf_ = single_node_handler("Erf", "Erf", apply_per_element(erf), "float16 float32")
is_inf = single_node_handler("IsInf", "IsInf", np.isinf, "float32 float64", result="bool")
is_nan = single_node_handler("IsNan", "IsNaN", np.isnan, "float16 float32 float64", result="bool")
reciprocal = single_node_handler("Reciprocal", "Reciprocal", np.reciprocal)
inv = single_node_handler("Inv", "Reciprocal", np.reciprocal)
sinh = single_node_handler("Sinh", "Sinh", np.sinh, "float16 float32")
tan = single_node_handler("Tan", "Tan", np.tan, "float16 float32")


def elementwise_function(name: str, function: Callable[..., Any], types: str = "float16 float32") -> HandlerDecorator:
    """Return a decorator for a function of one operand that needs several ONNX nodes."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=uniform_types(types),
        accepts=acceptance_check(1),
        kernel=make_kernel(function),
    )


@elementwise_function("Erfc", apply_per_element(erfc))
def erfc_(ctx: Context, x: Value) -> Value:
    """Emit 1 - Erf."""
    return ctx.ops.Sub(ctx.scalar(1.0), ctx.ops.Erf(x))


@elementwise_function("Expm1", np.expm1)
def expm1(ctx: Context, x: Value) -> Value:
    """Emit Exp(x) - 1, or a product with Tanh for |x| < 1.

    The product is tanh(x/2) * (exp(x) + 1), which is accurate near 0.
    """
    ops, one = ctx.ops, ctx.scalar(1.0)
    exponential = ops.Exp(x)
    accurate_near_zero = ops.Mul(ops.Tanh(ops.Mul(x, ctx.scalar(0.5))), ops.Add(exponential, one))
    return ops.Where(ops.Less(ops.Abs(x), one), accurate_near_zero, ops.Sub(exponential, one))


@elementwise_function("Log1p", np.log1p)
def log1p(ctx: Context, x: Value) -> Value:
    """Emit Log(1 + x), corrected for the rounding of 1 + x.

    The result is x * log(u) / (u - 1), where u is 1 + x rounded.
    """
    ops, one = ctx.ops, ctx.scalar(1.0)
    one_plus_x = ops.Add(x, one)
    rounded_x = ops.Sub(one_plus_x, one)
    inexact = ops.And(ops.Less(ops.Abs(x), one), ops.Not(ops.Equal(rounded_x, ctx.scalar(0.0))))
    divisor = ops.Where(inexact, rounded_x, one)
    x_is_lost = ops.Equal(one_plus_x, one)
    logarithm = ops.Log(one_plus_x)
    return ops.Where(x_is_lost, x, ops.Where(inexact, ops.Mul(x, ops.Div(logarithm, divisor)), logarithm))


@handler(
    PREFIX + "IsFinite",
    max_version=1,
    layout=Transparent(),
    types=uniform_types("float32 float64", result="bool"),
    result_dtypes={"*": ("*",)},
    accepts=acceptance_check(1),
    kernel=make_kernel(np.isfinite),
)
def is_finite(ctx: Context, x: Value) -> Value:
    """Emit Not of IsInf or IsNaN."""
    return ctx.ops.Not(ctx.ops.Or(ctx.ops.IsInf(x), ctx.ops.IsNaN(x)))


# --- conversion of dtypes ---------------------------------------------------------------------


def cast_array(op: Any, x: Array) -> Array:
    """Return the array in the result's dtype."""
    dtype = op[out(0)].dtype
    with np.errstate(all="ignore"):
        return (x if dtype.startswith("complex") else np.real(x)).astype(dtype)


def check_result_dtype(instance: Any) -> Any:
    """Return a Decline if the dtype of the result differs from the attribute DstT."""
    from onnx_tflite_plugin.api import Decline

    result_dtype = instance.op[out(0)].dtype
    declared_dtype = node_of(instance.op).dtype("DstT", result_dtype)
    if declared_dtype == result_dtype:
        return None
    return Decline(f"the result has dtype {result_dtype}, but the NodeDef declares {declared_dtype}")


cast = rewrite_to(
    "Cast",
    builtin_cast.cast,
    cast_array,
    types=f"{ANY} bfloat16 complex64 -> {ANY} bfloat16 complex64",
    accepts=check_result_dtype,
)
