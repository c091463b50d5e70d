"""Binary arithmetic with broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Rewriter, Transparent, Value, handler, out
from op_handlers.custom.select.nodedef import PREFIX, NodeDef
from op_handlers.custom.select.rewriting import (
    FLOATS,
    REAL,
    HandlerDecorator,
    acceptance_check,
    make_kernel,
    rewrite_to,
    uniform_types,
)
from op_handlers.math import arithmetic as builtin
from op_handlers.math.unary import floor as builtin_floor

NO_ACTIVATION = {"fused_activation_function": "NONE"}
REAL_PAIRS = uniform_types(REAL, 2)
FLOAT_PAIRS = uniform_types(FLOATS, 2)


def floor_divide(rewriter: Rewriter, node: NodeDef) -> Any:
    """Emit DIV and FLOOR for floats, FLOOR_DIV for int32, and an exact DIV for int64.

    The exact DIV is (x - FLOOR_MOD(x, y)) / y, which overflows if x is within y of the limits of int64. FLOOR_DIV
    computes in float64, which does not represent every int64.
    """
    x, y, dims = rewriter.op[0], rewriter.op[1], rewriter.op[out(0)].dims
    if x.dtype == "int64":
        remainder = rewriter.call(builtin.floor_mod, [x, y], x.dtype, dims)
        multiple = rewriter.call(builtin.sub, [x, remainder], x.dtype, dims, **NO_ACTIVATION)
        return rewriter.finish(builtin.div, [multiple, y], **NO_ACTIVATION)
    if x.dtype == "int32":
        return rewriter.finish(builtin.floor_div, [x, y])
    quotient = rewriter.call(builtin.div, [x, y], x.dtype, dims, **NO_ACTIVATION)
    return rewriter.finish(builtin_floor, [quotient])


def clip_by_value(rewriter: Rewriter, node: NodeDef) -> Any:
    """Emit MINIMUM with the upper bound, and MAXIMUM with the lower bound."""
    x, low, high = (rewriter.op[slot] for slot in range(3))
    limited = rewriter.call(builtin.minimum, [x, high], x.dtype, rewriter.op[out(0)].dims)
    return rewriter.finish(builtin.maximum, [limited, low])


def sum_operands(op: Any, *operands: Array) -> Array:
    """Return the sum of all operands."""
    return np.asarray(sum(operands[1:], operands[0]))


add = rewrite_to("Add", builtin.add, make_kernel(np.add), operands=2, options=NO_ACTIVATION, types=REAL_PAIRS)
add_v2 = rewrite_to("AddV2", builtin.add, make_kernel(np.add), operands=2, options=NO_ACTIVATION, types=REAL_PAIRS)
add_n = rewrite_to(
    "AddN", builtin.add_n, sum_operands, operands=None, types=tuple(f"{dtype}..." for dtype in REAL.split())
)
clip = rewrite_to(
    "ClipByValue",
    builtin.minimum,
    make_kernel(lambda x, low, high: np.maximum(np.minimum(x, high), low)),
    operands=3,
    rewrite=clip_by_value,
    types=uniform_types(REAL, 3),
)
sub = rewrite_to("Sub", builtin.sub, make_kernel(np.subtract), operands=2, options=NO_ACTIVATION, types=REAL_PAIRS)
mul = rewrite_to(
    "Mul",
    builtin.mul,
    make_kernel(np.multiply),
    operands=2,
    options=NO_ACTIVATION,
    types=(*REAL_PAIRS, "complex64, complex64 -> complex64"),
)
real_div = rewrite_to(
    "RealDiv", builtin.div, make_kernel(np.divide), operands=2, options=NO_ACTIVATION, types=FLOAT_PAIRS
)
div = rewrite_to(
    "Div",
    builtin.div,
    make_kernel(lambda x, y: np.divide(x, y) if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)),
    operands=2,
    options=NO_ACTIVATION,
    types=REAL_PAIRS,
)
floor_div = rewrite_to(
    "FloorDiv",
    builtin.floor_div,
    make_kernel(np.floor_divide),
    operands=2,
    rewrite=floor_divide,
    types=uniform_types("float32 int32 int64", 2),
)
floor_mod = rewrite_to(
    "FloorMod", builtin.floor_mod, make_kernel(np.mod), operands=2, types=uniform_types("float32 int32 int64", 2)
)
maximum = rewrite_to("Maximum", builtin.maximum, make_kernel(np.maximum), operands=2, types=REAL_PAIRS)
minimum = rewrite_to("Minimum", builtin.minimum, make_kernel(np.minimum), operands=2, types=REAL_PAIRS)
pow_ = rewrite_to("Pow", builtin.power, make_kernel(np.power), operands=2, types=uniform_types("float32 float64", 2))
atan2 = rewrite_to("Atan2", builtin.atan2, make_kernel(np.arctan2), operands=2, types=uniform_types("float32", 2))
squared_difference = rewrite_to(
    "SquaredDifference",
    builtin.squared_difference,
    make_kernel(lambda x, y: np.square(x - y)),
    operands=2,
    types=REAL_PAIRS,
)


def multiply_or_zero(x: Array, y: Array) -> Array:
    """Return x * y, or 0 where x is 0."""
    return np.where(x == 0, np.zeros((), x.dtype), x * y)


def zero_safe_function(name: str, function: Any) -> HandlerDecorator:
    """Return a handler decorator for a float function with a special case for zeros.

    ``function``: the NumPy implementation.
    """
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=FLOAT_PAIRS,
        accepts=acceptance_check(2),
        kernel=make_kernel(function),
    )


@zero_safe_function("Xlogy", lambda x, y: multiply_or_zero(x, np.log(y)))
def xlogy(ctx: Context, x: Value, y: Value) -> Value:
    """Emit x * Log(y), or 0 where x is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(x, zero), zero, ctx.ops.Mul(x, ctx.ops.Log(y)))


@zero_safe_function("Xdivy", lambda x, y: np.where(x == 0, np.zeros((), x.dtype), x / y))
def xdivy(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Div, or 0 where x is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(x, zero), zero, ctx.ops.Div(x, y))


@zero_safe_function("DivNoNan", lambda x, y: np.where(y == 0, np.zeros((), x.dtype), x / y))
def div_no_nan(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Div, or 0 where y is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(y, zero), zero, ctx.ops.Div(x, y))
