"""SVDF: a dense layer whose outputs are remembered, and weighted by their age (kernels/internal/reference/svdf.h).

Sizes: B batches, I inputs, F filters, M runs that are remembered, U units of F / U filters each.

Integers with a state of 8 bits are computed as TensorFlow Lite for Microcontrollers does (micro/kernels/svdf_common.cc); LiteRT's
kernel takes the state for 16 bits and writes beyond its end.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Array,
    Context,
    Decline,
    Dequantized,
    FusedActivation,
    Instance,
    Operator,
    Quantization,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.fixed_point import quantized_multiplier, rescale
from op_handlers.kernels.operands import reinterpret_uint8_weights, require_quantization
from op_handlers.kernels.recurrent import check_symmetric_weights, check_variable_states
from op_handlers.kernels.rescaling import emit_fixed_point_product

X, FEATURES, TIMES, BIAS, STATE = range(5)
KINDS = (
    *(f"float32, {weights}, {weights}, float32, float32" for weights in ("float32", "int8", "uint8")),
    "int8, int8, int16, int32, int16",
    "int8, int8, int8, int32, int8",
)


def has_byte_state(at: Instance) -> bool:
    """True for integers whose state has 8 bits."""
    return at.op[X].dtype == at.op[STATE].dtype == "int8"


def weights(at: Instance) -> Dequantized:
    """Integers are products of constants as the file has them; the state counts in steps of its own."""
    op = at.op
    if has_byte_state(at):
        return Dequantized(weights=(FEATURES, TIMES), stored=(X, FEATURES, TIMES, BIAS, STATE))
    whole = op[X].dtype == "int8"
    bias = {BIAS: (STATE, TIMES)} if whole and op.tensor(BIAS) is not None else {}
    return Dequantized(bias=bias, weights=(FEATURES, TIMES), stored=(FEATURES, TIMES, STATE) if whole else ())


def svdf_of(at: Instance) -> Decline | None:
    """What the kernel refuses, or reads as something else than it is."""
    op = at.op
    if op[TIMES].rank != 2:
        return None  # which is told of all operands
    filters, runs = op[TIMES].shape
    if op[STATE].rank != 2 or op[STATE].shape[1] != filters * runs:
        return Decline(
            f"its state has shape {list(op[STATE].shape)}; LiteRT insists on {filters} x {runs} numbers a stream"
        )
    if op[X].dtype != "int8":
        return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, (FEATURES, TIMES))
    tensors = [op[slot] for slot in (X, FEATURES, TIMES, STATE, out(0))]
    if not all(isinstance(tensor.quantization, Quantization) for tensor in tensors):
        return Decline("not all its tensors have a scale")
    for slot in (FEATURES, TIMES, BIAS):
        if op.tensor(slot) is not None and not op[slot].constant:
            return Decline(f"its operand {op[slot].name!r} must be a constant where it works on integers")
    symmetric = (FEATURES, TIMES) if has_byte_state(at) else (FEATURES, TIMES, STATE)
    return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, symmetric)


def factors(op: Operator) -> tuple[float, float]:
    """Return what sums are multiplied by to become the state, and the output; the kernel computes both in float32."""
    scales = {slot: np.float32(require_quantization(op[slot]).scale[0]) for slot in (X, FEATURES, TIMES, STATE, out(0))}
    return float(scales[X] * scales[FEATURES] / scales[STATE]), float(scales[STATE] * scales[TIMES] / scales[out(0)])


def run_bytes(op: Operator, x: Array, features: Array, times: Array, bias: Array | None, state: Array) -> Array:
    """Compute one run of EvalInt8SvdfReference; ``state`` is changed in place."""
    filters, runs = times.shape
    first, second = factors(op)
    before, point, after = (require_quantization(op[slot]).zero_point[0] for slot in (X, STATE, out(0)))
    sums = (x.astype(np.int64) - before) @ features.astype(np.int64).T
    steps = np.clip(rescale(sums, first), -128, 127) + point
    seen = np.roll(state.reshape(-1, filters, runs), -1, axis=2)
    seen[:, :, -1] = steps.astype(np.int8)  # beyond 8 bits it wraps around
    state[...] = seen.reshape(state.shape)
    weighted = ((seen.astype(np.int64) - point) * times).reshape(len(x), -1, op.options.rank * runs)
    totals = weighted.sum(axis=2) + (0 if bias is None else bias)
    return np.asarray(np.clip(rescale(totals, second) + after, -128, 127), np.int8)


def svdf_activation(at: Instance) -> ActivationKernel:
    if has_byte_state(at):
        return ActivationKernel.NONE_OR_RELU_BY_RANGE
    return ActivationKernel.RELU_BY_RANGE if at.op[X].dtype == "int8" else ActivationKernel.ELEMENTWISE


@handler(
    "SVDF",
    max_version=4,
    layout=Terminate(),
    axes="b i, f i, f m, u, b s -> b u",
    quantization=weights,
    activation=FusedActivation(svdf_activation, inside=True),
    types=KINDS,
    accepts=svdf_of,
    kernel=run_bytes,
    overrides_kernel=has_byte_state,
)
def svdf(ctx: Context, x: Value, features: Value, times: Value, bias: Value | None, state: Value) -> Value:
    """Gemm, and the weighted sum of what it gave in this run and in those before."""
    if has_byte_state(ctx):
        return bytes_of_state(ctx, x, state)
    if ctx.op[X].dtype == "int8":
        return integers(ctx, x, state)
    features_out = ctx.ops.Gemm(x, reinterpret_uint8_weights(ctx, FEATURES, features), transB=1)
    y = units(ctx, remembered(ctx, features_out, state), reinterpret_uint8_weights(ctx, TIMES, times))
    y = y if bias is None else ctx.ops.Add(y, bias)
    return ctx.activate(y)


def remembered(ctx: Context, features: Value, state: Value) -> Value:
    """What the filters gave, (B, F), behind what they gave before: (B, F, M), which is the next state."""
    ops, (filters, runs) = ctx.ops, ctx.op[TIMES].shape
    before = ops.Slice(ops.Reshape(state, [-1, filters, runs]), [1], [runs], [2])
    after = ops.Concat(before, ops.Unsqueeze(features, [2]), axis=2)
    ctx.assign(STATE, ctx.reshaped(after, STATE))
    return after


def units(ctx: Context, seen: Value, times: Value | Array) -> Value:
    """Weighted sums over all runs and a unit's filters: (B, F, M) to (B, U)."""
    ops, (filters, runs), rank = ctx.ops, ctx.op[TIMES].shape, ctx.options.rank
    weighted = ops.Reshape(ops.Mul(seen, times), [-1, filters // rank, rank * runs])
    return ops.ReduceSum(weighted, [2], keepdims=0)


def integers(ctx: Context, x: Value, state: Value) -> Value:
    """EvalIntegerSVDF: a state of 16 bits, sums of 32 bits that wrap around; bounded by the output's 8 bits alone.

    It asks for RELU and leaves it out. The filters' weights become real as the model is loaded.
    """
    ops, (weight, time, last) = ctx.ops, (scale(ctx, slot) for slot in (FEATURES, TIMES, STATE))
    features, times = (ctx.required(slot) for slot in (FEATURES, TIMES))
    step = np.float32(weight / last)
    real = features.astype(np.float32) * step if ctx.folds else ops.Mul(ops.Cast(features, to="float32"), step)
    steps = ops.Clip(ops.Round(ops.Gemm(x, real, transB=1)), -32768.0, 32767.0)
    seen = remembered(ctx, ops.Cast(steps, to="int16"), state)
    sums = units(ctx, ops.Cast(seen, to="int64"), times.astype(np.int64))
    if ctx.op.tensor(BIAS) is not None:
        sums = ops.Add(sums, ctx.required(BIAS).astype(np.int64))
    return ops.Mul(ops.Cast(ops.Cast(sums, to="int32"), to="float32"), last * time)


def scale(ctx: Context, slot: int) -> float:
    return require_quantization(ctx.op[slot]).scale[0]


def bytes_of_state(ctx: Context, x: Value, state: Value) -> Value:
    """EvalInt8SvdfReference: a state of 8 bits, bounded before its zero point is added, after which it may wrap around."""
    ops, op = ctx.ops, ctx.op
    features, times = ctx.required(FEATURES), ctx.required(TIMES)
    before, point, after = (require_quantization(op[slot]).zero_point[0] for slot in (X, STATE, out(0)))
    first, second = (quantized_multiplier(factor) for factor in factors(op))
    largest = 255 * int(np.abs(features.astype(np.int64)).sum(axis=1).max(initial=0))
    wide = "float32" if largest <= 1 << 24 else "float64"
    counted = ops.Sub(ops.Cast(x, to=wide), np.asarray(before, wide))
    sums = ops.Cast(ops.Gemm(counted, features.astype(wide), transB=1), to="int32")
    steps = ops.Clip(emit_fixed_point_product(ctx, sums, *first), np.float64(-128), np.float64(127))
    if point:
        turns = ops.Floor(ops.Mul(ops.Add(steps, np.float64(point + 128)), np.float64(1 / 256)))
        steps = ops.Sub(ops.Add(steps, np.float64(point)), ops.Mul(turns, np.float64(256)))
    seen = ops.Cast(remembered(ctx, ops.Cast(steps, to="int8"), state), to="int64")
    totals = units(ctx, ops.Sub(seen, np.int64(point)) if point else seen, times.astype(np.int64))
    if op.tensor(BIAS) is not None:
        totals = ops.Add(totals, ctx.required(BIAS).astype(np.int64))
    y = emit_fixed_point_product(ctx, ops.Cast(totals, to="int32"), *second)
    bounded = ops.Clip(y, np.float64(-128 - after), np.float64(127 - after))
    return ops.Mul(ops.Cast(bounded, to="float32"), np.float32(scale(ctx, out(0))))
