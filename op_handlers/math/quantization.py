"""Conversions between float and quantized values.

They complement QuantizeLinear and DequantizeLinear, which the host emits.
"""

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
    Refusal,
    Tensor,
    Transparent,
    Value,
    WidenedConstant,
    handler,
    out,
)
from op_handlers.kernels.fixed_point import quantized_multiplier
from op_handlers.kernels.lookup_tables import quantized_values
from op_handlers.kernels.operands import require_quantization
from op_handlers.kernels.rescaling import emit_fixed_point_product


def requantization(at: Instance) -> Dequantized | Lookup:
    """Return Lookup if XNNPACK requantizes, else Dequantized.

    XNNPACK multiplies by 256ths (xnn_init_qs8_cvt_scalar_params).
    """
    return (
        Dequantized() if xnnpack_multiplier(at.op) is None else Lookup(requantization_table, dtypes=("int8", "uint8"))
    )


def xnnpack_multiplier(op: Operator) -> int | None:
    """Return XNNPACK's multiplier in 256ths, or None.

    The result is None if XNNPACK does not run the operator.
    """
    x_quantization, y_quantization = op[0].quantization, op[out(0)].quantization
    if op[0].dtype != op[out(0)].dtype or op[0].dtype not in ("int8", "uint8") or op[0].is_constant:
        return None
    if (
        not isinstance(x_quantization, Quantization)
        or not isinstance(y_quantization, Quantization)
        or x_quantization.per_axis
        or y_quantization.per_axis
    ):
        return None
    ratio = np.float32(x_quantization.scale[0]) / np.float32(y_quantization.scale[0])
    return int(np.rint(ratio * np.float32(256))) if 2**-8 <= ratio <= 2**7 else None


def requantization_table(at: Instance) -> Array:
    """Return the requantized value of each quantized value, rounded half up.

    Source: XNNPACK, qs8-vcvt.
    """
    x_quantization, y_quantization = require_quantization(at.op[0]), require_quantization(at.op[out(0)])
    limits, multiplier = np.iinfo(at.op[0].dtype), xnnpack_multiplier(at.op)
    steps = ((quantized_values(at.op[0].dtype) - x_quantization.zero_point[0]) * (multiplier or 0) + 128) >> 8
    return np.asarray(np.clip(steps + y_quantization.zero_point[0], limits.min, limits.max).astype(limits.dtype))


def check_scale_count(at: Instance) -> Decline | None:
    """Return a Decline unless there is one scale per element along the axis.

    The kernel assumes this (PerChannelQuantize).
    """
    scales = at.op[out(0)].quantization
    if not isinstance(scales, Quantization) or not scales.per_axis:
        return None
    size = at.op[0].dims[scales.axis] if scales.axis < at.op[0].rank else 0
    if size == len(scales.scale):
        return None
    problem = f"{len(scales.scale)} scales along axis {scales.axis}, which has {'a dynamic size' if size is None else f'size {size}'}"
    return Decline(problem, "--input-shape sets sizes")


@handler(
    "QUANTIZE",
    max_version=6,
    layout=Transparent(),
    quantization=requantization,
    accepts=check_scale_count,
    result_dtypes={"*": ("int8", "uint8", "int16", "int4", "uint4", "int2")},
)
def quantize(ctx: Context, x: Value) -> Value:
    """Return the operand, which the host quantizes.

    The host also requantizes integers: it dequantizes and quantizes them. QuantizeLinear does not support int32, so
    int32 is converted arithmetically.
    """
    ops, source, result = ctx.ops, ctx.op[0], ctx.op[out(0)]
    if result.dtype == "int32":
        return requantize_to_int32(ctx)
    if source.dtype == "int32":
        scale, zero_point = scale_and_zero_point(source)
        x = ops.Mul(ops.Cast(ops.Sub(x, np.asarray(zero_point, np.int32)), to="float32"), scale)
    offset = half_up_offset(ctx.op)
    return ops.Add(x, offset) if offset else x


def requantize_to_int32(ctx: Context) -> Value:
    """Return values requantized to int32 as in the kernel.

    Source: Requantize (reference/requantize.h).
    """
    if not ctx.target.has_kernel("", ctx.op[0].dtype):
        raise Refusal(f"requantization to int32 computes on integers, which target {ctx.target.name} does not support")
    ops, (x_parameters, y_parameters) = ctx.ops, (scale_and_zero_point(ctx.op[0]), scale_and_zero_point(ctx.op[out(0)]))
    integers = ops.Sub(ops.Cast(ctx.quantized_values(0), to="int32"), np.int32(x_parameters[1]))
    product = emit_fixed_point_product(ctx, integers, *quantized_multiplier(x_parameters[0] / y_parameters[0]))
    return ops.Add(ops.Cast(product, to="int32"), np.int32(y_parameters[1]))


