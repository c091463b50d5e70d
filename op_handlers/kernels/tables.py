"""Functions of 16 bit integers as the kernels compute them: straight lines between 513 numbers of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Instance, Quantization, out
from op_handlers.kernels.operands import parameters

RealFunction = Callable[[Array], Array]

STEPS, WIDTH = 512, 128
LEAST, MOST = np.float32(-32768), np.float32(32767)


def stored_integers(dtype: str) -> Array:
    """What tables of a dtype have an entry for: each stored number, the negative ones counted from the end."""
    limits = np.iinfo(dtype)
    return np.concatenate([np.arange(0, limits.max + 1), np.arange(limits.min, 0)])


STORED = stored_integers("int16")


def on_lines_of(function: RealFunction) -> Callable[[Instance], Array]:
    """The kernel's result of each stored number: where a function is steep, lines are thousands of LSB away from it.

    Infinite results are the output's least and largest number. Of the output's zero point only the bounds know, to which
    the kernel's numbers are not moved (LUTPopulateInt16, internal/common.h).
    """

    def table(at: Instance) -> Array:
        low, high = bounds(parameters(at.op[0]))
        least, largest = bounds(parameters(at.op[out(0)]))

        def bounded(x: Array) -> Array:
            return np.nan_to_num(function(x), neginf=float(least), posinf=float(largest))

        return on_lines(samples(bounded, low, high, largest - least), STORED).astype(np.int16)

    return table


def bounds(quantization: Quantization) -> tuple[np.floating[Any], np.floating[Any]]:
    """What the least and the largest stored number stand for."""
    scale, point = np.float32(quantization.scale[0]), np.float32(quantization.zero_point[0])
    return scale * (LEAST - point), scale * (MOST - point)


def on_lines(table: Array, numbers: Array) -> Array:
    """What the kernel reads off between 513 numbers (LUTLookup, internal/common.h)."""
    at, offset = STEPS // 2 + numbers // WIDTH, numbers % WIDTH
    slope = np.diff(table).astype(np.int16).astype(np.int32)
    return np.asarray(table[at] + ((slope[at] * offset + WIDTH // 2) >> 7))


def samples(function: RealFunction, low: np.floating[Any], high: np.floating[Any], made: np.floating[Any]) -> Array:
    """The function at the ends of 512 pieces, each lowered by half of what its line is too high in the middle.

    In the precision of the bounds, as the kernels have it. ``made``: the span of what the result may be.
    """
    step = (high - low) / np.float32(STEPS)
    per_unit = np.float32(65536) / made
    starts = low + np.arange(STEPS, dtype=low.dtype) * step
    with np.errstate(all="ignore"):
        ends, middles = low + np.arange(1, STEPS + 1, dtype=low.dtype) * step, starts + step / np.float32(2)
        first, middle, last = (function(place) * per_unit for place in (starts, middles, ends))
        line = rounded((last + rounded(first)) / np.float32(2))
        lowered = rounded(first) - rounded((line - rounded(middle)) / np.float32(2))
        closing = rounded(function(np.asarray([high], low.dtype)) * per_unit)
    return np.asarray(np.clip(np.concatenate([lowered, closing]), LEAST, MOST)).astype(np.int32)


def rounded(values: Array) -> Array:
    """Halves away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(values) + np.float32(0.5)), values))
