"""Between float and the integers of a quantization: what the host's QuantizeLinear and DequantizeLinear leave to do."""

from __future__ import annotations

from math import inf

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Instance,
    Lookup,
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
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.kernels.lookup_tables import quantized_values
from op_handlers.kernels.operands import require_quantization
from op_handlers.kernels.rescaling import emit_fixed_point_product


def rescaling(at: Instance) -> Dequantized | Lookup:
    """XNNPACK multiplies integers that stay in their dtype by 1/256ths (xnn_init_qs8_cvt_scalar_params): a table of all."""
    return Dequantized() if multiplier_of(at.op) is None else Lookup(rescaled_by_table, dtypes=("int8", "uint8"))


def multiplier_of(op: Operator) -> int | None:
    """By how many 256ths XNNPACK multiplies, where it takes the operator."""
    before, after = op[0].quantization, op[out(0)].quantization
    if op[0].dtype != op[out(0)].dtype or op[0].dtype not in ("int8", "uint8") or op[0].constant:
        return None
    if not isinstance(before, Quantization) or not isinstance(after, Quantization) or before.per_axis or after.per_axis:
        return None
    ratio = np.float32(before.scale[0]) / np.float32(after.scale[0])
    return int(np.rint(ratio * np.float32(256))) if 2**-8 <= ratio <= 2**7 else None


def rescaled_by_table(at: Instance) -> Array:
    """Halves go up (qs8-vcvt)."""
    before, after = require_quantization(at.op[0]), require_quantization(at.op[out(0)])
    limits, multiplier = np.iinfo(at.op[0].dtype), multiplier_of(at.op)
    steps = ((quantized_values(at.op[0].dtype) - before.zero_point[0]) * (multiplier or 0) + 128) >> 8
    return np.asarray(np.clip(steps + after.zero_point[0], limits.min, limits.max).astype(limits.dtype))


def scales_of_open_size(at: Instance) -> Decline | None:
    """The kernel takes a scale for each number along their axis, however many there are (PerChannelQuantize)."""
    scales = at.op[out(0)].quantization
    if not isinstance(scales, Quantization) or not scales.per_axis:
        return None
    size = at.op[0].dims[scales.axis] if scales.axis < at.op[0].rank else 0
    if size == len(scales.scale):
        return None
    text = f"it has {len(scales.scale)} scales along axis {scales.axis}, which is of {'open size' if size is None else size}"
    return Decline(text, "--input-shape sets sizes")


@handler(
    "QUANTIZE",
    max_version=6,
    layout=Transparent(),
    quantization=rescaling,
    accepts=scales_of_open_size,
    converts={"*": ("int8", "uint8", "int16", "int4", "uint4", "int2")},
)
def quantize(ctx: Context, x: Value) -> Value:
    """The host's Q; from integers, its DQ and Q. QuantizeLinear knows no int32, so to and from it by arithmetic."""
    ops, before, after = ctx.ops, ctx.op[0], ctx.op[out(0)]
    if after.dtype == "int32":
        return widened(ctx)
    if before.dtype == "int32":
        scale, zero_point = affine(before)
        x = ops.Mul(ops.Cast(ops.Sub(x, np.asarray(zero_point, np.int32)), to="float32"), scale)
    more = upwards(ctx.op)
    return ops.Add(x, more) if more else x


def widened(ctx: Context) -> Value:
    """As the kernel requantizes; 16 bits to 32 (Requantize, reference/requantize.h)."""
    ops, (before, after) = ctx.ops, (affine(ctx.op[0]), affine(ctx.op[out(0)]))
    integers = ops.Sub(ops.Cast(ctx.raw(0), to="int32"), np.int32(before[1]))
    product = emit_fixed_point_product(ctx, integers, *quantized_multiplier(before[0] / after[0]))
    return ops.Add(ops.Cast(product, to="int32"), np.int32(after[1]))


def upwards(op: Operator) -> float:
    """What makes halves go up where a step becomes half of one, which QuantizeLinear rounds to the even one.

    The kernels do (SaturatingRoundingDoublingHighMul); 16 bits and 8 more are what float32 holds.
    """
    before, after = op[0].quantization, op[out(0)].quantization
    if not isinstance(before, Quantization) or not isinstance(after, Quantization):
        return 0.0
    if before.per_axis or after.per_axis or "int32" in (op[0].dtype, op[out(0)].dtype):
        return 0.0
    return after.scale[0] * 2.0**-8 if before.scale[0] / after.scale[0] == 0.5 else 0.0


def affine(tensor: Tensor) -> tuple[float, int]:
    """The one scale and zero point of a tensor. Raises Refused where it has none, one per axis, or 0 or NaN, which kernels divide by."""
    if not isinstance(tensor.quantization, Quantization) or tensor.quantization.per_axis:
        raise Refused(f"its {tensor.dtype} operand {tensor.name!r} has no scale, or one per axis")
    scale = tensor.quantization.scale[0]
    if not 0 < scale < inf:
        raise Refused(f"its {tensor.dtype} operand {tensor.name!r} has a scale of {scale or 0:g}")
    return scale, tensor.quantization.zero_point[0]


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
    return ctx.ops.Cast(x, to="float32") if ctx.op[0].dtype in ("float16", "bfloat16") else x


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
