"""SOFTMAX of int16 as the kernel computes it, with exponentials and reciprocals from tables.

The tables are coarse for small probabilities: with 100 classes, a confident largest one is 195 steps off the exact
function. (SoftmaxPrepare, activations.cc; SoftmaxInt16, reference/softmax.h)
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refusal, Value, spend
from op_handlers.kernels.fixed_point import rescale, saturate_int16
from op_handlers.kernels.lookup_tables import LEAST, MOST, interpolate, sample_function

LAST = 65535
STEP = np.float64(2) / LAST  # precision of the results of both tables
SPAN = STEP * MOST - STEP * LEAST
LARGEST = 32762  # table entry of exp(0)
LEAST_BITS = 14  # minimum number of bits below the leading bit of a row's sum


def softmax_int16(ctx: Context, x: Value, beta: float) -> Value:
    """Emit exponentials of the differences to the row's maximum, times the reciprocal of their sum.

    Integers are computed as float64, which represents them exactly: ONNX has no shift of signed integers.
    """
    ops, axis, shape = ctx.ops, ctx.axis(-1), ctx.shape(0)
    quantization = ctx.quantization(0)
    if quantization is None:
        raise Refusal("the int16 operand has no scale")
    table = exponential_table(float(np.float32(quantization.scale[0]) * np.float32(beta)))
    stored = ops.Cast(x, to="int32")
    below = ops.Sub(stored, ops.ReduceMax(stored, [axis]))
    terms = ops.Cast(ctx.look_up(table, below, shape), to="float64")
    shares = ops.Mul(terms, reciprocal_factors(ctx, ops.ReduceSum(terms, [axis]), axis))
    return ops.Cast(ops.Add(shares, np.float64(0.5)), to="int16")


def reciprocal_factors(ctx: Context, sums: Value, axis: int) -> Value:
    """Return the factor that turns a row's exponentials into probabilities.

    It is the reciprocal of the sum's fraction over the power of two below the sum. Broadcasting over several axes goes
    one number at a time (22 us for 2048 rows), so rows are flattened to one axis if possible.
    """
    ops, real = ctx.ops, np.float64
    kept = [1 if k == axis else size for k, size in enumerate(ctx.shape(0))]
    flat = len(kept) > 1 and kept.count(None) < 2
    rows, along = (ops.Reshape(sums, [-1]), (None,)) if flat else (sums, tuple(kept))
    upper = ops.Cast(ops.Mul(rows, real(2.0**-LEAST_BITS)), to="int32")
    count = ctx.op[0].dims[-1]
    scale = ctx.look_up(power_table(count or 65536), upper, along)
    place = ops.Cast(ops.Sub(ops.Mul(rows, scale), real(LAST + 0.5)), to="int32")
    reciprocal = ops.Mul(ops.Cast(ctx.look_up(reciprocal_table(), place, along), to="float64"), real(2.0**-16))
    factor = ops.Mul(reciprocal, scale)
    if count in (1, None):
        factor = ops.Min(factor, real(32767.25 / LARGEST))  # the only element of a row saturates
    return ops.Reshape(factor, [-1 if size is None else size for size in kept]) if flat else factor


def power_table(count: int) -> Array:
    """Return 65536 over the power of two below a sum of ``count`` exponentials, by the sum's upper bits."""
    spend(4 * count, 8, "a table of powers")
    _, bits = np.frexp(np.maximum(np.arange(2 * count), 1))
    return np.asarray(2.0 ** (17 - LEAST_BITS - bits))


def exponential_table(scale: float) -> Array:
    """Return exponentials of 0, -65535, ..., -1 quantization steps; all values below -10 give one result."""
    below = np.append(0, np.arange(-LAST, 0))
    table = sample_function(np.exp, np.float64(10) / LAST * -LAST, np.float64(0), SPAN)
    return interpolate(table, saturate_int16(rescale(below, scale / (10 / LAST)) + 32767)).astype(np.int16)


def reciprocal_table() -> Array:
    """Return the reciprocals of 1, 1 + 1/65536, ..., 2."""
    table = sample_function(lambda x: 1 / (1 + x), np.float64(0), np.float64(1) / LAST * LAST, SPAN)
    return interpolate(table, saturate_int16(np.arange(LAST + 2) - 32768)).astype(np.int16)
