"""SOFTMAX of int16, by tables of exponentials and reciprocals as in LiteRT.

The tables are coarse for small probabilities: with 100 classes, the error of a high probability is 195 quantization
steps. Source: SoftmaxPrepare (activations.cc) and SoftmaxInt16 (reference/softmax.h).
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refusal, Value, named, spend_budget
from op_handlers.kernels.fixed_point import rescale, saturate_int16
from op_handlers.kernels.lookup_tables import INT16_MAX, INT16_MIN, interpolate, sample_function

MAX_UINT16 = 65535
STEP = np.float64(2) / MAX_UINT16  # precision of the results of both tables
SPAN = STEP * INT16_MAX - STEP * INT16_MIN
EXP_OF_ZERO = 32762  # table entry of exp(0)
NOTE = (
    "LiteRT's int16 kernel uses lookup tables, where ONNX's Softmax uses floats. The table of exponentials holds the exponential "
    "of each difference to the row's maximum. The tables of powers and reciprocals give the reciprocal of the sum of exponentials. "
    "Integers are computed as float64, which is exact. With --quantization float the operator becomes one Softmax."
)
MIN_SUM_BITS = 14  # minimum number of bits below the leading bit of a row's sum


def softmax_int16(ctx: Context, x: Value, beta: float) -> Value:
    """Emit SOFTMAX from tables of exponentials and reciprocals.

    Exponentials of the differences to the row's maximum are multiplied by the reciprocal of their sum. Integers are
    represented exactly in float64, because ONNX has no shift of signed integers.
    """
    ops, axis, shape = ctx.ops, ctx.axis(-1), ctx.shape(0)
    quantization = ctx.quantization(0)
    if quantization is None:
        raise Refusal("the int16 operand has no scale")
    ctx.explain(NOTE)
    table = named(exponential_table(float(np.float32(quantization.scale[0]) * np.float32(beta))), "exponential_table")
    quantized = ops.Cast(x, to="int32")
    differences = ops.Sub(quantized, ops.ReduceMax(quantized, [axis]))
    terms = ops.Cast(ctx.look_up(table, differences, shape), to="float64")
    probabilities = ops.Mul(terms, reciprocal_factors(ctx, ops.ReduceSum(terms, [axis]), axis))
    return ops.Cast(ops.Add(probabilities, np.float64(0.5)), to="int16")


def reciprocal_factors(ctx: Context, sums: Value, axis: int) -> Value:
    """Return the factor that turns a row's exponentials into probabilities.

    The factor is the reciprocal of the sum, split into a fraction from 1 to 2 and a power of two. Broadcasting over
    several axes is slow (22 µs for 2048 rows), so rows are flattened to one axis if possible.
    """
    ops, float64 = ctx.ops, np.float64
    sum_shape = [1 if k == axis else size for k, size in enumerate(ctx.shape(0))]
    is_flattened = len(sum_shape) > 1 and sum_shape.count(None) < 2
    rows, shape = (ops.Reshape(sums, [-1]), (None,)) if is_flattened else (sums, tuple(sum_shape))
    upper_bits = ops.Cast(ops.Mul(rows, float64(2.0**-MIN_SUM_BITS)), to="int32")
    count = ctx.op[0].dims[-1]
    scale = ctx.look_up(named(power_table(count or 65536), "power_table"), upper_bits, shape)
    index = ops.Cast(ops.Sub(ops.Mul(rows, scale), float64(MAX_UINT16 + 0.5)), to="int32")
    reciprocals = ctx.look_up(named(reciprocal_table(), "reciprocal_table"), index, shape)
    reciprocal = ops.Mul(ops.Cast(reciprocals, to="float64"), float64(2.0**-16))
    factor = ops.Mul(reciprocal, scale)
    if count in (1, None):
        factor = ops.Min(factor, float64(32767.25 / EXP_OF_ZERO))  # the only element of a row saturates
    return ops.Reshape(factor, [-1 if size is None else size for size in sum_shape]) if is_flattened else factor


def power_table(count: int) -> Array:
    """Return factors for the sum of ``count`` exponentials, by the sum's upper bits.

    A factor is 65536 divided by the largest power of two up to the sum.
    """
    spend_budget(4 * count, 8, "a table of powers")
    _, bits = np.frexp(np.maximum(np.arange(2 * count), 1))
    return np.asarray(2.0 ** (17 - MIN_SUM_BITS - bits))


def exponential_table(scale: float) -> Array:
    """Return exponentials of 0, -65535, ..., -1 quantization steps.

    The result is the same for all values below -10.
    """
    differences = np.append(0, np.arange(-MAX_UINT16, 0))
    table = sample_function(np.exp, np.float64(10) / MAX_UINT16 * -MAX_UINT16, np.float64(0), SPAN)
    return interpolate(table, saturate_int16(rescale(differences, scale / (10 / MAX_UINT16)) + 32767)).astype(np.int16)


def reciprocal_table() -> Array:
    """Return the reciprocals of 1, 1 + 1/65536, ..., 2."""
    table = sample_function(lambda x: 1 / (1 + x), np.float64(0), np.float64(1) / MAX_UINT16 * MAX_UINT16, SPAN)
    return interpolate(table, saturate_int16(np.arange(MAX_UINT16 + 2) - 32768)).astype(np.int16)
