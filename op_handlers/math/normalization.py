"""Normalization over the last axis or over neighboring channels."""

from __future__ import annotations

import math

import numpy as np

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Attribute,
    AxisPrice,
    Context,
    FixedOutputRange,
    FusedActivation,
    Implicit,
    Operator,
    Quantization,
    Value,
    ValueLike,
    handler,
    out,
)
from op_handlers.kernels.operands import operand_shape

MIN_LOG_LENGTH = 10.5
"""Binary logarithm of the vector length, in quantization steps, above which the int8 kernel rounds twice.

The first rounding is to 1/2 of an output step. This fraction is halved each time the length doubles.

Source: GetInvSqrtQuantizedMultiplierExp, internal/common.h; integer_ops/l2normalization.h.
"""
AWAY_FROM_ZERO = 1 + 2.0**-12
"""Factor that moves ties away from zero before rounding."""


@handler(
    "L2_NORMALIZATION",
    max_version=2,
    layout=Attribute(unordered="k"),
    axes="... k -> ... k",
    axis_price=AxisPrice("ReduceL2", "k"),
    quantization=FixedOutputRange({"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}),
    activation=FusedActivation(ActivationKernel.UNFUSED),
    result_shape=operand_shape,
)
def l2_normalization(ctx: Context, x: Value) -> Value:
    """Emit division by the vector length along the last axis.

    Lengths below 1e-6 are replaced by 1e-6 (l2normalization.h).
    """
    ops, quantization = ctx.ops, ctx.op[0].quantization
    length = ops.Max(ops.ReduceL2(x, [ctx.axis(-1)]), 1e-6)
    if (
        ctx.op[0].dtype != "int8"
        or not isinstance(quantization, Quantization)
        or not (fractions := fraction_count(ctx.op))
    ):
        return ops.Div(x, length)
    fractions_per_step: ValueLike = np.float32(1)
    for k in range(fractions):
        is_longer = ops.GreaterOrEqual(length, np.float32(quantization.scale[0] * 2 ** (MIN_LOG_LENGTH + k)))
        fractions_per_step = ops.Where(is_longer, np.float32(2 << k), fractions_per_step)
    rounded = ops.Round(ops.Div(ops.Mul(x, ops.Mul(fractions_per_step, np.float32(128))), length))
    return ops.Mul(ops.Div(rounded, fractions_per_step), np.float32(AWAY_FROM_ZERO / 128))


def fraction_count(op: Operator) -> int:
    """Return the number of fractions that the first rounding may use.

    The number depends on the maximum length of a vector. It is 4 for a dynamic size.
    """
    depth = op[0].dims[-1] if op[0].dims else 1
    return 4 if depth is None else max(0, math.floor(math.log2(max(depth, 1) * 255**2) / 2 - MIN_LOG_LENGTH) + 1)


@handler(
    "LOCAL_RESPONSE_NORMALIZATION",
    max_version=1,
    layout=Implicit(onnx={0: "n c h w", out(0): "n c h w"}),
    axes="n h w c -> n h w c",
)
def local_response_normalization(ctx: Context, x: Value) -> Value:
    """Emit LRN over 2 * radius + 1 channels (optimized_ops.h).

    ONNX divides alpha by the number of channels.
    """
    options, ops, depth = ctx.options, ctx.ops, ctx.op[0].dims[-1]
    radius = options.radius if depth is None else min(options.radius, depth)
    size = 2 * radius + 1
    # ONNX Runtime's LRN requires positive alpha and beta, and its running sum loses precision for a radius of 0.
    if min(options.alpha, options.beta) <= 0 or not radius:
        # The mean must include the zero padding. Before 1.25, ONNX Runtime's AveragePool of opset 19 always excludes
        # end padding, and absorbs a preceding Pad into its own pads.
        padded = ops.Pad(x, [0, radius, 0, 0] * 2, np.float32(0))
        mean = ops.AveragePool(ops.Unsqueeze(ops.Mul(padded, padded), [1]), kernel_shape=[size, 1, 1])
        total = ops.Add(ops.Mul(ops.Squeeze(mean, [1]), options.alpha * size), options.bias)
        return ops.Mul(x, ops.Pow(total, -options.beta))
    return ctx.ops.LRN(x, size=size, alpha=options.alpha * size, beta=options.beta, bias=options.bias)