def half_up_offset(op: Operator) -> float:
    """Return the offset with which QuantizeLinear rounds half up; 0 if not needed.

    An offset is needed if the output scale is twice the input scale. The kernels round half up
    (SaturatingRoundingDoublingHighMul), but QuantizeLinear rounds half to even. Value plus offset is exact in float32,
    which has 24 bits: 16 for the value and 8 for the fraction.
    """
    x_quantization, y_quantization = op[0].quantization, op[out(0)].quantization
    if not isinstance(x_quantization, Quantization) or not isinstance(y_quantization, Quantization):
        return 0.0
    if x_quantization.per_axis or y_quantization.per_axis or "int32" in (op[0].dtype, op[out(0)].dtype):
        return 0.0
    return y_quantization.scale[0] * 2.0**-8 if x_quantization.scale[0] / y_quantization.scale[0] == 0.5 else 0.0


def scale_and_zero_point(tensor: Tensor) -> tuple[float, int]:
    """Return the scale and zero point of a tensor.

    Raises Refusal if the scale is missing, per axis, 0 or NaN. Kernels divide by it.
    """
    if not isinstance(tensor.quantization, Quantization) or tensor.quantization.per_axis:
        raise Refusal(f"the {tensor.dtype} operand {tensor.name!r} has no scale, or one per axis")
    scale = tensor.quantization.scale[0]
    if not 0 < scale < inf:
        raise Refusal(f"the {tensor.dtype} operand {tensor.name!r} has a scale of {scale or 0:g}")
    return scale, tensor.quantization.zero_point[0]


def initial_value(op: Operator) -> Array | None:
    """Return the dequantized constant that initializes a variable.

    The kernel dequantizes it once (dequantize.cc).
    """
    constant, quantization = op.constant(0), op[0].quantization
    if constant is None:
        return None
    if "float" in op[0].dtype:
        return constant.astype(np.float32)
    if not isinstance(quantization, Quantization) or quantization.per_axis:
        return None
    return ((constant.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]).astype(np.float32)


def evaluate_dequantize(at: Instance) -> Array | WidenedConstant | None:
    """Return the initial value of a variable, WidenedConstant for weights, else None."""
    if at.op[out(0)].is_variable:
        return initial_value(at.op)
    return WidenedConstant() if at.op[0].is_constant else None


@handler(
    "DEQUANTIZE",
    max_version=9,
    layout=Transparent(),
    quantization=Dequantized(),
    evaluate=evaluate_dequantize,
    result_dtypes={"*": ("float32",)},
)
def dequantize(ctx: Context, x: Value) -> Value:
    """Return the operand, which the host dequantizes, or emit Cast for float16.

    Runtimes fold the Cast when they load weights.
    """
    constant = ctx.constant(0)
    if ctx.folds_weights and constant is not None and "float" in ctx.op[0].dtype:
        return ctx.constant_value(constant.astype(np.float32))
    return ctx.ops.Cast(x, to="float32") if ctx.op[0].dtype in ("float16", "bfloat16") else x


def check_range(at: Instance) -> Decline | None:
    """Return a Decline for a range that the kernel does not support."""
    options = at.op.options
    if options.narrow_range:
        return Decline("narrow_range is not supported by the kernel; it is meant for weights")
    if not options.min <= 0 <= options.max or options.min == options.max or not 1 <= options.num_bits <= 16:
        return Decline(
            f"a range of {options.min:g} to {options.max:g} in {options.num_bits} bits is not supported by the kernel; "
            "choose a range that includes 0, and 1 to 16 bits"
        )
    return None


@handler("FAKE_QUANT", max_version=2, layout=Transparent(), accepts=check_range, types="float32 -> float32")
def fake_quant(ctx: Context, x: Value) -> Value:
    """Emit rounding (half up) to steps of the range.

    The range is shifted so that 0 is a step. It is computed in float32, as in the kernel (FakeQuantizeArray;
    NudgeQuantizationRange, internal/quantization_util.cc).
    """
    ops, options = ctx.ops, ctx.options
    low, high = np.float32(options.min), np.float32(options.max)
    steps = np.float32(2**options.num_bits - 1)
    scale = np.float32((high - low) / steps)
    zero_point = np.float32(np.clip(np.floor(-low / scale + np.float32(0.5)), 0, steps))
    minimum, maximum = np.float32(-zero_point * scale), np.float32((steps - zero_point) * scale)
    position = ops.Mul(ops.Sub(ops.Min(ops.Max(x, minimum), maximum), minimum), np.float32(1) / scale)
    floor = ops.Floor(position)
    # Adding 1/2 before Floor would round up numbers just below a half.
    increment = ops.Cast(ops.GreaterOrEqual(ops.Sub(position, floor), 0.5), to="float32")
    return ops.Add(ops.Mul(ops.Add(floor, increment), scale), minimum)
