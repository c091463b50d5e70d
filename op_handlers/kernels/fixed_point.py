"""Integers that stand for fractions, as the kernels compute with them; for tables that are made at conversion time.

A 16 bit number with ``whole`` bits before its point has 15 - ``whole`` behind it, and 2 ** (15 - ``whole``) is 1.
"""

from __future__ import annotations

from math import exp, floor, frexp, isfinite

import numpy as np

from onnx_tflite_plugin.api import Array, Refused

LEAST, MOST = -32768, 32767


def quantized_multiplier(factor: float) -> tuple[int, int]:
    """A mantissa of 31 bits, and the power of two in front of it (QuantizeMultiplier, internal/quantization_util.cc).

    Raises Refused for what is infinite, as the quotient of scales far apart is.
    """
    if not isfinite(factor):
        raise Refused(f"its numbers are multiplied by {factor}, for which no integer stands")
    fraction, exponent = frexp(factor)
    mantissa = floor(fraction * 2**31 + 0.5)
    return (2**30, exponent + 1) if mantissa == 2**31 else (mantissa, exponent)


def of_15_bits(mantissa: int) -> int:
    """A mantissa of 31 bits rounded (DownScaleInt32ToInt16Multiplier, internal/cppmath.h)."""
    return min((mantissa + 2**15) >> 16, 2**15 - 1)


def rescaled(numbers: Array, factor: float) -> Array:
    """The products with a 31 bit mantissa, rounded, and again by the exponent's shift; 32 bits that wrap around.

    (MultiplyByQuantizedMultiplier, internal/common.cc)
    """
    mantissa, exponent = quantized_multiplier(factor)
    if exponent < -31:
        return np.zeros_like(numbers)
    shifted = wrapped(numbers << max(exponent, 0) % 32)
    return divided(shifted * mantissa + 2**30 >> 31, max(-exponent, 0))


def wrapped(numbers: Array) -> Array:
    return (numbers + 2**31) % 2**32 - 2**31


def divided(numbers: Array, bits: int) -> Array:
    """By a power of two, halves away from zero (RoundingDivideByPOT)."""
    return np.asarray(np.sign(numbers) * (np.abs(numbers) + (1 << bits >> 1) >> bits))


def saturated(numbers: Array) -> Array:
    return np.clip(numbers, LEAST, MOST)


# --- 16 bit functions (fixedpoint.h of gemmlowp) ----------------------------------------------


def tanh(x: Array, whole: int = 3) -> Array:
    """2 / (1 + exp(-2 |x|)) - 1, with the sign of x."""
    result = saturated(reciprocal_of_mean(exponential(-np.abs(x), whole + 1)) - fixed(1, 2) << 2)
    return np.asarray(np.sign(x) * result)


def logistic(x: Array) -> Array:
    """Of numbers with 3 bits before the point: 1 / (1 + exp(-|x|)), below zero 1 less that."""
    result = saturated(reciprocal_of_mean(exponential(-np.abs(x), 3)) << 1)
    return np.where(x == 0, fixed(0.5), np.where(x > 0, result, MOST - result))


def exponential(x: Array, whole: int) -> Array:
    """Of numbers up to 0: of what is left over quarters a polynomial, times a constant for each bit of the quarters."""
    quarter = 1 << 13 - whole
    over = (x & quarter - 1) - quarter
    result = on_the_last_quarter(over << whole)
    for power in range(-2, min(whole, 5)):
        chosen = over - x & 1 << 15 - whole + power
        result = np.where(chosen != 0, times(result, fixed(exp(-(2.0**power)))), result)
    return np.where(x == 0, MOST, np.where(x < -32 << 15 - whole, 0, result))


def on_the_last_quarter(x: Array) -> Array:
    """exp from -1/4 to 0: four terms of the series around -1/8."""
    x = x + fixed(1 / 8)
    square = times(x, x)
    cube, fourth = times(square, x), times(square, square)
    further = divided(times(divided(fourth, 2) + cube, fixed(1 / 3)) + square, 1)
    middle = fixed(exp(-1 / 8))
    return saturated(middle + times(x + further, middle))


def reciprocal_of_mean(x: Array) -> Array:
    """2 / (1 + x) with 2 bits before the point: three steps of Newton's from 48/17 - 32/17 (1 + x) / 2."""
    mean = x + MOST + 1 >> 1
    result = fixed(48 / 17, 2) + times(mean, fixed(-32 / 17, 2))
    for _ in range(3):
        missing = fixed(1, 2) - times(mean, result)
        result = result + saturated(times(result, missing) << 2)
    return result


def times(x: Array, y: Array | int) -> Array:
    return np.asarray(np.minimum(np.right_shift(x * y + (1 << 14), 15), MOST))


def fixed(number: float, whole: int = 0) -> int:
    return floor(number * (1 << 15 - whole) + 0.5)
