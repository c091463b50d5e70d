"""HARD_SWISH of 8 bit integers, in the fixed point of 16 bits that its kernel computes with."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Instance, Refused, out
from op_handlers.kernels.fixed_point import divided, of_15_bits, quantized_multiplier, saturated
from op_handlers.kernels.operands import parameters
from op_handlers.kernels.tables import stored_integers

HALVES = 7
"""Bits that an input is shifted up by before anything is rounded."""


def hard_swish_table(at: Instance) -> Array:
    """The kernel's result of each stored integer (HardSwish, internal/reference/hard_swish.h; HardSwishPrepare, activations.cc).

    Raises Refused for scales that the kernel does not take.
    """
    x, y = parameters(at.op[0]), parameters(at.op[out(0)])
    if not (x.scale[0] and y.scale[0]):
        raise Refused("its scales are 0, by which the kernel divides")
    fine = np.float32(1 / 2**HALVES) * np.float32(x.scale[0])
    result, down = quantized_multiplier(float(fine / np.float32(y.scale[0])))
    gate, up = quantized_multiplier(float(fine / np.float32(3 / 32768)))
    if down > 0:
        raise Refused(
            f"its result has a scale of {y.scale[0]:g}, too small for one of {x.scale[0]:g}, which LiteRT refuses"
        )
    inputs = (stored_integers(at.op[0].dtype) - x.zero_point[0]) << HALVES
    gates = saturated(inputs << up - 1) if up > 0 else inputs
    gates = high_product(gates, of_15_bits(gate))
    gates = saturated(gates << 1) if up > 0 else divided_in_16_bits(gates, -up)
    product = np.fix(((gates + 2**15) >> 1) * high_product(inputs, of_15_bits(result)) / 2**15).astype(np.int64)
    limits = np.iinfo(at.op[out(0)].dtype)
    stored: Array = np.clip(divided_in_16_bits(product, -down) + y.zero_point[0], limits.min, limits.max).astype(
        limits.dtype
    )
    return stored


def divided_in_16_bits(numbers: Array, bits: int) -> Array:
    """RoundingDivideByPOT (gemmlowp), whose mask of so many bits is one of 16: by more than 15 of them even 0 goes up."""
    return divided(numbers, bits) if bits < 16 else np.where(numbers < 0, -1, 1)


def high_product(numbers: Array, factor: int) -> Array:
    """The upper half of twice the product, rounded (SaturatingRoundingDoublingHighMul)."""
    products = numbers.astype(np.int64) * factor
    return np.fix((products + np.where(products >= 0, 2**14, 1 - 2**14)) / 2**15).astype(np.int64)
