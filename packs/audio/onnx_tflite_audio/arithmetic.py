"""Integer arithmetic of several kernels, in ONNX and NumPy.

All numbers are int64, which wraps around as in the kernels.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value

POWERS = 1 << np.arange(33, dtype=np.int64)


def emit_shift_right(ctx: Context, x: Value, bits: int) -> Value:
    """Emit an arithmetic right shift, which rounds down.

    Div truncates, so the remainder is subtracted first.
    """
    step = 1 << bits
    return ctx.ops.Div(ctx.ops.Sub(x, ctx.ops.Mod(x, step)), step)


def emit_min(ctx: Context, x: Value, bound: int) -> Value:
    """Emit a minimum of int64 by a comparison.

    ONNX Runtime 1.31's Min of int64 compares the lower 32 bits as signed numbers, which is wrong beyond 31 bits.
    """
    return ctx.ops.Where(ctx.ops.Less(x, np.int64(bound)), x, np.int64(bound))


def emit_max(ctx: Context, x: Value, bound: int) -> Value:
    """Emit a maximum by a comparison, for the same reason as :func:`emit_min`."""
    return ctx.ops.Where(ctx.ops.Greater(x, np.int64(bound)), x, np.int64(bound))


def emit_bit_length(ctx: Context, x: Value) -> Value:
    """Emit the bit length of a number below 2^32; 0 for 0.

    Source: MostSignificantBit32, msb_32.cc.
    """
    ops = ctx.ops
    powers_reached = ops.GreaterOrEqual(ops.Unsqueeze(x, [-1]), POWERS[:32])
    return ops.ReduceSum(ops.Cast(powers_reached, to="int64"), [-1], keepdims=0)


def bit_lengths(x: Array) -> Array:
    """Return the bit length of each number."""
    return np.asarray((x.astype(np.int64)[..., None] >= POWERS[:32]).sum(-1))
