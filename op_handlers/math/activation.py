"""Activations as separate operators."""

from __future__ import annotations

from math import erfc, pi, sqrt

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Instance,
    Lookup,
    Quantization,
    Refusal,
    SameScale,
    Transparent,
    Value,
    handler,
)
from op_handlers.kernels.hard_swish import hard_swish_table
from op_handlers.kernels.lookup_tables import interpolated_table
from op_handlers.kernels.sigmoids import INT16_OUTPUT, int16_tanh_table, sigmoid_quantization


@handler("RELU", max_version=3, layout=Transparent(), quantization=SameScale(onnx="Clip"), activation=lambda at: "RELU")
def relu(ctx: Context, x: Value) -> Value:
    """Return the operand, to which the host applies the activation.

    The activation also rescales if the output has other parameters (activations.cc).
    """
    return x


@handler(
    "RELU6", max_version=3, layout=Transparent(), quantization=SameScale(onnx="Clip"), activation=lambda at: "RELU6"
)
def relu6(ctx: Context, x: Value) -> Value:
    """Return the operand, to which the host applies the activation."""
    return x


@handler(
    "RELU_N1_TO_1",
    max_version=1,
    layout=Transparent(),
    quantization=SameScale(onnx="Clip"),
    activation=lambda at: "RELU_N1_TO_1",
)
def relu_n1_to_1(ctx: Context, x: Value) -> Value:
    """Return the operand, to which the host applies the activation."""
    return x


@handler(
    "RELU_0_TO_1",
    max_version=1,
    layout=Transparent(),
    quantization=SameScale(onnx="Clip"),
    activation=lambda at: "RELU_0_TO_1",
)
def relu_0_to_1(ctx: Context, x: Value) -> Value:
    """Return the operand, to which the host applies the activation."""
    return x


@handler("LEAKY_RELU", max_version=2, layout=Transparent(), quantization=Dequantized())
def leaky_relu(ctx: Context, x: Value) -> Value:
    """Emit LeakyRelu. The slope alpha may have any sign and size (leaky_relu.h)."""
    return ctx.ops.LeakyRelu(x, alpha=ctx.options.alpha)


def check_slope_scale(at: Instance) -> Decline | None:
    """Return a Decline for per-axis slopes.

    The kernel reads only one scale (PreluPrepare, activations.cc).
    """
    slopes = at.op[1].quantization
    if isinstance(slopes, Quantization) and slopes.per_axis:
        return Decline(f"the slopes have {len(slopes.scale)} scales, but the kernel reads one")
    return None


@handler(
    "PRELU",
    max_version=1,
    layout=Transparent(),
    quantization=Dequantized(),
    accepts=check_slope_scale,
    types=("float32, float32", "int8, int8", "uint8, uint8", "int16, int8"),  # the kernel reads int16 slopes as bytes
)
def prelu(ctx: Context, x: Value, slope: Value) -> Value:
    """Emit PRelu, or LeakyRelu if all slopes are equal."""
    slopes, channels = ctx.op.constant(1), ctx.op[0].dims[-1:]
    for size, slope_size in zip(ctx.op[0].dims[::-1], ctx.op[1].dims[::-1], strict=False):
        if None not in (size, slope_size) and slope_size not in (1, size):
            raise Refusal(f"slopes of shape {list(ctx.op[1].dims)} do not broadcast to {list(ctx.op[0].dims)}")
    if slopes is None or ctx.is_quantized or not slopes.size:
        return ctx.ops.PRelu(x, slope)
    if (slopes == slopes.flat[0]).all():
        return ctx.ops.LeakyRelu(x, alpha=slopes.flat[0])
    per_channel = (slopes.size,) == slopes.shape[-1:] == channels
    breaks_blocked_layout = (
        "Conv" in ctx.target.channel_blocked_operators and "PRelu" not in ctx.target.channel_blocked_operators
    )
    if per_channel and breaks_blocked_layout and len(ctx.shape(0)) == 4 and ctx.axis(-1) == 1:
        return emit_blocked_prelu(ctx, x, slopes.reshape(-1, 1, 1, 1))
    return ctx.ops.PRelu(x, slope)


