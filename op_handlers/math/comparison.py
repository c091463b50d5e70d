"""Comparisons."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Integer,
    Quantization,
    Transparent,
    Value,
    handler,
    out,
)
from op_handlers.kernels.fixed_point import rescale
from op_handlers.kernels.lookup_tables import quantized_values

EIGHT_BITS = frozenset({"int8", "uint8"})
UP_TO_16_BITS = EIGHT_BITS | {"int16"}


def check_scales(dtypes: Collection[str], unscaled: Collection[str] = ()) -> Callable[[Instance], Decline | None]:
    """Return an ``accepts`` function that requires a scale between 0 and 1.

    ``dtypes``: dtypes that the kernel rescales. Operands of ``unscaled`` dtypes may have no scale.
    """

    def accepts(at: Instance) -> Decline | None:
        op = at.op
        dtype = op[0].dtype
        if dtype not in dtypes or (dtype in unscaled and op[0].quantization is None):
            return None
        for tensor in op.inputs:
            quantization = tensor.quantization if tensor is not None else None
            if not isinstance(quantization, Quantization) or quantization.per_axis:
                return Decline(
                    f"the {dtype} operands lack per-tensor scales, and no kernel compares such operands; "
                    "give each a scale, or cast both to int32"
                )
            if not 0 < quantization.scale[0] < 1:
                return Decline(
                    f"the scale is {quantization.scale[0]:g}, but the kernel compares correctly only below 1; "
                    "dequantize the operands, or use a smaller scale"
                )
        return None

    return accepts


def required_opset(at: Instance) -> int:
    """Return the minimum opset of Equal, which supports strings from 19."""
    return 19 if at.op[0].dtype == "string" else 1


@handler(
    "EQUAL",
    max_version=5,
    layout=Transparent(),
    quantization=Integer(),
    accepts=check_scales(UP_TO_16_BITS, unscaled={"int16"}),
    min_opset=required_opset,
)
def equal(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Equal of numbers, or of fixed-point numbers for quantized operands.

    All comparisons of quantized operands are in 256ths (comparisons.cc).
    """
    return ctx.ops.Equal(*rescale_operands(ctx, UP_TO_16_BITS, x, y))


@handler(
    "NOT_EQUAL",
    max_version=4,
    layout=Transparent(),
    quantization=Integer(),
    accepts=check_scales(UP_TO_16_BITS),
    min_opset=required_opset,
)
def not_equal(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Not of Equal."""
    return ctx.ops.Not(ctx.ops.Equal(*rescale_operands(ctx, UP_TO_16_BITS, x, y)))


@handler("LESS", max_version=3, layout=Transparent(), quantization=Integer(), accepts=check_scales(EIGHT_BITS))
def less(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Less. Int16 values are compared without their scales."""
    return ctx.ops.Less(*rescale_operands(ctx, EIGHT_BITS, x, y))


@handler("LESS_EQUAL", max_version=2, layout=Transparent(), quantization=Integer(), accepts=check_scales(EIGHT_BITS))
def less_equal(ctx: Context, x: Value, y: Value) -> Value:
    """Emit LessOrEqual. Int16 values are compared without their scales."""
    return ctx.ops.LessOrEqual(*rescale_operands(ctx, EIGHT_BITS, x, y))


@handler("GREATER", max_version=2, layout=Transparent(), quantization=Integer(), accepts=check_scales(EIGHT_BITS))
def greater(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Greater. Int16 values are compared without their scales."""
    return ctx.ops.Greater(*rescale_operands(ctx, EIGHT_BITS, x, y))


@handler("GREATER_EQUAL", max_version=3, layout=Transparent(), quantization=Integer(), accepts=check_scales(EIGHT_BITS))
def greater_equal(ctx: Context, x: Value, y: Value) -> Value:
    """Emit GreaterOrEqual. Int16 values are compared without their scales."""
    return ctx.ops.GreaterOrEqual(*rescale_operands(ctx, EIGHT_BITS, x, y))


def rescale_operands(ctx: Context, rescaled_dtypes: Collection[str], *operands: Value) -> list[Value]:
    """Return operands as the kernel compares them.

    Operands of ``rescaled_dtypes`` are compared in 256ths. Quantized values of equal scale are returned unchanged if
    their 256ths have the same order.
    """
    x_quantization, y_quantization = ctx.quantization(0), ctx.quantization(1)
    if ctx.op[0].dtype in rescaled_dtypes and x_quantization is not None and y_quantization is not None:
        tables = [
            table_of_256ths(q.scale[0], q.zero_point[0], ctx.dtype(slot))
            for slot, q in enumerate((x_quantization, y_quantization))
        ]
        if x_quantization != y_quantization or (np.diff(np.sort(tables[0])) == 0).any():
            return [look_up(ctx, slot, *pair) for slot, pair in enumerate(zip(tables, operands, strict=True))]
    return list(operands)


def look_up(ctx: Context, slot: int, table: Array, x: Value) -> Value:
    """Return the table entries of an operand."""
    is_full_shape = ctx.op[slot].dims == ctx.op[out(0)].dims  # the shape of a broadcast operand is unknown
    return ctx.look_up(table, x, ctx.shape(slot) if is_full_shape else None)


def table_of_256ths(scale: float, zero_point: int, dtype: str) -> Array:
    """Return the kernel's fixed-point number for each quantized value.

    The entries of negative values are at the end of the table. Source:
    MultiplyByQuantizedMultiplierSmallerThanOneExp, internal/common.h.
    """
    return rescale((quantized_values(dtype) - zero_point) * 256, float(np.float32(scale))).astype(np.int32)
