"""Between float and the integers of a quantization: what the host's QuantizeLinear and DequantizeLinear leave to do."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Instance,
    Operator,
    Quantization,
    Refused,
    Tensor,
    Transparent,
    Value,
    Widened,
    handler,
    out,
)


@handler(
    "QUANTIZE",
    max_version=6,
    layout=Transparent(),
    quantization=Dequantized(),
    converts={"*": ("int8", "uint8", "int16", "int4", "uint4", "int2")},
)
def quantize(ctx: Context, x: Value) -> Value:
    """The host's Q; from integers, its DQ and Q. QuantizeLinear knows no int32, so to and from it by arithmetic."""
    ops, before, after = ctx.ops, ctx.op[0], ctx.op[out(0)]
    if before.dtype == "int32":
        scale, zero_point = affine(before)
        x = ops.Mul(ops.Cast(ops.Sub(x, np.asarray(zero_point, np.int32)), to="float32"), scale)
    if after.dtype == "int32":
        scale, zero_point = affine(after)
        x = ops.Add(ops.Cast(ops.Round(ops.Div(x, scale)), to="int32"), np.asarray(zero_point, np.int32))
    more = upwards(ctx.op)
    return ops.Add(x, more) if more else x


def upwards(op: Operator) -> float:
    """What makes halves of other integers go up, where QuantizeLinear takes the even one; 0 where there are none.

    XNNPACK rounds so what stays int8 or uint8 (xnn_qs8_vcvt), in 1/256 of a step; the kernels without it do where a step
    becomes half of one (SaturatingRoundingDoublingHighMul). Ranges that fake quantization fixed are often such multiples.
    """
    before, after = op[0].quantization, op[out(0)].quantization
    if not isinstance(before, Quantization) or not isinstance(after, Quantization) or op[0].dtype == "int32":
        return 0.0
    if before.per_axis or after.per_axis or op[out(0)].dtype == "int32":
        return 0.0
    ratio, dtypes = before.scale[0] / after.scale[0], {op[0].dtype, op[out(0)].dtype}
    if dtypes in ({"int8"}, {"uint8"}):
        halves = np.abs(np.arange(1, 256) * ratio % 1 - 0.5) < 1e-4
        return after.scale[0] * 2.0**-10 if halves.any() else 0.0
    return after.scale[0] * 2.0**-8 if ratio == 0.5 else 0.0  # 16 bits and 8 more are what float32 holds


def affine(tensor: Tensor) -> tuple[float, int]:
    """The one scale and zero point of a tensor."""
    if not isinstance(tensor.quantization, Quantization) or tensor.quantization.per_axis:
        raise Refused(f"its {tensor.dtype} operand {tensor.name!r} has no scale, or one per axis")
    return tensor.quantization.scale[0], tensor.quantization.zero_point[0]


def first_value(op: Operator) -> Array | None:
    """Of constants the kernel computes once: a variable tensor begins with it (Eval, kernels/dequantize.cc)."""
    constant, quantization = op.constant(0), op[0].quantization
    if constant is None:
        return None
    if "float" in op[0].dtype:
        return constant.astype(np.float32)
    if not isinstance(quantization, Quantization) or quantization.per_axis:
        return None
    return ((constant.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]).astype(np.float32)


def as_stored(at: Instance) -> Array | Widened | None:
    """Weights stay as they are in the file, and who decides by their numbers sees them; a variable tensor begins with them."""
    if at.op[out(0)].is_variable:
        return first_value(at.op)
    return Widened() if at.op[0].constant else None


@handler(
    "DEQUANTIZE",
    max_version=9,
    layout=Transparent(),
    quantization=Dequantized(),
    evaluate=as_stored,
    converts={"*": ("float32",)},
)
def dequantize(ctx: Context, x: Value) -> Value:
    """The host's DQ; float16 is a Cast, which runtimes compute as they load the weights."""
    constant = ctx.constant(0)
    if ctx.folds and constant is not None and "float" in ctx.op[0].dtype:
        return ctx.constant_value(constant.astype(np.float32))
    return ctx.ops.Cast(x, to=ctx.op[out(0)].dtype) if ctx.op[0].dtype in ("float16", "bfloat16") else x


def fake_range(at: Instance) -> Decline | None:
    """What the kernel asserts, or refuses."""
    options = at.op.options
    if options.narrow_range:
        return Decline("narrow_range is not supported by the kernel; it is meant for weights")
    if not options.min <= 0 <= options.max or options.min == options.max or not 1 <= options.num_bits <= 16:
        return Decline(
            f"a range of {options.min:g} to {options.max:g} in {options.num_bits} bits is none that the kernel defines; "
            "give one that holds 0, in 1 to 16 bits"
        )
    return None


@handler("FAKE_QUANT", max_version=2, layout=Transparent(), accepts=fake_range, types="float32 -> float32")
def fake_quant(ctx: Context, x: Value) -> Value:
    """To the nearest step of a range that is moved so that 0 lies on a step; halves upwards (FakeQuantizeArray).

    The range is computed in float32, as the kernel does (NudgeQuantizationRange, internal/quantization_util.cc).
    """
    ops, options = ctx.ops, ctx.options
    low, high = np.float32(options.min), np.float32(options.max)
    steps = np.float32(2**options.num_bits - 1)
    scale = np.float32((high - low) / steps)
    zero_point = np.float32(np.clip(np.floor(-low / scale + np.float32(0.5)), 0, steps))
    least, most = np.float32(-zero_point * scale), np.float32((steps - zero_point) * scale)
    stepped = ops.Mul(ops.Sub(ops.Min(ops.Max(x, least), most), least), np.float32(1) / scale)
    whole = ops.Floor(stepped)
    # Adding 1/2 before Floor would round up what lies just below a half.
    up = ops.Cast(ops.GreaterOrEqual(ops.Sub(stepped, whole), 0.5), to="float32")
    return ops.Add(ops.Mul(ops.Add(whole, up), scale), least)
