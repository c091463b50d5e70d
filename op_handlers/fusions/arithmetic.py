"""Constant arithmetic after a convolution or dense layer, folded into its weights and bias.

The result is the same and rounded less often: each weight and each bias once, instead of every element of the result
for every operator. Quantized operators are skipped, since they round to integers in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Call, Context, Decline, Match, Operand, Value, fusion, operands, out
from op_handlers.image.convolution import conv_2d, depthwise_conv_2d, transpose_conv
from op_handlers.matrix.fully_connected import fully_connected

x, shape = operands("x shape")
w, bias, first, second = operands("w bias first second", constant=True)
FUSED = "fused_activation_function"
UPPER_BOUNDS = {"RELU": None, "RELU6": 6.0}
"""Activations that commute with a positive factor, and their upper bounds."""


def arithmetic_patterns(code: str, *taken: Operand) -> tuple[Call, ...]:
    """Return patterns of one or two arithmetic operators after the operator, with or without a bias."""
    bases = Call(code, *taken, bias), Call(code, *taken)
    ones = [arithmetic_call(kind, base, first) for base in bases for kind in ("MUL", "ADD", "SUB")]
    return (*(arithmetic_call(kind, one, second) for one in ones for kind in ("MUL", "ADD", "SUB")), *ones)


def arithmetic_call(code: str, before: Call, number: Operand) -> Call:
    """Return an arithmetic operator with a constant second operand."""
    return Call(code, before, number, commutes=code != "SUB")


# --- conditions -------------------------------------------------------------------------------


def match_arithmetic(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of the base operator, the codes of the arithmetic, and the merged activation."""
    (_, base), *following = list(match.calls.items())[::-1]
    if match[x].dtype != "float32":
        return Decline(f"the input is {match[x].dtype}, which is rounded between the operators")
    for operand in (w, bias, first, second):
        if operand in match.tensors and match[operand].dtype != "float32":
            return Decline(f"{match[operand].name!r} is {match[operand].dtype}")
    operand_count = sum(operand in match.tensors for operand in (x, shape, w, bias))
    if operand_count != sum(tensor is not None for tensor in base.inputs):
        return Decline("the bias is not constant")
    constants = [match[operand].array for operand in (first, second)[: len(following)]]
    dims = base[out(0)].dims
    if not all(number.size == 1 or (number.size == dims[-1] and number.shape[-1] == dims[-1]) for number in constants):
        return Decline("a constant is neither a scalar nor per-channel")
    if not all(np.isfinite(number).all() and number.ndim <= len(dims) for number in constants):
        return Decline("a constant is not finite, or has a higher rank than the result")
    codes = [call.code for call, _ in following]
    activations = [op.options.get(FUSED, "NONE") for op in (base, *(op for _, op in following))]
    activation = merge_activations(activations, codes[-1], constants[-1])
    return activation if isinstance(activation, Decline) else {**base.options, **activation, "steps": tuple(codes)}


def merge_activations(activations: Sequence[str], code: str, number: Array) -> Mapping[str, Any] | Decline:
    """Return the merged activation: the last one, or an earlier one scaled by a last, positive factor."""
    *earlier, before, last = activations
    if set(earlier) | {before} <= {"NONE"}:
        return {FUSED: last, "end": None}
    scales = code == "MUL" and last == "NONE" and (number > 0).all() and (before == "RELU" or number.size == 1)
    if set(earlier) <= {"NONE"} and before in UPPER_BOUNDS and scales:
        end = UPPER_BOUNDS[before]
        return (
            {FUSED: "RELU", "end": None} if end is None else {FUSED: "NONE", "end": end * float(number.reshape(-1)[0])}
        )
    return Decline("an activation between the operators cannot be merged")


# --- lowerings --------------------------------------------------------------------------------


