"""TANH and LOGISTIC of 16 bit integers as the builtin kernels compute them: an entry for each stored number."""

from __future__ import annotations

from math import log2

import numpy as np

from onnx_tflite_plugin.api import Array, FixedOutputRange, Instance, Lookup, Operator, Quantization, Refused
from op_handlers.kernels.fixed_point import logistic, saturated, tanh, wrapped
from op_handlers.kernels.operands import parameters
from op_handlers.kernels.tables import STORED

INT16 = {"int16": (1 / 32768, 0)}
UNIT = 12288  # of a number that sigmoids are looked up for


def sigmoid_by_table(at: Instance) -> FixedOutputRange | Lookup:
    """A table where float arithmetic is up to 6 quantization steps away from the kernel's int16; elsewhere they are within one.

    Tables for all would make an EfficientNet's file 2.7 times as large, and it 18 % slower.
    """
    scale = input_scale(at.op)
    fixed = scale is not None and power_of_two(scale) == -12
    return Lookup(lambda at: logistic_table(), outputs=INT16) if fixed else FixedOutputRange(INT16)


def input_scale(op: Operator) -> float | None:
    """Of int16 operands."""
    quantization = op[0].quantization
    if op[0].dtype != "int16" or not isinstance(quantization, Quantization):
        return None
    return float(np.float32(quantization.scale[0]))


def tanh_table(at: Instance) -> Array:
    """Float is up to 3 LSB away from the kernel's int16, from some scales 12, so it needs a table.

    In fixed point from scales 2^-12 and 2^-11 (optimized/optimized_ops.h), else 2 sigmoid(2x) - 1 on straight lines.

    (TanhPrepare, activations.cc; Tanh, reference/integer_ops/tanh.h)
    """
    scale = float(np.float32(parameters(at.op[0]).scale[0]))
    exponent = power_of_two(scale)
    if exponent in (-12, -11):
        return tanh(saturated(STORED << exponent + 12)).astype(np.int16)
    x = in_units(scale)
    double = on_lines_between_sigmoids(np.abs(x))
    return (np.where(x < 0, 2**23 - 1 - double, double - 2**23) + 2**7 >> 8).astype(np.int16)


def logistic_table() -> Array:
    """In fixed point, which only scale 2^-12 has (Logistic, optimized/optimized_ops.h)."""
    return logistic(STORED).astype(np.int16)


def power_of_two(scale: float) -> int | None:
    """The exponent, where the scale is so near a power that the kernel takes it for one (CheckedLog2)."""
    if scale <= 0:
        return None
    exponent = round(log2(scale))
    return exponent if abs(log2(scale) - exponent) < 1e-3 else None


def in_units(scale: float) -> Array:
    """The stored numbers times a multiplier of 15 bits, halves upwards. Raises Refused where 32 bits do not hold it."""
    multiplier, shift = scale * UNIT, 0
    if multiplier >= 2**31:
        raise Refused(f"the scale of its operand is {scale:g}, of which LiteRT's kernel makes a multiplier of 32 bits")
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return wrapped(STORED * int(multiplier) + (1 << shift >> 1)) >> shift


def on_lines_between_sigmoids(x: Array) -> Array:
    """256 steps from one number of the table to the next, and 1 behind the last."""
    table = sigmoids()
    at = np.minimum(x >> 8, 254)
    line = (table[at] << 8) + (x & 255) * (table[at + 1] - table[at])
    return np.where(x >> 8 >= 255, 0xFFFF << 8, line)


def sigmoids() -> Array:
    """sigmoid(k / 24) of 16 bits, raised by half of what the line to the next is too low in the middle; 1 at the end.

    (sigmoid_table_uint16, internal/common.h)
    """
    low, middle, high = (2**16 / (1 + np.exp(-(np.arange(256) + apart) / 24)) for apart in (0, 0.5, 1))
    table = np.floor(low + (middle - (low + high) / 2) / 2 + 0.5).astype(np.int64)
    return np.append(table[:-1], 0xFFFF)
