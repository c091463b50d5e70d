"""Arithmetic of two operands, which are broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Rewriter, Transparent, Value, handler, out
from op_handlers.custom.select.nodedef import PREFIX, NodeDef
from op_handlers.custom.select.twins import FLOATS, REAL, Declare, acceptable, alike, arrays, twin
from op_handlers.math import arithmetic as builtin
from op_handlers.math.unary import floor as floors

NONE = {"fused_activation_function": "NONE"}
BOTH = alike(REAL, 2)
OF_FLOATS = alike(FLOATS, 2)


def floor_divide(steps: Rewriter, node: NodeDef) -> Any:
    """Replace with Div and Floor for floats, with the built-in operator, which computes in float64, for integers."""
    x, y = steps.op[0], steps.op[1]
    if "int" in x.dtype:
        return steps.finish(builtin.floor_div, [x, y])
    quotient = steps.call(builtin.div, [x, y], x.dtype, steps.op[out(0)].dims, **NONE)
    return steps.finish(floors, [quotient])


def sum_operands(op: Any, *operands: Array) -> Array:
    """Emit the sum of all operands."""
    return np.asarray(sum(operands[1:], operands[0]))


add = twin("Add", builtin.add, arrays(np.add), operands=2, options=NONE, types=BOTH)
add_v2 = twin("AddV2", builtin.add, arrays(np.add), operands=2, options=NONE, types=BOTH)
add_n = twin("AddN", builtin.add_n, sum_operands, operands=None, types=tuple(f"{dtype}..." for dtype in REAL.split()))
sub = twin("Sub", builtin.sub, arrays(np.subtract), operands=2, options=NONE, types=BOTH)
mul = twin(
    "Mul",
    builtin.mul,
    arrays(np.multiply),
    operands=2,
    options=NONE,
    types=(*BOTH, "complex64, complex64 -> complex64"),
)
real_div = twin("RealDiv", builtin.div, arrays(np.divide), operands=2, options=NONE, types=OF_FLOATS)
div = twin(
    "Div",
    builtin.div,
    arrays(lambda x, y: np.divide(x, y) if x.dtype.kind == "f" else np.trunc(x / y).astype(x.dtype)),
    operands=2,
    options=NONE,
    types=BOTH,
)
floor_div = twin(
    "FloorDiv",
    builtin.floor_div,
    arrays(np.floor_divide),
    operands=2,
    rewrite=floor_divide,
    types=alike("float32 int32", 2),
)
floor_mod = twin("FloorMod", builtin.floor_mod, arrays(np.mod), operands=2, types=alike("float32 int32 int64", 2))
maximum = twin("Maximum", builtin.maximum, arrays(np.maximum), operands=2, types=BOTH)
minimum = twin("Minimum", builtin.minimum, arrays(np.minimum), operands=2, types=BOTH)
pow_ = twin("Pow", builtin.power, arrays(np.power), operands=2, types=alike("float32 float64", 2))
atan2 = twin("Atan2", builtin.atan2, arrays(np.arctan2), operands=2, types=alike("float32", 2))
squared_difference = twin(
    "SquaredDifference",
    builtin.squared_difference,
    arrays(lambda x, y: np.square(x - y)),
    operands=2,
    types=BOTH,
)


def unless_zero(x: Array, y: Array) -> Array:
    """Emit x * y, and 0 where x is 0."""
    return np.where(x == 0, np.zeros((), x.dtype), x * y)


def no_nan(name: str, function: Any) -> Declare:
    """Return the handler of a function of two floats that is 0 where one of them is 0."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=OF_FLOATS,
        accepts=acceptable(2),
        kernel=arrays(function),
    )


@no_nan("Xlogy", lambda x, y: unless_zero(x, np.log(y)))
def xlogy(ctx: Context, x: Value, y: Value) -> Value:
    """Emit x * Log(y), and 0 where x is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(x, zero), zero, ctx.ops.Mul(x, ctx.ops.Log(y)))


@no_nan("Xdivy", lambda x, y: np.where(x == 0, np.zeros((), x.dtype), x / y))
def xdivy(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Div, and 0 where x is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(x, zero), zero, ctx.ops.Div(x, y))


@no_nan("DivNoNan", lambda x, y: np.where(y == 0, np.zeros((), x.dtype), x / y))
def div_no_nan(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Div, and 0 where y is 0."""
    zero = ctx.scalar(0.0)
    return ctx.ops.Where(ctx.ops.Equal(y, zero), zero, ctx.ops.Div(x, y))
