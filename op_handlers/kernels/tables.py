"""Functions of 16 bit integers as the kernels compute them: straight lines between 513 numbers of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Dequantized, Instance, Integer, Refused, out

RealFunction = Callable[[Array], Array]

STEPS, WIDTH = 512, 128
LEAST, MOST = np.float32(-32768), np.float32(32767)
STORED = np.concatenate([np.arange(0, 32768), np.arange(-32768, 0)])
"""What tables have an entry for: each stored number, the negative ones counted from the end."""


def words_by_table(at: Instance) -> Dequantized | Integer:
    """Where the function is steep the lines are thousands of steps away from it, so int16 needs the table itself."""
    return Integer() if at.op[0].dtype == "int16" else Dequantized()


def looked_up(ctx: Context, x: Any, function: RealFunction) -> Any:
    """The result of each of the 65536 stored numbers is looked up."""
    before, after = ctx.quantization(0), ctx.quantization(out(0))
    if before is None or after is None:
        raise Refused("its int16 operands have no scale")
    return entries(ctx, interpolated(function, before.scale[0], after.scale[0]), x, ctx.shape(0))


def entries(ctx: Context, table: Array, x: Any, shape: Sequence[int | None] | None) -> Any:
    """The table's entry for each stored number; ``shape`` is None where it is not known."""
    return picked(ctx, table, ctx.ops.Cast(x, to="int32"), shape)


def picked(ctx: Context, table: Array, indices: Any, shape: Sequence[int | None] | None) -> Any:
    """Entries by int32 indices, which may be negative.

    GatherElements takes 45 us for 50,000 numbers where Gather takes 590 (the kernel 65), but wants a flat operand.
    """
    if shape is None or list(shape).count(None) > 1 or 0 in shape:
        return ctx.ops.Gather(table, indices)
    if len(shape) == 1:
        return ctx.ops.GatherElements(table, indices, axis=0)
    found = ctx.ops.GatherElements(table, ctx.ops.Reshape(indices, [-1]), axis=0)
    return ctx.ops.Reshape(found, [-1 if size is None else size for size in shape])


def interpolated(function: RealFunction, scale: float, made_scale: float) -> Array:
    """The kernel's result of 0, ..., 32767, -32768, ..., -1 (LUTPopulateInt16, internal/common.h)."""
    known = np.float32(scale)
    return on_lines(samples(function, known * LEAST, known * MOST, np.float32(made_scale)), STORED).astype(np.int16)


def on_lines(table: Array, numbers: Array) -> Array:
    """What the kernel reads off between 513 numbers (LUTLookup, internal/common.h)."""
    at, offset = STEPS // 2 + numbers // WIDTH, numbers % WIDTH
    slope = np.diff(table).astype(np.int16).astype(np.int32)
    return np.asarray(table[at] + ((slope[at] * offset + WIDTH // 2) >> 7))


def samples(
    function: RealFunction, low: np.floating[Any], high: np.floating[Any], made_scale: np.floating[Any]
) -> Array:
    """The function at the ends of 512 pieces, each lowered by half of what its line is too high in the middle.

    In the precision of the bounds, as the kernels have it.
    """
    step = (high - low) / np.float32(STEPS)
    per_unit = np.float32(65536) / (made_scale * MOST - made_scale * LEAST)
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
