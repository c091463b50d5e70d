"""Integers times a multiplier of 31 bits, computed by the model as the kernels do; ``fixed_point`` does it at conversion time."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Refused, Value

AWAY_FROM_ZERO = 1 + 2.0**-40
"""Puts halves, which Round takes to the even number, beyond the half; by less than 2^-31, the least that others are from it."""


def multiplied(ctx: Context, numbers: Value, mantissa: int, exponent: int) -> Value:
    """int32 times a mantissa of 31 bits, halves up, and divided by a power of two, halves away from zero; float64.

    A power of two above 1 comes first, in 32 bits that wrap around. Raises Refused for one that 32 bits do not hold.
    (MultiplyByQuantizedMultiplier, internal/common.cc)
    """
    ops = ctx.ops
    if exponent > 30:
        raise Refused(f"its numbers are multiplied by 2^{exponent} and more, which 32 bits do not hold")
    if exponent > 0:
        numbers = ops.Mul(numbers, np.int32(1 << exponent))
    product = ops.Mul(ops.Cast(numbers, to="float64"), np.float64(mantissa / 2**31))
    rounded = ops.Floor(ops.Add(product, np.float64(0.5)))
    return rounded if exponent >= 0 else ops.Round(ops.Mul(rounded, np.float64(2.0**exponent * AWAY_FROM_ZERO)))
