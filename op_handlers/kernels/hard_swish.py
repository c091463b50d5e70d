"""Lookup tables of 8-bit HARD_SWISH in the kernel's 16-bit fixed-point arithmetic."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Instance, Refusal, out
from op_handlers.kernels.fixed_point import (
    divide_by_power_of_two,
    quantized_multiplier,
    round_to_15_bits,
    saturate_int16,
)
from op_handlers.kernels.lookup_tables import quantized_values
from op_handlers.kernels.operands import require_quantization

INPUT_SHIFT = 7
"""Bits by which inputs are shifted left before rounding."""


def hard_swish_table(at: Instance) -> Array:
    """Return the output of each quantized input value.

    Raises Refusal for scales that the kernel refuses. Source: HardSwish (internal/reference/hard_swish.h) and
    HardSwishPrepare (activations.cc).
    """
    x, y = require_quantization(at.op[0]), require_quantization(at.op[out(0)])
    if not (x.scale[0] and y.scale[0]):
        raise Refusal("a scale is 0, by which the kernel divides")
    shifted_scale = np.float32(1 / 2**INPUT_SHIFT) * np.float32(x.scale[0])
    result_mantissa, result_exponent = quantized_multiplier(float(shifted_scale / np.float32(y.scale[0])))
    gate_mantissa, gate_exponent = quantized_multiplier(float(shifted_scale / np.float32(3 / 32768)))
    if result_exponent > 0:
        raise Refusal(
            f"the scale of the result, {y.scale[0]:g}, is too small for the scale of the operand, {x.scale[0]:g}; LiteRT refuses this"
        )
    inputs = (quantized_values(at.op[0].dtype) - x.zero_point[0]) << INPUT_SHIFT
    gates = saturate_int16(inputs << gate_exponent - 1) if gate_exponent > 0 else inputs
    gates = high_product(gates, round_to_15_bits(gate_mantissa))
    gates = saturate_int16(gates << 1) if gate_exponent > 0 else divide_by_power_of_two_int16(gates, -gate_exponent)
    product = np.fix(((gates + 2**15) >> 1) * high_product(inputs, round_to_15_bits(result_mantissa)) / 2**15).astype(
        np.int64
    )
    limits = np.iinfo(at.op[out(0)].dtype)
    table: Array = np.clip(
        divide_by_power_of_two_int16(product, -result_exponent) + y.zero_point[0], limits.min, limits.max
    ).astype(limits.dtype)
    return table


def divide_by_power_of_two_int16(numbers: Array, bits: int) -> Array:
    """Return numbers divided by ``2 ** bits``, as 16-bit RoundingDivideByPOT does.

    For more than 15 bits, the function of gemmlowp returns -1 for negative numbers and 1 for all others.
    """
    return divide_by_power_of_two(numbers, bits) if bits < 16 else np.where(numbers < 0, -1, 1)


def high_product(numbers: Array, factor: int) -> Array:
    """Return the rounded upper half of twice the product.

    Source: SaturatingRoundingDoublingHighMul (gemmlowp).
    """
    products = numbers.astype(np.int64) * factor
    return np.fix((products + np.where(products >= 0, 2**14, 1 - 2**14)) / 2**15).astype(np.int64)