def fold_arithmetic(ctx: Context, w: Value, channel: int) -> tuple[Value | Array, Array]:
    """Return weights and bias with the arithmetic folded in; ``channel`` is the weights' axis of output channels.

    Weights that the file stores in a narrower dtype are multiplied when the model is loaded.
    """
    weights, last = ctx.require_constant(1), len(ctx.op.inputs)
    along = [-1 if axis == channel else 1 for axis in ctx.perm(1)]
    bias_before, factor = ctx.op.constant(last - 3), np.ones(ctx.op[1].shape[channel])
    added = np.zeros_like(factor) if bias_before is None else bias_before.reshape(-1).astype(np.float64)
    for slot, code in zip((last - 2, last - 1), ctx.options.steps, strict=False):
        number = np.broadcast_to(ctx.op[slot].array.reshape(-1), added.shape).astype(np.float64)
        if code == "MUL":
            factor, added = factor * number, added * number
        else:
            added = added + (number if code == "ADD" else -number)
    bias = added.astype(np.float32)
    if ctx.op[1].narrower is None or ctx.folds_weights:
        return (weights * factor.reshape(along)).astype(np.float32), bias
    return (w if (factor == 1).all() else ctx.ops.Mul(w, factor.reshape(along).astype(np.float32))), bias


def clip_scaled(ctx: Context, y: Value) -> Value:
    """Clip at the upper bound of a scaled activation."""
    return y if ctx.options.end is None else ctx.ops.Clip(y, 0.0, ctx.options.end)


@fusion(
    "CONV_2D_ARITHMETIC",
    pattern=arithmetic_patterns("CONV_2D", x, w),
    inputs=(x, w, bias, first, second),
    check=match_arithmetic,
    layout=conv_2d.layout,
    axes=conv_2d.axes,
    activation=conv_2d.activation,
)
def conv_2d_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Emit Conv with scale and offset of its channels folded in."""
    return clip_scaled(ctx, conv_2d(ctx, x, *fold_arithmetic(ctx, w, channel=0)))


@fusion(
    "DEPTHWISE_CONV_2D_ARITHMETIC",
    pattern=arithmetic_patterns("DEPTHWISE_CONV_2D", x, w),
    inputs=(x, w, bias, first, second),
    check=match_arithmetic,
    layout=depthwise_conv_2d.layout,
    axes=depthwise_conv_2d.axes,
    activation=depthwise_conv_2d.activation,
)
def depthwise_conv_2d_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Emit a depthwise Conv with scale and offset of its channels folded in."""
    return clip_scaled(ctx, depthwise_conv_2d(ctx, x, *fold_arithmetic(ctx, w, channel=3)))


@fusion(
    "TRANSPOSE_CONV_ARITHMETIC",
    pattern=arithmetic_patterns("TRANSPOSE_CONV", shape, w, x),
    inputs=(shape, w, x, bias, first, second),
    check=match_arithmetic,
    layout=transpose_conv.layout,
    axes=transpose_conv.axes,
    activation=transpose_conv.activation,
)
def transpose_conv_arithmetic(ctx: Context, shape: Value, w: Value, x: Value, *_constants: Value) -> Value:
    """Emit ConvTranspose with scale and offset of its channels folded in."""
    weights, biases = fold_arithmetic(ctx, w, channel=0)
    return clip_scaled(ctx, transpose_conv(ctx, shape, weights, x, biases))


@fusion(
    "FULLY_CONNECTED_ARITHMETIC",
    pattern=arithmetic_patterns("FULLY_CONNECTED", x, w),
    inputs=(x, w, bias, first, second),
    check=match_arithmetic,
    layout=fully_connected.layout,
    axes=fully_connected.axes,
    reshapes=fully_connected.reshapes,
    activation=fully_connected.activation,
)
def fully_connected_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Emit Gemm with scale and offset of its output columns folded in."""
    return clip_scaled(ctx, fully_connected(ctx, x, *fold_arithmetic(ctx, w, channel=0)))
