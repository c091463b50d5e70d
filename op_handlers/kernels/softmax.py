"""SOFTMAX of 16 bit integers as the kernel computes it, with exponentials and reciprocals from tables.

They are coarse for small shares: of 100 classes, a confident largest one is 195 steps away from the function.
(SoftmaxPrepare, activations.cc; SoftmaxInt16, reference/softmax.h)
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refused, Value, spend
from op_handlers.kernels.fixed_point import rescaled, saturated
from op_handlers.kernels.tables import LEAST, MOST, on_lines, samples

LAST = 65535
STEP = np.float64(2) / LAST  # of both tables' results
SPAN = STEP * MOST - STEP * LEAST
LARGEST = 32762  # of the exponentials: what the table has for 0
LEAST_BITS = 14  # behind the first bit of any row's sum


def softmax_int16(ctx: Context, x: Value, beta: float) -> Value:
    """What each number is below the largest of its row gives an exponential; the row's sum a factor for all of them.

    The integers are float64 numbers, which hold them all: ONNX shifts no signed ones.
    """
    ops, axis, shape = ctx.ops, ctx.axis(-1), ctx.shape(0)
    quantization = ctx.quantization(0)
    if quantization is None:
        raise Refused("its int16 operand has no scale")
    table = exponentials(float(np.float32(quantization.scale[0]) * np.float32(beta)))
    stored = ops.Cast(x, to="int32")
    below = ops.Sub(stored, ops.ReduceMax(stored, [axis]))
    terms = ops.Cast(ctx.looked_up(table, below, shape), to="float64")
    shares = ops.Mul(terms, factors(ctx, ops.ReduceSum(terms, [axis]), axis))
    return ops.Cast(ops.Add(shares, np.float64(0.5)), to="int16")


def factors(ctx: Context, sums: Value, axis: int) -> Value:
    """What turns a row's exponentials into shares: the reciprocal of its sum's fraction over the power of two below it.

    Numbers are broadcast one by one in several axes (22 us for 2048 rows), so rows are one axis where they can be.
    """
    ops, real = ctx.ops, np.float64
    kept = [1 if k == axis else size for k, size in enumerate(ctx.shape(0))]
    flat = len(kept) > 1 and kept.count(None) < 2
    rows, along = (ops.Reshape(sums, [-1]), (None,)) if flat else (sums, tuple(kept))
    upper = ops.Cast(ops.Mul(rows, real(2.0**-LEAST_BITS)), to="int32")
    count = ctx.op[0].dims[-1]
    scale = ctx.looked_up(powers(count or 65536), upper, along)
    place = ops.Cast(ops.Sub(ops.Mul(rows, scale), real(LAST + 0.5)), to="int32")
    reciprocal = ops.Mul(ops.Cast(ctx.looked_up(reciprocals(), place, along), to="float64"), real(2.0**-16))
    factor = ops.Mul(reciprocal, scale)
    if count in (1, None):
        factor = ops.Min(factor, real(32767.25 / LARGEST))  # alone in its row, a number saturates
    return ops.Reshape(factor, [-1 if size is None else size for size in kept]) if flat else factor


def powers(count: int) -> Array:
    """By the upper bits of a sum of so many exponentials, 65536 over the power of two below the sum."""
    spend(4 * count, 8, "a table of powers")
    _, bits = np.frexp(np.maximum(np.arange(2 * count), 1))
    return np.asarray(2.0 ** (17 - LEAST_BITS - bits))


def exponentials(scale: float) -> Array:
    """Of 0, -65535, ..., -1 steps below the largest; -10 and all below are one number."""
    below = np.append(0, np.arange(-LAST, 0))
    table = samples(np.exp, np.float64(10) / LAST * -LAST, np.float64(0), SPAN)
    return on_lines(table, saturated(rescaled(below, scale / (10 / LAST)) + 32767)).astype(np.int16)


def reciprocals() -> Array:
    """Of 1, 1 + 1/65536, ..., 2."""
    table = samples(lambda x: 1 / (1 + x), np.float64(0), np.float64(1) / LAST * LAST, SPAN)
    return on_lines(table, saturated(np.arange(LAST + 2) - 32768)).astype(np.int16)
