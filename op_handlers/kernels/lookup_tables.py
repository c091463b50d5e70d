"""Lookup tables of int16 functions as the kernels compute them: linear interpolation between 513 samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Instance, Quantization, out
from op_handlers.kernels.operands import require_quantization

RealFunction = Callable[[Array], Array]

STEPS, WIDTH = 512, 128
LEAST, MOST = np.float32(-32768), np.float32(32767)


def quantized_values(dtype: str) -> Array:
    """Return all values of a dtype in the order of a lookup table: from 0 to the maximum, then the negative ones."""
    limits = np.iinfo(dtype)
    return np.concatenate([np.arange(0, limits.max + 1), np.arange(limits.min, 0)])


INT16_VALUES = quantized_values("int16")


def interpolated_table(function: RealFunction) -> Callable[[Instance], Array]:
    """Return a function that computes the kernel's result of each int16 value.

    Where a function is steep, interpolation is thousands of LSB off the exact value. Infinite results become the
    output's minimum or maximum. The output's zero point enters these bounds only; the kernel does not add it to
    results (LUTPopulateInt16, internal/common.h).
    """

    def table(at: Instance) -> Array:
        low, high = real_bounds(require_quantization(at.op[0]))
        least, largest = real_bounds(require_quantization(at.op[out(0)]))

        def clamp(x: Array) -> Array:
            return np.nan_to_num(function(x), neginf=float(least), posinf=float(largest))

        return interpolate(sample_function(clamp, low, high, largest - least), INT16_VALUES).astype(np.int16)

    return table


def real_bounds(quantization: Quantization) -> tuple[np.floating[Any], np.floating[Any]]:
    """Return the real values of the minimum and maximum int16 value."""
    scale, point = np.float32(quantization.scale[0]), np.float32(quantization.zero_point[0])
    return scale * (LEAST - point), scale * (MOST - point)


def interpolate(table: Array, numbers: Array) -> Array:
    """Interpolate linearly between 513 samples, as the kernel does (LUTLookup, internal/common.h)."""
    at, offset = STEPS // 2 + numbers // WIDTH, numbers % WIDTH
    slope = np.diff(table).astype(np.int16).astype(np.int32)
    return np.asarray(table[at] + ((slope[at] * offset + WIDTH // 2) >> 7))


def sample_function(
    function: RealFunction, low: np.floating[Any], high: np.floating[Any], output_span: np.floating[Any]
) -> Array:
    """Return a function's samples at the ends of 512 segments, corrected by half the interpolation error in the middle.

    Computed in the dtype of the bounds, as in the kernels. ``output_span``: difference of the output's maximum and
    minimum.
    """
    step = (high - low) / np.float32(STEPS)
    per_unit = np.float32(65536) / output_span
    starts = low + np.arange(STEPS, dtype=low.dtype) * step
    with np.errstate(all="ignore"):
        ends, middles = low + np.arange(1, STEPS + 1, dtype=low.dtype) * step, starts + step / np.float32(2)
        first, middle, last = (function(place) * per_unit for place in (starts, middles, ends))
        line = round_half_away((last + round_half_away(first)) / np.float32(2))
        lowered = round_half_away(first) - round_half_away((line - round_half_away(middle)) / np.float32(2))
        closing = round_half_away(function(np.asarray([high], low.dtype)) * per_unit)
    return np.asarray(np.clip(np.concatenate([lowered, closing]), LEAST, MOST)).astype(np.int32)


def round_half_away(values: Array) -> Array:
    """Round half away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + np.float32(0.5)), values))
