"""Conversions between dtypes, regardless of quantization."""

from __future__ import annotations

from functools import reduce

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Terminate,
    Transparent,
    Value,
    handler,
    out,
)

# Ranges of dtypes smaller than a byte. Dtypes without an entry in MIN_OPSETS exist from opset 11 on.
PACKED_RANGE = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1)}
PACKED_MIN_OPSETS = {"int4": 21, "uint4": 21, "int2": 25}
MIN_OPSETS = PACKED_MIN_OPSETS | {"bfloat16": 13}


def source_and_result_dtypes(op: Operator) -> tuple[str, str]:
    return op[0].dtype, op[out(0)].dtype


@handler(
    "CAST",
    max_version=9,
    layout=Transparent(),
    quantization=Raw(),
    result_dtypes={"*": ("*",)},
    min_opset=lambda at: max(MIN_OPSETS.get(dtype, 1) for dtype in source_and_result_dtypes(at.op)),
)
def cast(ctx: Context, x: Value) -> Value:
    """Emit Cast of quantized values, with floats clipped to the range of integers.

    Scales are ignored (cast.cc).
    """
    source_dtype, result_dtype = source_and_result_dtypes(ctx.op)
    if source_dtype == result_dtype:
        return x
    if source_dtype.startswith("complex"):
        x, source_dtype = ctx.ops.Gather(x, np.asarray(0), axis=-1), "float32"
    if result_dtype.startswith("complex"):
        return to_complex(ctx, ctx.ops.Cast(x, to=result_dtype))
    if "float" in source_dtype and "int" in result_dtype:
        x = clip_to_integer(ctx, x, source_dtype, result_dtype)
    return ctx.ops.Cast(x, to=result_dtype)


def clip_to_integer(ctx: Context, x: Value, source_dtype: str, result_dtype: str) -> Value:
    """Return floats clipped to the range of an integer dtype.

    Infinity and NaN become the maximum.
    """
    ops = ctx.ops
    low, high = PACKED_RANGE.get(result_dtype) or (int(np.iinfo(result_dtype).min), int(np.iinfo(result_dtype).max))
    if source_dtype not in ("float32", "float64"):
        x, source_dtype = ops.Cast(x, to="float32"), "float32"
    minimum, maximum = np.asarray(low, source_dtype), np.asarray(high, source_dtype)
    is_below, clipped = ops.Less(x, maximum), ops.Max(x, minimum)
    if int(maximum) > high:  # the float dtype cannot represent this maximum; it was rounded up
        return ops.Where(is_below, ops.Cast(clipped, to=result_dtype), np.asarray(high, result_dtype))
    in_range = ops.Where(is_below, clipped, maximum)
    return ops.Cast(in_range, to="int8") if result_dtype in PACKED_RANGE else in_range


def to_complex(ctx: Context, x: Value) -> Value:
    """Return floats as complex numbers: pairs with an imaginary part of 0."""
    pads = np.zeros((2, ctx.op[0].rank + 1), np.int64)
    pads[1, -1] = 1
    return ctx.ops.Pad(ctx.ops.Unsqueeze(x, [-1]), pads.reshape(-1))


# --- bits ---------------------------------------------------------------------------------------

FLOAT_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


def bit_width(dtype: str) -> int:
    return FLOAT_BITS.get(dtype) or int(np.iinfo(dtype).bits)


def check_bit_patterns(at: Instance) -> Decline | None:
    """Return a Decline for dtypes whose bit patterns ONNX does not define.

    A bitcast to bool is declined too.
    """
    source_dtype, result_dtype = source_and_result_dtypes(at.op)
    for dtype in (source_dtype, result_dtype):
        to_bool = dtype == "bool" != source_dtype
        if dtype in PACKED_RANGE or "float8" in dtype or dtype.startswith("complex") or dtype == "string" or to_bool:
            return Decline(f"the operator reads the bits of {dtype}, which ONNX does not define; bitcast another dtype")
    return None


def required_opset(at: Instance) -> int:
    """Return the opset of BitCast if a dtype is a float, else 1.

    Integers are split and merged with arithmetic operators.
    """
    source_dtype, result_dtype = source_and_result_dtypes(at.op)
    return 26 if source_dtype != result_dtype and (source_dtype in FLOAT_BITS or result_dtype in FLOAT_BITS) else 1


@handler(
    "BITCAST",
    max_version=1,
    layout=lambda at: Transparent() if at.op[0].rank == at.op[out(0)].rank else Terminate(),
    quantization=Raw(),
    result_dtypes={"*": ("*",)},
    accepts=check_bit_patterns,
    min_opset=required_opset,
)
def bitcast(ctx: Context, x: Value) -> Value:
    """Emit BitCast.

    If the widths differ, values are split or merged as unsigned integers, least significant word first (bitcast.cc).
    """
    source_dtype, result_dtype = source_and_result_dtypes(ctx.op)
    if source_dtype == result_dtype:
        return x
    if source_dtype == "bool":
        x, source_dtype = ctx.ops.Cast(x, to="uint8"), "uint8"
    source_uint, result_uint = f"uint{bit_width(source_dtype)}", f"uint{bit_width(result_dtype)}"
    bits = reinterpret(ctx, x, source_dtype, source_uint)
    if bit_width(source_dtype) > bit_width(result_dtype):
        bits = split_words(ctx, bits, bit_width(source_dtype), bit_width(result_dtype))
    elif bit_width(source_dtype) < bit_width(result_dtype):
        bits = merge_words(ctx, bits, bit_width(source_dtype), bit_width(result_dtype))
    return reinterpret(ctx, bits, result_uint, result_dtype)


def reinterpret(ctx: Context, x: Value, source_dtype: str, result_dtype: str) -> Value:
    """Return values reinterpreted in another dtype of the same width.

    For integers, Cast wraps around and is therefore equivalent.
    """
    if source_dtype == result_dtype:
        return x
    has_float = source_dtype in FLOAT_BITS or result_dtype in FLOAT_BITS
    return ctx.ops.BitCast(x, to=result_dtype) if has_float else ctx.ops.Cast(x, to=result_dtype)


def split_words(ctx: Context, x: Value, source_bits: int, result_bits: int) -> Value:
    """Return each number split into words along a new last axis."""
    ops, base = ctx.ops, np.asarray(2**result_bits, np.uint64)
    x = ops.Cast(x, to="uint64")
    quotients = [ops.Unsqueeze(x, [ctx.op[0].rank])]
    for _ in range(source_bits // result_bits - 1):
        quotients.append(ops.Div(quotients[-1], base))
    return ops.Cast(ops.Mod(ops.Concat(*quotients, axis=-1), base), to=f"uint{result_bits}")


def merge_words(ctx: Context, x: Value, source_bits: int, result_bits: int) -> Value:
    """Return numbers combined from words along the last axis."""
    ops, count = ctx.ops, result_bits // source_bits
    weights = np.asarray([1 << source_bits * k for k in range(count)], np.uint64)
    shifted = ops.Mul(ops.Cast(x, to="uint64"), weights)
    shifted_words = [ops.Gather(shifted, np.asarray(k), axis=-1) for k in range(count)]
    return ops.Cast(reduce(ops.Add, shifted_words), to=f"uint{result_bits}")
