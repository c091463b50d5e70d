"""Softmax and its logarithm over the last axis."""

from __future__ import annotations

from math import isfinite

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    AxisPrice,
    Context,
    Decline,
    FixedOutputRange,
    Instance,
    Integer,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import operand_shape
from op_handlers.kernels.softmax import softmax_int16

MAX_PROBABILITY = np.float32(254.75 / 256)
"""Probability that rounds to the last of 256 steps. Clipping to it prevents an int8 kernel from wrapping around."""


def check_beta(at: Instance) -> Decline | None:
    """Return a Decline for a negative beta.

    Exponentials would exceed 1, and the kernels would overflow.
    """
    beta = at.op.options.beta
    is_unbounded = isfinite(beta) and beta < 0
    return Decline(f"beta is {beta:g}, so LiteRT's exponentials overflow") if is_unbounded else None


def output_quantization(at: Instance) -> FixedOutputRange | Integer:
    """Return the quantization behavior of outputs in the range 0 to 1.

    If operand and result are int16, LiteRT uses only nonnegative results (softmax.h).
    """
    if at.op[0].dtype == "int16":
        return Integer({"int16": (1 / 32768, 0)})
    return FixedOutputRange({"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 65536, -32768)})


def softmax_layout(at: Instance) -> Attribute | Terminate:
    """Return a layout that allows any position of the softmax axis.

    Below opset 13, ONNX's operator normalizes over all later axes too, so the file's layout is kept.
    """
    return Attribute(unordered="k") if at.opset >= 13 else Terminate()


@handler(
    "SOFTMAX",
    max_version=4,
    layout=softmax_layout,
    axes="... k -> ... k",
    axis_price=AxisPrice("Softmax", "k"),
    quantization=output_quantization,
    result_dtypes={"int8": ("int8", "int16")},
    accepts=check_beta,
    result_shape=operand_shape,
)
def softmax(ctx: Context, x: Value) -> Value:
    """Emit Softmax over the last axis; for int16, emulate the kernel's tables.

    The option beta scales the input (softmax.h).
    """
    beta = float(ctx.options.beta)
    if ctx.uses_integers:
        return softmax_int16(ctx, x, beta)
    if ctx.is_quantized and ctx.op[0].dims[-1] == 1:
        return ctx.ops.Add(ctx.ops.Mul(x, 0.0), 1.0)  # ONNX Runtime's quantized Softmax of one element is 0 before 1.32
    if ctx.is_quantized and ctx.op[0].dims[-1] is None:
        # The axis may have one element. The subtraction is in float32, which avoids the quantized Softmax.
        x = ctx.ops.Sub(x, ctx.ops.ReduceMax(x, [ctx.axis(-1)]))
    y = ctx.ops.Softmax(x if beta == 1.0 else ctx.ops.Mul(x, ctx.scalar(beta)), axis=ctx.axis(-1))
    if ctx.is_quantized and ctx.dtype(out(0)) == "int8" and "Softmax" in ctx.target.wrapping_int8_operators:
        return ctx.ops.Min(y, MAX_PROBABILITY)
    return y


@handler(
    "LOG_SOFTMAX",
    max_version=2,
    layout=softmax_layout,
    axes="... k -> ... k",
    axis_price=AxisPrice("LogSoftmax", "k"),
    quantization=FixedOutputRange({"int8": (1 / 16, 127), "uint8": (1 / 16, 255)}),
    result_shape=operand_shape,
)
def log_softmax(ctx: Context, x: Value) -> Value:
    """Emit LogSoftmax over the last axis."""
    return ctx.ops.LogSoftmax(x, axis=ctx.axis(-1))
