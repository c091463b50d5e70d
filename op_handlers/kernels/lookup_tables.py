"""Lookup tables of int16 functions, as in LiteRT's kernels.

Results are linear interpolations between 513 samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Instance, Quantization, out
from op_handlers.kernels.operands import require_quantization

RealFunction = Callable[[Array], Array]

SEGMENTS, SEGMENT_WIDTH = 512, 128
INT16_MIN, INT16_MAX = np.float32(-32768), np.float32(32767)


def quantized_values(dtype: str) -> Array:
    """Return all values of a dtype in lookup table order: 0, 1, ..., -2, -1."""
    limits = np.iinfo(dtype)
    return np.concatenate([np.arange(0, limits.max + 1), np.arange(limits.min, 0)])


INT16_VALUES = quantized_values("int16")


def interpolated_table(function: RealFunction) -> Callable[[Instance], Array]:
    """Return a function that computes the kernel's result of each int16 value.

    The kernel interpolates between samples; where a function is steep, its error is thousands of LSB. Infinite results
    become the minimum or maximum of the output. The output's zero point affects only these bounds; the kernel does not
    add it to results. Source: LUTPopulateInt16 (internal/common.h).
    """

    def table(at: Instance) -> Array:
        input_min, input_max = real_bounds(require_quantization(at.op[0]))
        output_min, output_max = real_bounds(require_quantization(at.op[out(0)]))

        def finite_function(x: Array) -> Array:
            return np.nan_to_num(function(x), neginf=float(output_min), posinf=float(output_max))

        samples = sample_function(finite_function, input_min, input_max, output_max - output_min)
        return interpolate(samples, INT16_VALUES).astype(np.int16)

    return table


def real_bounds(quantization: Quantization) -> tuple[np.floating[Any], np.floating[Any]]:
    """Return the real values of the minimum and maximum int16 value."""
    scale, zero_point = np.float32(quantization.scale[0]), np.float32(quantization.zero_point[0])
    return scale * (INT16_MIN - zero_point), scale * (INT16_MAX - zero_point)


def interpolate(table: Array, values: Array) -> Array:
    """Return linear interpolations between 513 samples.

    Source: LUTLookup (internal/common.h).
    """
    segment, offset = SEGMENTS // 2 + values // SEGMENT_WIDTH, values % SEGMENT_WIDTH
    slope = np.diff(table).astype(np.int16).astype(np.int32)
    return np.asarray(table[segment] + ((slope[segment] * offset + SEGMENT_WIDTH // 2) >> 7))


def sample_function(
    function: RealFunction, low: np.floating[Any], high: np.floating[Any], output_span: np.floating[Any]
) -> Array:
    """Return samples of a function at the ends of 512 segments.

    Half of the interpolation error in the middle of the segment is subtracted from each sample. ``low``, ``high``: the
    bounds; their dtype is the dtype of the computation. ``output_span``: maximum minus minimum of the output.
    """
    step = (high - low) / np.float32(SEGMENTS)
    per_unit = np.float32(65536) / output_span
    starts = low + np.arange(SEGMENTS, dtype=low.dtype) * step
    with np.errstate(all="ignore"):
        ends, middles = low + np.arange(1, SEGMENTS + 1, dtype=low.dtype) * step, starts + step / np.float32(2)
        start_values, middle_values, end_values = (function(x) * per_unit for x in (starts, middles, ends))
        chord_middle = round_half_away((end_values + round_half_away(start_values)) / np.float32(2))
        samples = round_half_away(start_values) - round_half_away(
            (chord_middle - round_half_away(middle_values)) / np.float32(2)
        )
        last_sample = round_half_away(function(np.asarray([high], low.dtype)) * per_unit)
    return np.asarray(np.clip(np.concatenate([samples, last_sample]), INT16_MIN, INT16_MAX)).astype(np.int32)


def round_half_away(values: Array) -> Array:
    """Return values rounded half away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + np.float32(0.5)), values))
