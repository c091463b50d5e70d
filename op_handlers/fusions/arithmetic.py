"""Arithmetic with constants behind a convolution or a dense layer goes into its weights and bias.

The result is the same, and rounded less often: each weight and each bias once more, where every element of the
result was rounded for every operator. What is quantized is rounded to integers in between, so there it is left alone.
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
ENDS = {"RELU": None, "RELU6": 6.0}
"""Activations that a positive factor may pass, and where they end."""


def chains(code: str, *taken: Operand) -> tuple[Call, ...]:
    """One or two steps behind the operator, which has a bias or none."""
    bases = Call(code, *taken, bias), Call(code, *taken)
    ones = [step(kind, base, first) for base in bases for kind in ("MUL", "ADD", "SUB")]
    return (*(step(kind, one, second) for one in ones for kind in ("MUL", "ADD", "SUB")), *ones)


def step(code: str, before: Call, number: Operand) -> Call:
    return Call(code, before, number, commutes=code != "SUB")


# --- whether ----------------------------------------------------------------------------------


def per_channel(match: Match) -> Mapping[str, Any] | Decline:
    """The options of the operator in front, the steps behind it, and the activation of the whole."""
    (_, base), *behind = list(match.calls.items())[::-1]
    if match[x].dtype != "float32":
        return Decline(f"it computes in {match[x].dtype}, which is rounded in between")
    for operand in (w, bias, first, second):
        if operand in match.tensors and match[operand].dtype != "float32":
            return Decline(f"{match[operand].name!r} is {match[operand].dtype}")
    taken = sum(operand in match.tensors for operand in (x, shape, w, bias))
    if taken != sum(tensor is not None for tensor in base.inputs):
        return Decline("its bias is no constant")
    numbers = [match[operand].array for operand in (first, second)[: len(behind)]]
    dims = base[out(0)].dims
    if not all(number.size == 1 or (number.size == dims[-1] and number.shape[-1] == dims[-1]) for number in numbers):
        return Decline("a constant is not one number, or one for each channel")
    if not all(np.isfinite(number).all() and number.ndim <= len(dims) for number in numbers):
        return Decline("a constant is not finite, or of a higher rank")
    codes = [call.code for call, _ in behind]
    activations = [op.options.get(FUSED, "NONE") for op in (base, *(op for _, op in behind))]
    activation = passed(activations, codes[-1], numbers[-1])
    return activation if isinstance(activation, Decline) else {**base.options, **activation, "steps": tuple(codes)}


def passed(activations: Sequence[str], code: str, number: Array) -> Mapping[str, Any] | Decline:
    """The activation of the whole: the last one, or one that the last step, a positive factor, passes and scales."""
    *earlier, before, last = activations
    if set(earlier) | {before} <= {"NONE"}:
        return {FUSED: last, "end": None}
    scales = code == "MUL" and last == "NONE" and (number > 0).all() and (before == "RELU" or number.size == 1)
    if set(earlier) <= {"NONE"} and before in ENDS and scales:
        end = ENDS[before]
        return (
            {FUSED: "RELU", "end": None} if end is None else {FUSED: "NONE", "end": end * float(number.reshape(-1)[0])}
        )
    return Decline("an activation comes in between")


# --- how --------------------------------------------------------------------------------------


def absorbed(ctx: Context, w: Value, channel: int) -> tuple[Value | Array, Array]:
    """Weights and bias that the steps went into; ``channel`` is the weights' axis of output channels.

    Weights that the file keeps in a narrower dtype are multiplied as the model is loaded.
    """
    weights, last = ctx.required(1), len(ctx.op.inputs)
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
    if ctx.op[1].narrower is None or ctx.folds:
        return (weights * factor.reshape(along)).astype(np.float32), bias
    return (w if (factor == 1).all() else ctx.ops.Mul(w, factor.reshape(along).astype(np.float32))), bias


def ended(ctx: Context, y: Value) -> Value:
    """Cut where a scaled activation ends."""
    return y if ctx.options.end is None else ctx.ops.Clip(y, 0.0, ctx.options.end)


@fusion(
    "CONV_2D_ARITHMETIC",
    pattern=chains("CONV_2D", x, w),
    inputs=(x, w, bias, first, second),
    where=per_channel,
    layout=conv_2d.layout,
    axes=conv_2d.axes,
    activation=conv_2d.activation,
)
def conv_2d_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Conv that scales and shifts its channels too."""
    return ended(ctx, conv_2d(ctx, x, *absorbed(ctx, w, channel=0)))


@fusion(
    "DEPTHWISE_CONV_2D_ARITHMETIC",
    pattern=chains("DEPTHWISE_CONV_2D", x, w),
    inputs=(x, w, bias, first, second),
    where=per_channel,
    layout=depthwise_conv_2d.layout,
    axes=depthwise_conv_2d.axes,
    activation=depthwise_conv_2d.activation,
)
def depthwise_conv_2d_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Conv by channel that scales and shifts its channels too."""
    return ended(ctx, depthwise_conv_2d(ctx, x, *absorbed(ctx, w, channel=3)))


@fusion(
    "TRANSPOSE_CONV_ARITHMETIC",
    pattern=chains("TRANSPOSE_CONV", shape, w, x),
    inputs=(shape, w, x, bias, first, second),
    where=per_channel,
    layout=transpose_conv.layout,
    axes=transpose_conv.axes,
    activation=transpose_conv.activation,
)
def transpose_conv_arithmetic(ctx: Context, shape: Value, w: Value, x: Value, *_constants: Value) -> Value:
    """ConvTranspose that scales and shifts its channels too."""
    weights, biases = absorbed(ctx, w, channel=0)
    return ended(ctx, transpose_conv(ctx, shape, weights, x, biases))


@fusion(
    "FULLY_CONNECTED_ARITHMETIC",
    pattern=chains("FULLY_CONNECTED", x, w),
    inputs=(x, w, bias, first, second),
    where=per_channel,
    layout=fully_connected.layout,
    axes=fully_connected.axes,
    reshapes=fully_connected.reshapes,
    activation=fully_connected.activation,
)
def fully_connected_arithmetic(ctx: Context, x: Value, w: Value, *_constants: Value) -> Value:
    """Gemm that scales and shifts its columns too."""
    return ended(ctx, fully_connected(ctx, x, *absorbed(ctx, w, channel=0)))
