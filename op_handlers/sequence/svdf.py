"""SVDF: a dense layer; a state keeps its outputs, which are weighted by age (kernels/internal/reference/svdf.h).

Sizes: B batches, I inputs, F filters, M runs in the state, U units of F / U filters each.

Integers with an 8-bit state are computed as TensorFlow Lite for Microcontrollers does (micro/kernels/svdf_common.cc);
LiteRT's kernel reads that state as 16 bits and writes beyond its end.
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
    *(
        f"float32, {weight_quantization}, {weight_quantization}, float32, float32"
        for weight_quantization in ("float32", "int8", "uint8")
    ),
    "int8, int8, int16, int32, int16",
    "int8, int8, int8, int32, int8",
)


def has_byte_state(at: Instance) -> bool:
    """True for integers with an 8-bit state."""
    return at.op[X].dtype == at.op[STATE].dtype == "int8"


def weight_quantization(at: Instance) -> Dequantized:
    """Return the quantization: integer constants as stored, and a state with a separate scale."""
    op = at.op
    if has_byte_state(at):
        return Dequantized(weights=(FEATURES, TIMES), stored=(X, FEATURES, TIMES, BIAS, STATE))
    whole = op[X].dtype == "int8"
    bias = {BIAS: (STATE, TIMES)} if whole and op.tensor(BIAS) is not None else {}
    return Dequantized(bias=bias, weights=(FEATURES, TIMES), stored=(FEATURES, TIMES, STATE) if whole else ())


def check_svdf(at: Instance) -> Decline | None:
    """Return a Decline for operands that the kernel refuses or misreads."""
    op = at.op
    if op[TIMES].rank != 2:
        return None  # reported by the check of all ranks
    filters, runs = op[TIMES].shape
    if op[STATE].rank != 2 or op[STATE].shape[1] != filters * runs:
        return Decline(
            f"the state has shape {list(op[STATE].shape)}; LiteRT requires {filters} x {runs} elements per batch"
        )
    if op[X].dtype != "int8":
        return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, (FEATURES, TIMES))
    tensors = [op[slot] for slot in (X, FEATURES, TIMES, STATE, out(0))]
    if not all(isinstance(tensor.quantization, Quantization) for tensor in tensors):
        return Decline("a tensor has no scale")
    for slot in (FEATURES, TIMES, BIAS):
        if op.tensor(slot) is not None and not op[slot].is_constant:
            return Decline(f"operand {op[slot].name!r} must be constant for integer kernels")
    symmetric = (FEATURES, TIMES) if has_byte_state(at) else (FEATURES, TIMES, STATE)
    return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, symmetric)


def rescaling_factors(op: Operator) -> tuple[float, float]:
    """Return the factors that rescale sums to the state and to the output; the kernel computes both in float32."""
    scales = {slot: np.float32(require_quantization(op[slot]).scale[0]) for slot in (X, FEATURES, TIMES, STATE, out(0))}
    return float(scales[X] * scales[FEATURES] / scales[STATE]), float(scales[STATE] * scales[TIMES] / scales[out(0)])


def run_bytes(op: Operator, x: Array, features: Array, times: Array, bias: Array | None, state: Array) -> Array:
    """Compute one run of EvalInt8SvdfReference; ``state`` is changed in place."""
    filters, runs = times.shape
    first, second = rescaling_factors(op)
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
    """Return the kernel family of the fused activation, by dtype."""
    if has_byte_state(at):
        return ActivationKernel.NONE_OR_RELU_BY_RANGE
    return ActivationKernel.RELU_BY_RANGE if at.op[X].dtype == "int8" else ActivationKernel.ELEMENTWISE


@handler(
    "SVDF",
    max_version=4,
    layout=Terminate(),
    axes="b i, f i, f m, u, b s -> b u",
    quantization=weight_quantization,
    activation=FusedActivation(svdf_activation, inside=True),
    types=KINDS,
    accepts=check_svdf,
    kernel=run_bytes,
    overrides_kernel=has_byte_state,
)
def svdf(ctx: Context, x: Value, features: Value, times: Value, bias: Value | None, state: Value) -> Value:
    """Emit Gemm, and the weighted sum of its results in this run and earlier ones."""
    if has_byte_state(ctx):
        return emit_int8_state(ctx, x, state)
    if ctx.op[X].dtype == "int8":
        return emit_int16_state(ctx, x, state)
    features_out = ctx.ops.Gemm(x, reinterpret_uint8_weights(ctx, FEATURES, features), transB=1)
    y = sum_per_unit(ctx, update_state(ctx, features_out, state), reinterpret_uint8_weights(ctx, TIMES, times))
    y = y if bias is None else ctx.ops.Add(y, bias)
    return ctx.activate(y)


def update_state(ctx: Context, features: Value, state: Value) -> Value:
    """Append the filters' outputs (B, F) to earlier ones: (B, F, M), the next state."""
    ops, (filters, runs) = ctx.ops, ctx.op[TIMES].shape
    before = ops.Slice(ops.Reshape(state, [-1, filters, runs]), [1], [runs], [2])
    after = ops.Concat(before, ops.Unsqueeze(features, [2]), axis=2)
    ctx.assign(STATE, ctx.reshape_to_slot(after, STATE))
    return after


