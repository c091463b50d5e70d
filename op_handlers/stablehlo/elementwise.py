"""Binary operators on equal shapes.

Nothing is rescaled, integers wrap around, and booleans are one-bit numbers.
"""

from __future__ import annotations

from itertools import zip_longest

from onnx_tflite_plugin.api import Context, Decline, Instance, Raw, Transparent, Value, handler
from op_handlers.kernels.min_max import emit_min_max

FLOATS = ("float16", "float32", "float64")


def emit_wrapping(ctx: Context, op_type: str, x: Value, y: Value) -> Value:
    """Emit a sum or product that wraps around.

    For booleans, these are Or and And (stablehlo_elementwise.h).
    """
    dtype, ops = ctx.op[0].dtype, ctx.ops
    if dtype == "bool":
        return {"Add": ops.Or, "Mul": ops.And}[op_type](x, y)
    return ops.named(op_type)(x, y)


@handler("STABLEHLO_ADD", max_version=1, layout=Transparent(), quantization=Raw())
def add(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Add."""
    return emit_wrapping(ctx, "Add", x, y)


@handler("STABLEHLO_MULTIPLY", max_version=1, layout=Transparent(), quantization=Raw())
def multiply(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Mul."""
    return emit_wrapping(ctx, "Mul", x, y)


def emit_cpp_min_max(ctx: Context, op_type: str, x: Value, y: Value) -> Value:
    """Emit ``std::max`` or ``std::min``.

    For floats, the result is the second operand if it is greater (or less), otherwise the first. The result is NaN
    only if the first operand is NaN.
    """
    dtype, ops = ctx.op[0].dtype, ctx.ops
    if dtype == "bool":
        return {"Max": ops.Or, "Min": ops.And}[op_type](x, y)
    if dtype in FLOATS:
        takes_second = ops.Less(x, y) if op_type == "Max" else ops.Less(y, x)
        return ops.Where(takes_second, y, x)
    return emit_min_max(ctx, op_type, x, y)


@handler("STABLEHLO_MAXIMUM", max_version=1, layout=Transparent(), quantization=Raw())
def maximum(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Where of a comparison, or Max for integers."""
    return emit_cpp_min_max(ctx, "Max", x, y)


@handler("STABLEHLO_MINIMUM", max_version=1, layout=Transparent(), quantization=Raw())
def minimum(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Where of a comparison, or Min for integers."""
    return emit_cpp_min_max(ctx, "Min", x, y)


@handler(
    "STABLEHLO_AND",
    max_version=1,
    layout=Transparent(),
    quantization=Raw(),
    min_opset=lambda at: 1 if at.op[0].dtype == "bool" else 18,
    types="bool int8 uint8 int16 uint16 int32 uint32 int64 uint64",
)
def both(ctx: Context, x: Value, y: Value) -> Value:
    """Emit And, or BitwiseAnd for integers."""
    return ctx.ops.And(x, y) if ctx.op[0].dtype == "bool" else ctx.ops.BitwiseAnd(x, y)


def check_equal_shapes(at: Instance) -> Decline | None:
    """Return a Decline for different shapes.

    The kernel does not check shapes (EvalImpl, stablehlo_shift_left.cc).
    """
    shapes = [at.op[k].dims for k in range(2)]
    if all(x_size in (None, y_size) or y_size is None for x_size, y_size in zip_longest(*shapes, fillvalue=0)):
        return None
    return Decline(f"shape {list(shapes[0])} is shifted by shape {list(shapes[1])}; the kernel requires equal shapes")


@handler("STABLEHLO_SHIFT_LEFT", max_version=1, layout=Transparent(), quantization=Raw(), accepts=check_equal_shapes)
def shift_left(ctx: Context, x: Value, y: Value) -> Value:
    """Emit BitShift in uint32, truncated to the dtype.

    The kernel promotes operands to 32 bits too (stablehlo_shift_left.cc).
    """
    bits = [ctx.ops.Cast(operand, to="uint32") for operand in (x, y)]
    return ctx.ops.Cast(ctx.ops.BitShift(*bits, direction="LEFT"), to=ctx.op[0].dtype)
