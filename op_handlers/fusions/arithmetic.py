"""Constant arithmetic after a convolution or dense layer, folded into its weights.

The results of the layer are then no longer rounded between the operators, so they differ slightly. Quantized operators
are not fused, because LiteRT rounds to integers between them.
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
ARITHMETIC = ("MUL", "ADD", "SUB")
UPPER_BOUNDS = {"RELU": None, "RELU6": 6.0}
"""Activations that commute with a positive factor, and their upper bounds."""


def arithmetic_patterns(base_code: str, *base_operands: Operand) -> tuple[Call, ...]:
    """Return patterns of one or two arithmetic operators after an operator.

    ``base_code``: the code of the operator, which may have a bias.
    """
    bases = Call(base_code, *base_operands, bias), Call(base_code, *base_operands)
    one_step = [arithmetic_call(code, base, first) for base in bases for code in ARITHMETIC]
    two_steps = [arithmetic_call(code, call, second) for call in one_step for code in ARITHMETIC]
    return (*two_steps, *one_step)


def arithmetic_call(code: str, base: Call, constant: Operand) -> Call:
    """Return the pattern of an arithmetic operator with a constant operand."""
    return Call(code, base, constant, commutes=code != "SUB")


# --- conditions -------------------------------------------------------------------------------


def match_arithmetic(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of the base operator and of the arithmetic, or a Decline.

    ``steps``: the codes of the arithmetic operators. The activation is merged from the activations of all operators.
    """
    (_, base), *arithmetic = list(match.calls.items())[::-1]
    if match[x].dtype != "float32":
        return Decline(f"the input is {match[x].dtype}, so results are rounded between the operators")
    for operand in (w, bias, first, second):
        if operand in match.tensors and match[operand].dtype != "float32":
            return Decline(f"constant {match[operand].name!r} is {match[operand].dtype}, expected float32")
    operand_count = sum(operand in match.tensors for operand in (x, shape, w, bias))
    if operand_count != sum(tensor is not None for tensor in base.inputs):
        return Decline("the bias is not constant")
    constants = [match[operand].array for operand in (first, second)[: len(arithmetic)]]
    dims = base[out(0)].dims
    if not all(array.size == 1 or (array.size == dims[-1] and array.shape[-1] == dims[-1]) for array in constants):
        return Decline("a constant is neither a scalar nor per-channel")
    if not all(np.isfinite(array).all() and array.ndim <= len(dims) for array in constants):
        return Decline("a constant is not finite, or has a higher rank than the result")
    codes = [call.code for call, _ in arithmetic]
    activations = [op.options.get(FUSED, "NONE") for op in (base, *(op for _, op in arithmetic))]
    activation = merge_activations(activations, codes[-1], constants[-1])
    return activation if isinstance(activation, Decline) else {**base.options, **activation, "steps": tuple(codes)}


def merge_activations(activations: Sequence[str], code: str, factor: Array) -> Mapping[str, Any] | Decline:
    """Return the options of one activation that replaces all others, or a Decline.

    ``activations``: the activations of all operators in order. ``code``, ``factor``: code and constant of the last
    operator. Only the last operator may have an activation. Exception: if it multiplies by a positive factor, the
    operator before it may have one instead.
    """
    *earlier, previous, last = activations
    if set(earlier) | {previous} <= {"NONE"}:
        return {FUSED: last, "upper_bound": None}
    is_positive_scale = (
        code == "MUL" and last == "NONE" and (factor > 0).all() and (previous == "RELU" or factor.size == 1)
    )
    if set(earlier) <= {"NONE"} and previous in UPPER_BOUNDS and is_positive_scale:
        upper_bound = UPPER_BOUNDS[previous]
        return (
            {FUSED: "RELU", "upper_bound": None}
            if upper_bound is None
            else {FUSED: "NONE", "upper_bound": upper_bound * float(factor.reshape(-1)[0])}
        )
    return Decline("an activation between the operators cannot be merged")


# --- lowerings --------------------------------------------------------------------------------


def fold_arithmetic(ctx: Context, w: Value, channel: int) -> tuple[Value | Array, Array]:
    """Return weights and bias with the arithmetic folded in.

    ``channel``: the axis of the weights' output channels. If the file stores the weights in a narrower dtype, nodes
    multiply the weights, and the runtime folds these nodes at load time.
    """
    weights, operand_count = ctx.require_constant(1), len(ctx.op.inputs)
    factor_shape = [-1 if axis == channel else 1 for axis in ctx.perm(1)]
    file_bias, factor = ctx.op.constant(operand_count - 3), np.ones(ctx.op[1].shape[channel])
    offset = np.zeros_like(factor) if file_bias is None else file_bias.reshape(-1).astype(np.float64)
    for slot, code in zip((operand_count - 2, operand_count - 1), ctx.options.steps, strict=False):
        constant = np.broadcast_to(ctx.op[slot].array.reshape(-1), offset.shape).astype(np.float64)
        if code == "MUL":
            factor, offset = factor * constant, offset * constant
        else:
            offset = offset + (constant if code == "ADD" else -constant)
    bias = offset.astype(np.float32)
    if ctx.op[1].narrower is None or ctx.folds_weights:
        return (weights * factor.reshape(factor_shape)).astype(np.float32), bias
    return (w if (factor == 1).all() else ctx.ops.Mul(w, factor.reshape(factor_shape).astype(np.float32))), bias


def clip_scaled(ctx: Context, y: Value) -> Value:
    """Clip ``y`` if a bounded activation was scaled: to [0, 12] for ``2 * RELU6``."""
    return y if ctx.options.upper_bound is None else ctx.ops.Clip(y, 0.0, ctx.options.upper_bound)


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
