"""What several kernels do with integers, in ONNX and in NumPy. All of it is int64, whose sums and products wrap as theirs do."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value

POWERS = 1 << np.arange(33, dtype=np.int64)


def shifted_right(ctx: Context, x: Value, bits: int) -> Value:
    """A shift of a signed number rounds down: what is left over goes first."""
    step = 1 << bits
    return ctx.ops.Div(ctx.ops.Sub(x, ctx.ops.Mod(x, step)), step)


def at_most(ctx: Context, x: Value, bound: int) -> Value:
    """The lesser. ONNX Runtime 1.31's Min of int64 is wrong beyond 31 bits: it compares the lower halves as signed."""
    return ctx.ops.Where(ctx.ops.Less(x, np.int64(bound)), x, np.int64(bound))


def at_least(ctx: Context, x: Value, bound: int) -> Value:
    """The greater, for the same reason."""
    return ctx.ops.Where(ctx.ops.Greater(x, np.int64(bound)), x, np.int64(bound))


def bit_length(ctx: Context, x: Value) -> Value:
    """How many bits a number below 2^32 has (MostSignificantBit32, msb_32.cc); 0 has none."""
    ops = ctx.ops
    reached = ops.GreaterOrEqual(ops.Unsqueeze(x, [-1]), POWERS[:32])
    return ops.ReduceSum(ops.Cast(reached, to="int64"), [-1], keepdims=0)


def bit_lengths(x: Array) -> Array:
    """The same in NumPy."""
    return np.asarray((x.astype(np.int64)[..., None] >= POWERS[:32]).sum(-1))
