"""SVDF: a dense layer whose outputs are remembered, and weighted by their age (kernels/internal/reference/svdf.h).

Sizes: B batches, I inputs, F filters, M runs that are remembered, U units of F / U filters each.
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
    Quantization,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import parameters, signed_bytes
from op_handlers.kernels.recurrent import not_symmetric, not_variable

X, FEATURES, TIMES, BIAS, STATE = range(5)
KINDS = (
    *(f"float32, {weights}, {weights}, float32, float32" for weights in ("float32", "int8", "uint8")),
    "int8, int8, int16, int32, int16",
)


def weights(at: Instance) -> Dequantized:
    """Integers are products of constants as the file has them; the state counts in steps of its own."""
    op = at.op
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
        return not_variable(op, (STATE,)) or not_symmetric(op, (FEATURES, TIMES))
    tensors = [op[slot] for slot in (X, FEATURES, TIMES, STATE, out(0))]
    if not all(isinstance(tensor.quantization, Quantization) for tensor in tensors):
        return Decline("not all its tensors have a scale")
    for slot in (FEATURES, TIMES, BIAS):
        if op.tensor(slot) is not None and not op[slot].constant:
            return Decline(f"its operand {op[slot].name!r} must be a constant where it works on integers")
    return not_variable(op, (STATE,)) or not_symmetric(op, (FEATURES, TIMES, STATE))


def svdf_activation(at: Instance) -> ActivationKernel:
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
)
def svdf(ctx: Context, x: Value, features: Value, times: Value, bias: Value | None, state: Value) -> Value:
    """Gemm, and the weighted sum of what it gave in this run and in those before."""
    if ctx.op[X].dtype == "int8":
        return integers(ctx, x, state)
    features_out = ctx.ops.Gemm(x, signed_bytes(ctx, FEATURES, features), transB=1)
    y = units(ctx, remembered(ctx, features_out, state), signed_bytes(ctx, TIMES, times))
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
    return parameters(ctx.op[slot]).scale[0]