def emit_blocked_prelu(ctx: Context, x: Value, slopes: Array) -> Value:
    """Emit PRelu as depthwise 1x1 convolutions, which preserve the blocked layout.

    x + (1 - a) * Relu(-x) equals x for x >= 0, and is otherwise within three roundings of a * x. ONNX Runtime runs two
    kernels, because it fuses Relu and Add into the convolutions. Six 3x3 convolutions of 16 channels with slopes
    between them run 2.3 times as fast as with PRelu.
    """
    ctx.explain(
        "These nodes are faster than PRelu between convolutions. PRelu reads channels-last or channels-first values, so the "
        "runtime would reorder the blocked channels of the convolutions before and after it."
    )
    ops = ctx.ops

    def scale_channels(value: Value, factors: Array) -> Value:
        return ops.Conv(value, factors.astype(np.float32), group=len(factors), kernel_shape=[1, 1])

    negative = ops.Relu(scale_channels(x, -np.ones_like(slopes)))
    return ops.Add(x, scale_channels(negative, 1 - slopes.astype(np.float64)))


@handler("ELU", max_version=1, layout=Transparent(), quantization=Dequantized())
def elu(ctx: Context, x: Value) -> Value:
    """Emit Elu."""
    return ctx.ops.Elu(x)


def gelu_table(at: Instance) -> Array:
    return interpolated_table(tanh_gelu if at.op.options.approximate else erf_gelu)(at)


@handler("GELU", max_version=3, layout=Transparent(), quantization=Lookup(gelu_table))
def gelu(ctx: Context, x: Value) -> Value:
    """Emit Gelu, or below opset 20 FastGelu or the operators of the definition.

    FastGelu is an operator of com.microsoft for the approximation with Tanh. For 605,184 elements, FastGelu takes
    0.59 ms and the eight operators of its definition take 2.02 ms (Intel Xeon, AVX-512).
    """
    approximate, ops, scalar = ctx.options.approximate, ctx.ops, ctx.scalar
    if ctx.opset >= 20:
        return ops.Gelu(x, approximate="tanh" if approximate else "none")
    if approximate and "com.microsoft" in ctx.target.domains:
        fused: Value = ops.domain("com.microsoft").FastGelu(x)
        return fused
    if approximate:
        cubic = ops.Add(x, ops.Mul(ops.Pow(x, scalar(3)), scalar(0.044715)))
        gate = ops.Tanh(ops.Mul(cubic, scalar(sqrt(2 / pi))))
    else:
        gate = ops.Erf(ops.Div(x, scalar(sqrt(2))))
    return ops.Mul(ops.Mul(x, ops.Add(gate, scalar(1))), scalar(0.5))


def erf_gelu(real: Array) -> Array:
    return np.asarray([value / 2 * erfc(-value / sqrt(2)) for value in real.tolist()], np.float32)


def tanh_gelu(real: Array) -> Array:
    return np.asarray(real / 2 * (1 + np.tanh(sqrt(2 / pi) * (real + 0.044715 * real**3))), np.float32)


@handler("TANH", max_version=3, layout=Transparent(), quantization=Lookup(int16_tanh_table, outputs=INT16_OUTPUT))
def tanh(ctx: Context, x: Value) -> Value:
    """Emit Tanh.

    8-bit results may have any scale, which the kernel's table includes (activations.cc).
    """
    return ctx.ops.Tanh(x)


@handler("LOGISTIC", max_version=3, layout=Transparent(), quantization=sigmoid_quantization)
def logistic(ctx: Context, x: Value) -> Value:
    """Emit Sigmoid.

    XNNPACK supports 8-bit outputs of any scale; the built-in kernels support only 1/256 (activations.cc).
    """
    return emit_bfloat16_sigmoid(ctx, x) if ctx.op[0].dtype == "bfloat16" else ctx.ops.Sigmoid(x)


def emit_bfloat16_sigmoid(ctx: Context, x: Value) -> Value:
    """Emit exp(x) / (1 + exp(x)), with exp(x) and the divisor rounded to bfloat16.

    Eigen's scalar_logistic_op rounds in the same way. The result is 1 if exp is infinite.
    """
    ops = ctx.ops

    def round_to_bfloat16(value: Value) -> Value:
        return ops.Cast(ops.Cast(value, to="bfloat16"), to="float32")

    power = round_to_bfloat16(ops.Exp(ops.Cast(x, to="float32")))
    sigmoid = ops.Where(ops.IsInf(power), 1.0, ops.Div(power, round_to_bfloat16(ops.Add(power, 1.0))))
    return ops.Cast(sigmoid, to="bfloat16")


@handler(
    "HARD_SWISH",
    max_version=1,
    layout=Transparent(),
    quantization=Lookup(hard_swish_table, dtypes=("int8", "uint8")),
)
def hard_swish(ctx: Context, x: Value) -> Value:
    """Emit HardSwish, or x * Clip(x + 3, 0, 6) / 6 below opset 14."""
    ops = ctx.ops
    if ctx.opset >= 14:
        return ops.HardSwish(x)
    return ops.Div(ops.Mul(x, ops.Clip(ops.Add(x, 3.0), 0.0, 6.0)), 6.0)
