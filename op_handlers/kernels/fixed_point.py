"""Fixed-point arithmetic of LiteRT's kernels, for precomputed tables.

A 16-bit number with ``integer_bits`` bits before the binary point has ``15 - integer_bits`` bits after it. The number 1
is stored as ``2 ** (15 - integer_bits)``.
"""

from __future__ import annotations

from math import exp, floor, frexp, isfinite

import numpy as np

from onnx_tflite_plugin.api import Array, Refusal

INT16_MIN, INT16_MAX = -32768, 32767


def quantized_multiplier(factor: float) -> tuple[int, int]:
    """Return a factor as a 31-bit mantissa and a power of two.

    Raises Refusal for an infinite factor, for example if two scales differ too much. Source: QuantizeMultiplier
    (internal/quantization_util.cc).
    """
    if not isfinite(factor):
        raise Refusal(f"the rescaling factor is {factor}, which fixed point cannot express")
    fraction, exponent = frexp(factor)
    mantissa = floor(fraction * 2**31 + 0.5)
    return (2**30, exponent + 1) if mantissa == 2**31 else (mantissa, exponent)


def round_to_15_bits(mantissa: int) -> int:
    """Return a 31-bit mantissa rounded to 15 bits.

    Source: DownScaleInt32ToInt16Multiplier (internal/cppmath.h).
    """
    return min((mantissa + 2**15) >> 16, 2**15 - 1)


def rescale(numbers: Array, factor: float) -> Array:
    """Return numbers times a factor in fixed point, rounded twice.

    The numbers are multiplied by a 31-bit mantissa, and then by a power of two. Results wrap around at 32 bits. Source:
    MultiplyByQuantizedMultiplier (internal/common.cc).
    """
    mantissa, exponent = quantized_multiplier(factor)
    if exponent < -31:
        return np.zeros_like(numbers)
    wrapped = wrap_int32(numbers << max(exponent, 0) % 32)
    return divide_by_power_of_two(wrapped * mantissa + 2**30 >> 31, max(-exponent, 0))


def wrap_int32(numbers: Array) -> Array:
    """Return integers wrapped around to 32 bits."""
    return (numbers + 2**31) % 2**32 - 2**31


def divide_by_power_of_two(numbers: Array, bits: int) -> Array:
    """Return numbers divided by ``2 ** bits``, rounded half away from zero.

    Source: RoundingDivideByPOT (gemmlowp).
    """
    return np.asarray(np.sign(numbers) * (np.abs(numbers) + (1 << bits >> 1) >> bits))


def saturate_int16(numbers: Array) -> Array:
    """Return integers clipped to the range of int16."""
    return np.clip(numbers, INT16_MIN, INT16_MAX)


# --- 16-bit functions (fixedpoint.h of gemmlowp) ----------------------------------------------


def tanh(x: Array, integer_bits: int = 3) -> Array:
    """Return 2 / (1 + exp(-2 |x|)) - 1 with the sign of x."""
    result = saturate_int16(reciprocal_of_mean(exponential(-np.abs(x), integer_bits + 1)) - to_fixed_point(1, 2) << 2)
    return np.asarray(np.sign(x) * result)


def logistic(x: Array) -> Array:
    """Return the logistic function of numbers with 3 integer bits.

    It is 1 / (1 + exp(-|x|)) for x >= 0, and 1 minus this value for x < 0.
    """
    result = saturate_int16(reciprocal_of_mean(exponential(-np.abs(x), 3)) << 1)
    return np.where(x == 0, to_fixed_point(0.5), np.where(x > 0, result, INT16_MAX - result))


def exponential(x: Array, integer_bits: int) -> Array:
    """Return exp(x) for x <= 0.

    x is split into a multiple of 1/4 and a remainder. The exponential of the remainder is a polynomial. It is
    multiplied by a constant for each set bit of the multiple.
    """
    quarter = 1 << 13 - integer_bits
    remainder = (x & quarter - 1) - quarter
    result = exp_near_zero(remainder << integer_bits)
    for power in range(-2, min(integer_bits, 5)):
        has_bit = remainder - x & 1 << 15 - integer_bits + power
        result = np.where(has_bit != 0, multiply_fixed_point(result, to_fixed_point(exp(-(2.0**power)))), result)
    return np.where(x == 0, INT16_MAX, np.where(x < -32 << 15 - integer_bits, 0, result))


def exp_near_zero(x: Array) -> Array:
    """Return exp(x) for -1/4 <= x < 0, by four terms of the series around -1/8."""
    x = x + to_fixed_point(1 / 8)
    square = multiply_fixed_point(x, x)
    cube, fourth = multiply_fixed_point(square, x), multiply_fixed_point(square, square)
    higher_terms = divide_by_power_of_two(
        multiply_fixed_point(divide_by_power_of_two(fourth, 2) + cube, to_fixed_point(1 / 3)) + square, 1
    )
    exp_of_center = to_fixed_point(exp(-1 / 8))
    return saturate_int16(exp_of_center + multiply_fixed_point(x + higher_terms, exp_of_center))


def reciprocal_of_mean(x: Array) -> Array:
    """Return 1 / mean(1, x), which is 2 / (1 + x), with 2 integer bits.

    Three Newton steps start at 48/17 - 32/17 * mean.
    """
    mean = x + INT16_MAX + 1 >> 1
    result = to_fixed_point(48 / 17, 2) + multiply_fixed_point(mean, to_fixed_point(-32 / 17, 2))
    for _ in range(3):
        error = to_fixed_point(1, 2) - multiply_fixed_point(mean, result)
        result = result + saturate_int16(multiply_fixed_point(result, error) << 2)
    return result


def multiply_fixed_point(x: Array, y: Array | int) -> Array:
    """Return the rounded 16-bit fixed-point product."""
    return np.asarray(np.minimum(np.right_shift(x * y + (1 << 14), 15), INT16_MAX))


def to_fixed_point(number: float, integer_bits: int = 0) -> int:
    """Return a number in 16-bit fixed point, rounded half up."""
    return floor(number * (1 << 15 - integer_bits) + 0.5)