def sum_per_unit(ctx: Context, seen: Value, times: Value | Array) -> Value:
    """Emit weighted sums over all runs and a unit's filters: (B, F, M) to (B, U)."""
    ops, (filters, runs), rank = ctx.ops, ctx.op[TIMES].shape, ctx.options.rank
    weighted = ops.Reshape(ops.Mul(seen, times), [-1, filters // rank, rank * runs])
    return ops.ReduceSum(weighted, [2], keepdims=0)


def emit_int16_state(ctx: Context, x: Value, state: Value) -> Value:
    """Emit EvalIntegerSVDF: a 16-bit state and 32-bit sums that wrap around, clipped to 8 bits at the output only.

    The kernel requires RELU but does not apply it. The filters' weights are dequantized when the model is loaded.
    """
    ops, (weight, time, last) = ctx.ops, (scale(ctx, slot) for slot in (FEATURES, TIMES, STATE))
    features, times = (ctx.require_constant(slot) for slot in (FEATURES, TIMES))
    step = np.float32(weight / last)
    real = features.astype(np.float32) * step if ctx.folds_weights else ops.Mul(ops.Cast(features, to="float32"), step)
    steps = ops.Clip(ops.Round(ops.Gemm(x, real, transB=1)), -32768.0, 32767.0)
    seen = update_state(ctx, ops.Cast(steps, to="int16"), state)
    sums = sum_per_unit(ctx, ops.Cast(seen, to="int64"), times.astype(np.int64))
    if ctx.op.tensor(BIAS) is not None:
        sums = ops.Add(sums, ctx.require_constant(BIAS).astype(np.int64))
    return ops.Mul(ops.Cast(ops.Cast(sums, to="int32"), to="float32"), last * time)


def scale(ctx: Context, slot: int) -> float:
    return require_quantization(ctx.op[slot]).scale[0]


def emit_int8_state(ctx: Context, x: Value, state: Value) -> Value:
    """Emit EvalInt8SvdfReference: the 8-bit state is clipped before its zero point is added, and may then wrap around."""
    ops, op = ctx.ops, ctx.op
    features, times = ctx.require_constant(FEATURES), ctx.require_constant(TIMES)
    before, point, after = (require_quantization(op[slot]).zero_point[0] for slot in (X, STATE, out(0)))
    first, second = (quantized_multiplier(factor) for factor in rescaling_factors(op))
    largest = 255 * int(np.abs(features.astype(np.int64)).sum(axis=1).max(initial=0))
    wide = "float32" if largest <= 1 << 24 else "float64"
    centered = ops.Sub(ops.Cast(x, to=wide), np.asarray(before, wide))
    sums = ops.Cast(ops.Gemm(centered, features.astype(wide), transB=1), to="int32")
    steps = ops.Clip(emit_fixed_point_product(ctx, sums, *first), np.float64(-128), np.float64(127))
    if point:
        overflows = ops.Floor(ops.Mul(ops.Add(steps, np.float64(point + 128)), np.float64(1 / 256)))
        steps = ops.Sub(ops.Add(steps, np.float64(point)), ops.Mul(overflows, np.float64(256)))
    seen = ops.Cast(update_state(ctx, ops.Cast(steps, to="int8"), state), to="int64")
    totals = sum_per_unit(ctx, ops.Sub(seen, np.int64(point)) if point else seen, times.astype(np.int64))
    if op.tensor(BIAS) is not None:
        totals = ops.Add(totals, ctx.require_constant(BIAS).astype(np.int64))
    y = emit_fixed_point_product(ctx, ops.Cast(totals, to="int32"), *second)
    bounded = ops.Clip(y, np.float64(-128 - after), np.float64(127 - after))
    return ops.Mul(ops.Cast(bounded, to="float32"), np.float32(scale(ctx, out(0))))
