"""Lookup tables of int16 TANH and LOGISTIC as in LiteRT's kernels."""

from __future__ import annotations

from functools import cache
from math import log2

import numpy as np

from onnx_tflite_plugin.api import Array, FixedOutputRange, Instance, Lookup, Operator, Quantization, Refusal
from op_handlers.kernels.fixed_point import logistic, saturate_int16, tanh, wrap_int32
from op_handlers.kernels.lookup_tables import INT16_VALUES
from op_handlers.kernels.operands import require_quantization

INT16_OUTPUT = {"int16": (1 / 32768, 0)}
_MAX_ERROR_OF_ONE_STEP = 1.49
"""Largest error that still rounds to one step. At 1.5 steps, the result would depend on how float32 rounds ties."""
TABLE_UNIT = 12288  # table index units per 1.0


def sigmoid_quantization(at: Instance) -> FixedOutputRange | Lookup:
    """Return Lookup if float arithmetic is too inexact, else FixedOutputRange.

    Float arithmetic is too inexact if it differs from the int16 kernel by more than one quantization step. The difference
    is up to 6 steps at scale 2^-12, and 2 steps at 1 of 50 other scales. If all scales used tables, the file of an
    EfficientNet would be 2.7 times as large as now, and the model 18 % slower.
    """
    scale = input_scale(at.op)
    if scale is None or not is_float_too_inexact(scale):
        return FixedOutputRange(INT16_OUTPUT)
    return Lookup(lambda at: logistic_table(scale), outputs=INT16_OUTPUT)


def input_scale(op: Operator) -> float | None:
    """Return the scale of an int16 operand, else ``None``."""
    quantization = op[0].quantization
    if op[0].dtype != "int16" or not isinstance(quantization, Quantization):
        return None
    return float(np.float32(quantization.scale[0]))


def int16_tanh_table(at: Instance) -> Array:
    """Return the table of int16 TANH.

    At scales 2^-12 and 2^-11 the kernel computes in fixed point (optimized/optimized_ops.h), otherwise by linear
    interpolation of 2 sigmoid(2x) - 1. Float arithmetic differs from the kernel by up to 3 LSB, at some scales by 12.
    Source: TanhPrepare (activations.cc) and Tanh (reference/integer_ops/tanh.h).
    """
    scale = float(np.float32(require_quantization(at.op[0]).scale[0]))
    exponent = power_of_two_exponent(scale)
    if exponent in (-12, -11):
        return tanh(saturate_int16(INT16_VALUES << exponent + 12)).astype(np.int16)
    x = scale_to_table_units(scale)
    doubled_sigmoid = interpolate_sigmoid(np.abs(x))
    return (np.where(x < 0, 2**23 - 1 - doubled_sigmoid, doubled_sigmoid - 2**23) + 2**7 >> 8).astype(np.int16)


@cache
def is_float_too_inexact(scale: float) -> bool:
    """True if float arithmetic is too inexact for int16 LOGISTIC at this scale.

    The limit is a difference of one quantization step from the kernel.
    """
    with np.errstate(over="ignore"):
        exact = 2**15 / (1 + np.exp(-INT16_VALUES * scale))
    try:
        errors = logistic_table(scale) - exact
    except Refusal:
        return False
    return bool(np.abs(errors).max() >= _MAX_ERROR_OF_ONE_STEP)


def logistic_table(scale: float) -> Array:
    """Return the table of int16 LOGISTIC.

    Entries are computed in fixed point at scale 2^-12, and otherwise by linear interpolation. Source: Logistic
    (optimized/optimized_ops.h and reference/integer_ops/logistic.h).
    """
    if power_of_two_exponent(scale) == -12:
        return logistic(INT16_VALUES).astype(np.int16)
    x = scale_to_table_units(scale)
    result = interpolate_sigmoid(np.abs(x), bits=9, value_at_end=0x7FFF << 10)
    return (np.where(x < 0, 2**25 - 1 - result, result) + 2**9 >> 10).astype(np.int16)


def power_of_two_exponent(scale: float) -> int | None:
    """Return the exponent of a scale that is a power of two, else ``None``.

    The tolerance is that of the kernel (CheckedLog2).
    """
    if scale <= 0:
        return None
    exponent = round(log2(scale))
    return exponent if abs(log2(scale) - exponent) < 1e-3 else None


def scale_to_table_units(scale: float) -> Array:
    """Return all int16 values times ``scale`` in units of ``1 / TABLE_UNIT``.

    As in the kernel, the multiplier has 15 bits, and the result is rounded half up. Raises Refusal if the multiplier
    exceeds 32 bits.
    """
    multiplier, shift = scale * TABLE_UNIT, 0
    if multiplier >= 2**31:
        raise Refusal(f"the operand's scale of {scale:g} overflows the 32-bit multiplier of LiteRT's kernel")
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return wrap_int32(INT16_VALUES * int(multiplier) + (1 << shift >> 1)) >> shift


def interpolate_sigmoid(x: Array, bits: int = 8, value_at_end: int = 0xFFFF << 8) -> Array:
    """Return linear interpolations of the sigmoid table, with 2^bits steps per entry.

    ``value_at_end``: the result beyond the last entry.
    """
    table, step = sigmoid_table(), 1 << bits
    entry = np.minimum(x >> bits, 254)
    interpolated = (table[entry] << bits) + (x & step - 1) * (table[entry + 1] - table[entry])
    return np.where(x >> bits >= 255, value_at_end, interpolated)


def sigmoid_table() -> Array:
    """Return sigmoid(k / 24) in 16 bits.

    Half of the interpolation error at the midpoint is added to each entry. The last entry is 1. Source:
    sigmoid_table_uint16 (internal/common.h).
    """
    low, middle, high = (2**16 / (1 + np.exp(-(np.arange(256) + offset) / 24)) for offset in (0, 0.5, 1))
    table = np.floor(low + (middle - (low + high) / 2) / 2 + 0.5).astype(np.int64)
    return np.append(table[:-1], 0xFFFF)
