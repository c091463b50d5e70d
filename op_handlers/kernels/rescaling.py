"""Multiplication by 31-bit fixed-point multipliers at runtime.

``fixed_point`` multiplies at conversion.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Refusal, Value

AWAY_FROM_ZERO = 1 + 2.0**-40
"""Factor that moves ties away from zero before ``Round``, which rounds half to even.

It moves a number by less than 2^-31, so it does not change the rounding of numbers that are not ties.
"""


def emit_fixed_point_product(ctx: Context, numbers: Value, mantissa: int, exponent: int) -> Value:
    """Emit ``numbers * mantissa / 2**31 * 2**exponent``, rounded as in the kernel.

    A positive exponent is applied first, in int32 that wraps around. The product with the mantissa is rounded half up.
    A negative exponent is applied last, rounded half away from zero. The result is float64. Raises Refusal for an
    exponent over 30. Source: MultiplyByQuantizedMultiplier (internal/common.cc).
    """
    ops = ctx.ops
    if exponent > 30:
        raise Refusal(f"the rescaling factor is at least 2^{exponent}, which exceeds 32 bits")
    if exponent > 0:
        numbers = ops.Mul(numbers, np.int32(1 << exponent))
    product = ops.Mul(ops.Cast(numbers, to="float64"), np.float64(mantissa / 2**31))
    rounded = ops.Floor(ops.Add(product, np.float64(0.5)))
    return rounded if exponent >= 0 else ops.Round(ops.Mul(rounded, np.float64(2.0**exponent * AWAY_FROM_ZERO)))
