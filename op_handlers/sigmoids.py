"""TANH and LOGISTIC of 16 bit integers as the builtin kernels compute them: an entry for each stored number."""

from __future__ import annotations

from math import log2

import numpy as np

from onnx_tflite_plugin.api import Array, Context, FixedOutputRange, Integer, Operator, Refused
from op_handlers.fixed_point import logistic, saturated, tanh, wrapped
from op_handlers.tables import STORED

WORDS = {"int16": (1 / 32768, 0)}
UNIT = 12288  # of a number that sigmoids are looked up for


def words_by_sigmoids(op: Operator, _target: object) -> FixedOutputRange | Integer:
    """The kernels' int16 is up to 12 steps away from the function, so it needs their table."""
    return Integer(WORDS) if op[0].dtype == "int16" else FixedOutputRange({})


def input_scale(ctx: Context) -> float:
    known = ctx.quantization(0)
    if known is None:
        raise Refused("its int16 operand has no scale")
    return float(np.float32(known.scale[0]))


def tanh_table(scale: float) -> Array:
    """In fixed point from scales 2^-12 and 2^-11 (optimized/optimized_ops.h), else 2 sigmoid(2x) - 1.

    (TanhPrepare, activations.cc; Tanh, reference/integer_ops/tanh.h)
    """
    exponent = power_of_two(scale)
    if exponent in (-12, -11):
        return tanh(saturated(STORED << exponent + 12)).astype(np.int16)
    x = in_units(scale)
    line = between_sigmoids(np.abs(x), 8, most=(2**16 - 1) << 8)
    return (np.where(x < 0, 2**23 - 1 - line, line - 2**23) + 2**7 >> 8).astype(np.int16)


def logistic_table(scale: float) -> Array:
    """In fixed point from scale 2^-12 (optimized/optimized_ops.h), else a sigmoid, below zero what it lacks to 1.

    (SigmoidPrepare, activations.cc; Logistic, reference/integer_ops/logistic.h)
    """
    if power_of_two(scale) == -12:
        return logistic(STORED).astype(np.int16)
    x = in_units(scale)
    line = between_sigmoids(np.abs(x), 9, most=(2**16 - 2) << 9)
    return (np.where(x < 0, 2**25 - 1 - line, line) + 2**9 >> 10).astype(np.int16)


def power_of_two(scale: float) -> int | None:
    """The exponent, where the scale is so near a power that the kernel takes it for one (CheckedLog2)."""
    exponent = round(log2(scale))
    return exponent if abs(log2(scale) - exponent) < 1e-3 else None


def in_units(scale: float) -> Array:
    """The stored numbers times a multiplier of 15 bits, halves upwards."""
    multiplier, shift = scale * UNIT, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return wrapped(STORED * int(multiplier) + (1 << shift >> 1)) >> shift


def between_sigmoids(x: Array, bits: int, *, most: int) -> Array:
    """Straight lines between 256 sigmoids, ``bits`` further bits apart; ``most`` behind the last."""
    table = sigmoids()
    at = np.minimum(x >> bits, 254)
    line = (table[at] << bits) + (x & (1 << bits) - 1) * (table[at + 1] - table[at])
    return np.where(x >> bits >= 255, most, line)


def sigmoids() -> Array:
    """sigmoid(k / 24) of 16 bits, raised by half of what the line to the next is too low in the middle; 1 at the end.

    (sigmoid_table_uint16, internal/common.h)
    """
    low, middle, high = (2**16 / (1 + np.exp(-(np.arange(256) + apart) / 24)) for apart in (0, 0.5, 1))
    table = np.floor(low + (middle - (low + high) / 2) / 2 + 0.5).astype(np.int64)
    return np.append(table[:-1], 2**16 - 1)
