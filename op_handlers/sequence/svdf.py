"""SVDF: a dense layer with a state that contains its recent outputs.

The outputs in the state are weighted by age (internal/reference/svdf.h). Sizes: B batches, I inputs, F filters, M
runs whose outputs are in the state, U units of F / U filters each.

Integers with an 8-bit state are computed as in TensorFlow Lite for Microcontrollers (micro/kernels/svdf_common.cc).
LiteRT's kernel reads an 8-bit state as 16 bits and writes beyond its end.
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

X, FEATURE_WEIGHTS, TIME_WEIGHTS, BIAS, STATE = range(5)
DTYPES = (
    *(f"float32, {weight_dtype}, {weight_dtype}, float32, float32" for weight_dtype in ("float32", "int8", "uint8")),
    "int8, int8, int16, int32, int16",
    "int8, int8, int8, int32, int8",
)


def has_byte_state(at: Instance) -> bool:
    """True for integers with an 8-bit state."""
    return at.op[X].dtype == at.op[STATE].dtype == "int8"


def weight_quantization(at: Instance) -> Dequantized:
    """Return the behavior: integer constants and the state are kept as in the file."""
    op = at.op
    if has_byte_state(at):
        return Dequantized(
            weights=(FEATURE_WEIGHTS, TIME_WEIGHTS), as_in_file=(X, FEATURE_WEIGHTS, TIME_WEIGHTS, BIAS, STATE)
        )
    is_integer = op[X].dtype == "int8"
    bias = {BIAS: (STATE, TIME_WEIGHTS)} if is_integer and op.tensor(BIAS) is not None else {}
    return Dequantized(
        bias=bias,
        weights=(FEATURE_WEIGHTS, TIME_WEIGHTS),
        as_in_file=(FEATURE_WEIGHTS, TIME_WEIGHTS, STATE) if is_integer else (),
    )


def check_svdf(at: Instance) -> Decline | None:
    """Return a Decline for operands that the kernel refuses or misreads."""
    op = at.op
    if op[TIME_WEIGHTS].rank != 2:
        return None  # reported by the check of all ranks
    filters, runs = op[TIME_WEIGHTS].shape
    if op[STATE].rank != 2 or op[STATE].shape[1] != filters * runs:
        return Decline(
            f"the state has shape {list(op[STATE].shape)}; LiteRT requires {filters} x {runs} elements per batch"
        )
    if op[X].dtype != "int8":
        return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, (FEATURE_WEIGHTS, TIME_WEIGHTS))
    tensors = [op[slot] for slot in (X, FEATURE_WEIGHTS, TIME_WEIGHTS, STATE, out(0))]
    if not all(isinstance(tensor.quantization, Quantization) for tensor in tensors):
        return Decline("a tensor has no scale")
    for slot in (FEATURE_WEIGHTS, TIME_WEIGHTS, BIAS):
        if op.tensor(slot) is not None and not op[slot].is_constant:
            return Decline(f"operand {op[slot].name!r} must be constant for integer kernels")
    symmetric_slots = (FEATURE_WEIGHTS, TIME_WEIGHTS) if has_byte_state(at) else (FEATURE_WEIGHTS, TIME_WEIGHTS, STATE)
    return check_variable_states(op, (STATE,)) or check_symmetric_weights(op, symmetric_slots)


def rescaling_factors(op: Operator) -> tuple[float, float]:
    """Return the factors that rescale sums to the state and to the output.

    The kernel computes both factors in float32.
    """
    scales = {
        slot: np.float32(require_quantization(op[slot]).scale[0])
        for slot in (X, FEATURE_WEIGHTS, TIME_WEIGHTS, STATE, out(0))
    }
    return float(scales[X] * scales[FEATURE_WEIGHTS] / scales[STATE]), float(
        scales[STATE] * scales[TIME_WEIGHTS] / scales[out(0)]
    )


def int8_kernel(
    op: Operator, x: Array, feature_weights: Array, time_weights: Array, bias: Array | None, state: Array
) -> Array:
    """Return the output of one run of EvalInt8SvdfReference.

    ``state`` is changed in place.
    """
    filters, runs = time_weights.shape
    state_factor, output_factor = rescaling_factors(op)
    x_zero_point, state_zero_point, y_zero_point = (
        require_quantization(op[slot]).zero_point[0] for slot in (X, STATE, out(0))
    )
    sums = (x.astype(np.int64) - x_zero_point) @ feature_weights.astype(np.int64).T
    new_values = np.clip(rescale(sums, state_factor), -128, 127) + state_zero_point
    new_state = np.roll(state.reshape(-1, filters, runs), -1, axis=2)
    new_state[:, :, -1] = new_values.astype(np.int8)  # beyond 8 bits it wraps around
    state[...] = new_state.reshape(state.shape)
    products = ((new_state.astype(np.int64) - state_zero_point) * time_weights).reshape(
        len(x), -1, op.options.rank * runs
    )
    totals = products.sum(axis=2) + (0 if bias is None else bias)
    return np.asarray(np.clip(rescale(totals, output_factor) + y_zero_point, -128, 127), np.int8)


def svdf_activation(at: Instance) -> ActivationKernel:
    """Return dtype -> kernel family of the fused activation."""
    if has_byte_state(at):
        return ActivationKernel.NONE_OR_RELU_BY_RANGE
    return ActivationKernel.RELU_BY_RANGE if at.op[X].dtype == "int8" else ActivationKernel.ELEMENTWISE


@handler(
    "SVDF",
    max_version=4,
    layout=Terminate(),
    axes="b i, f i, f m, u, b s -> b u",
    quantization=weight_quantization,
    activation=FusedActivation(svdf_activation, in_lowering=True),
    types=DTYPES,
    accepts=check_svdf,
    kernel=int8_kernel,
    overrides_kernel=has_byte_state,
)
def svdf(
    ctx: Context, x: Value, feature_weights: Value, time_weights: Value, bias: Value | None, state: Value
) -> Value:
    """Emit Gemm, and the weighted sum of its results in this run and earlier ones."""
    if has_byte_state(ctx):
        return emit_int8_state(ctx, x, state)
    if ctx.op[X].dtype == "int8":
        return emit_int16_state(ctx, x, state)
    filter_outputs = ctx.ops.Gemm(x, reinterpret_uint8_weights(ctx, FEATURE_WEIGHTS, feature_weights), transB=1)
    y = sum_per_unit(
        ctx, update_state(ctx, filter_outputs, state), reinterpret_uint8_weights(ctx, TIME_WEIGHTS, time_weights)
    )
    y = y if bias is None else ctx.ops.Add(y, bias)
    return ctx.activate(y)


def update_state(ctx: Context, filter_outputs: Value, state: Value) -> Value:
    """Assign and return the next state (B, F, M).

    The outputs of the filters (B, F) are appended to the outputs of earlier runs.
    """
    ops, (filters, runs) = ctx.ops, ctx.op[TIME_WEIGHTS].shape
    recent_outputs = ops.Slice(ops.Reshape(state, [-1, filters, runs]), [1], [runs], [2])
    new_state = ops.Concat(recent_outputs, ops.Unsqueeze(filter_outputs, [2]), axis=2)
    ctx.assign(STATE, ctx.reshape_to_slot(new_state, STATE))
    return new_state


def sum_per_unit(ctx: Context, state: Value, time_weights: Value | Array) -> Value:
    """Emit the weighted sums of each unit: (B, F, M) to (B, U).

    The sums are over all runs and over the filters of the unit.
    """
    ops, (filters, runs), rank = ctx.ops, ctx.op[TIME_WEIGHTS].shape, ctx.options.rank
    products = ops.Reshape(ops.Mul(state, time_weights), [-1, filters // rank, rank * runs])
    return ops.ReduceSum(products, [2], keepdims=0)


def emit_int16_state(ctx: Context, x: Value, state: Value) -> Value:
    """Emit SVDF with a 16-bit state, as in EvalIntegerSVDF.

    The 32-bit sums wrap around and are clipped only at the output. The kernel requires RELU but does not apply it.
    The filters' weights are dequantized when the model is loaded.
    """
    ops, (feature_scale, time_scale, state_scale) = (
        ctx.ops,
        (scale(ctx, slot) for slot in (FEATURE_WEIGHTS, TIME_WEIGHTS, STATE)),
    )
    feature_weights, time_weights = (ctx.require_constant(slot) for slot in (FEATURE_WEIGHTS, TIME_WEIGHTS))
    factor = np.float32(feature_scale / state_scale)
    matrix = (
        feature_weights.astype(np.float32) * factor
        if ctx.folds_weights
        else ops.Mul(ops.Cast(feature_weights, to="float32"), factor)
    )
    new_values = ops.Clip(ops.Round(ops.Gemm(x, matrix, transB=1)), -32768.0, 32767.0)
    new_state = update_state(ctx, ops.Cast(new_values, to="int16"), state)
    sums = sum_per_unit(ctx, ops.Cast(new_state, to="int64"), time_weights.astype(np.int64))
    if ctx.op.tensor(BIAS) is not None:
        sums = ops.Add(sums, ctx.require_constant(BIAS).astype(np.int64))
    return ops.Mul(ops.Cast(ops.Cast(sums, to="int32"), to="float32"), state_scale * time_scale)


def scale(ctx: Context, slot: int) -> float:
    return require_quantization(ctx.op[slot]).scale[0]


def emit_int8_state(ctx: Context, x: Value, state: Value) -> Value:
    """Emit SVDF with an 8-bit state, as in EvalInt8SvdfReference.

    The new state is clipped before its zero point is added, which may wrap around.
    """
    ops, op = ctx.ops, ctx.op
    feature_weights, time_weights = ctx.require_constant(FEATURE_WEIGHTS), ctx.require_constant(TIME_WEIGHTS)
    x_zero_point, state_zero_point, y_zero_point = (
        require_quantization(op[slot]).zero_point[0] for slot in (X, STATE, out(0))
    )
    state_factor, output_factor = (quantized_multiplier(factor) for factor in rescaling_factors(op))
    max_sum = 255 * int(np.abs(feature_weights.astype(np.int64)).sum(axis=1).max(initial=0))
    exact_dtype = "float32" if max_sum <= 1 << 24 else "float64"
    centered = ops.Sub(ops.Cast(x, to=exact_dtype), np.asarray(x_zero_point, exact_dtype))
    sums = ops.Cast(ops.Gemm(centered, feature_weights.astype(exact_dtype), transB=1), to="int32")
    new_values = ops.Clip(emit_fixed_point_product(ctx, sums, *state_factor), np.float64(-128), np.float64(127))
    if state_zero_point:
        overflows = ops.Floor(ops.Mul(ops.Add(new_values, np.float64(state_zero_point + 128)), np.float64(1 / 256)))
        new_values = ops.Sub(ops.Add(new_values, np.float64(state_zero_point)), ops.Mul(overflows, np.float64(256)))
    new_state = ops.Cast(update_state(ctx, ops.Cast(new_values, to="int8"), state), to="int64")
    totals = sum_per_unit(
        ctx,
        ops.Sub(new_state, np.int64(state_zero_point)) if state_zero_point else new_state,
        time_weights.astype(np.int64),
    )
    if op.tensor(BIAS) is not None:
        totals = ops.Add(totals, ctx.require_constant(BIAS).astype(np.int64))
    y = emit_fixed_point_product(ctx, ops.Cast(totals, to="int32"), *output_factor)
    clipped = ops.Clip(y, np.float64(-128 - y_zero_point), np.float64(127 - y_zero_point))
    return ops.Mul(ops.Cast(clipped, to="float32"), np.float32(scale(ctx, out(0))))
