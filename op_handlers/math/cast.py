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

# Range and minimum opset of dtypes smaller than a byte; then the minimum opset of dtypes newer than opset 11.
PACKED_RANGE = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1)}
PACKED = {"int4": 21, "uint4": 21, "int2": 25}
OPSETS = PACKED | {"bfloat16": 13}


def dtypes(op: Operator) -> tuple[str, str]:
    return op[0].dtype, op[out(0)].dtype


@handler(
    "CAST",
    max_version=9,
    layout=Transparent(),
    quantization=Raw(),
    converts={"*": ("*",)},
    min_opset=lambda at: max(OPSETS.get(dtype, 1) for dtype in dtypes(at.op)),
)
def cast(ctx: Context, x: Value) -> Value:
    """Emit Cast of quantized values regardless of scale; floats are clipped to the integer range first (cast.cc)."""
    before, after = dtypes(ctx.op)
    if before == after:
        return x
    if before.startswith("complex"):
        x, before = ctx.ops.Gather(x, np.asarray(0), axis=-1), "float32"
    if after.startswith("complex"):
        return to_complex(ctx, ctx.ops.Cast(x, to=after))
    if "float" in before and "int" in after:
        x = clip_to_integer(ctx, x, before, after)
    return ctx.ops.Cast(x, to=after)


def clip_to_integer(ctx: Context, x: Value, before: str, after: str) -> Value:
    """Clip floats to the range of an integer dtype; infinity and NaN become its maximum."""
    ops = ctx.ops
    low, high = PACKED_RANGE.get(after) or (int(np.iinfo(after).min), int(np.iinfo(after).max))
    if before not in ("float32", "float64"):
        x, before = ops.Cast(x, to="float32"), "float32"
    least, most = np.asarray(low, before), np.asarray(high, before)
    below, kept = ops.Less(x, most), ops.Max(x, least)
    if int(most) > high:  # the float dtype lacks this maximum; all floats below the next one are below it too
        return ops.Where(below, ops.Cast(kept, to=after), np.asarray(high, after))
    whole = ops.Where(below, kept, most)
    return ops.Cast(whole, to="int8") if after in PACKED else whole


def to_complex(ctx: Context, x: Value) -> Value:
    """Return floats as complex numbers: pairs with an imaginary part of 0."""
    pads = np.zeros((2, ctx.op[0].rank + 1), np.int64)
    pads[1, -1] = 1
    return ctx.ops.Pad(ctx.ops.Unsqueeze(x, [-1]), pads.reshape(-1))


# --- bits ---------------------------------------------------------------------------------------

BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


def bit_width(dtype: str) -> int:
    return BITS.get(dtype) or int(np.iinfo(dtype).bits)


def check_bit_patterns(at: Instance) -> Decline | None:
    """Return a Decline for dtypes whose bit patterns ONNX does not define, and for a cast to bool."""
    before, after = dtypes(at.op)
    for dtype in (before, after):
        to_bool = dtype == "bool" != before
        if dtype in PACKED or "float8" in dtype or dtype.startswith("complex") or dtype == "string" or to_bool:
            return Decline(f"the operator reads the bits of {dtype}, which ONNX does not define; bitcast another dtype")
    return None


def required_opset(at: Instance) -> int:
    """Return the opset of BitCast if a float is read as another dtype; integers are split arithmetically."""
    before, after = dtypes(at.op)
    return 26 if before != after and (before in BITS or after in BITS) else 1


@handler(
    "BITCAST",
    max_version=1,
    layout=lambda at: Transparent() if at.op[0].rank == at.op[out(0)].rank else Terminate(),
    quantization=Raw(),
    converts={"*": ("*",)},
    accepts=check_bit_patterns,
    min_opset=required_opset,
)
def bitcast(ctx: Context, x: Value) -> Value:
    """Emit BitCast; to another width by unsigned integers, least significant part first (bitcast.cc)."""
    before, after = dtypes(ctx.op)
    if before == after:
        return x
    if before == "bool":
        x, before = ctx.ops.Cast(x, to="uint8"), "uint8"
    wide, narrow = f"uint{bit_width(before)}", f"uint{bit_width(after)}"
    stored = reinterpret(ctx, x, before, wide)
    if bit_width(before) > bit_width(after):
        stored = split_words(ctx, stored, bit_width(before), bit_width(after))
    elif bit_width(before) < bit_width(after):
        stored = merge_words(ctx, stored, bit_width(before), bit_width(after))
    return reinterpret(ctx, stored, narrow, after)


def reinterpret(ctx: Context, x: Value, before: str, after: str) -> Value:
    """Reinterpret as another dtype of the same width; Cast between integers wraps around, which is equivalent."""
    if before == after:
        return x
    real = before in BITS or after in BITS
    return ctx.ops.BitCast(x, to=after) if real else ctx.ops.Cast(x, to=after)


def split_words(ctx: Context, x: Value, before: int, after: int) -> Value:
    """Split each number into parts along a new last axis."""
    ops, base = ctx.ops, np.asarray(2**after, np.uint64)
    x = ops.Cast(x, to="uint64")
    parts = [ops.Unsqueeze(x, [ctx.op[0].rank])]
    for _ in range(before // after - 1):
        parts.append(ops.Div(parts[-1], base))
    return ops.Cast(ops.Mod(ops.Concat(*parts, axis=-1), base), to=f"uint{after}")


def merge_words(ctx: Context, x: Value, before: int, after: int) -> Value:
    """Combine the parts along the last axis into numbers."""
    ops, count = ctx.ops, after // before
    weights = np.asarray([1 << before * k for k in range(count)], np.uint64)
    parts = ops.Mul(ops.Cast(x, to="uint64"), weights)
    each = [ops.Gather(parts, np.asarray(k), axis=-1) for k in range(count)]
    return ops.Cast(reduce(ops.Add, each), to=f"uint{after}")
