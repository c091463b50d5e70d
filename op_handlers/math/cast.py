"""Between dtypes, whatever the quantization."""

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

# Dtypes of less than a byte: their range, and the opset from which ONNX has them.
PACKED_RANGE = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1)}
PACKED = {"int4": 21, "uint4": 21, "int2": 25}


def dtypes(op: Operator) -> tuple[str, str]:
    return op[0].dtype, op[out(0)].dtype


@handler(
    "CAST",
    max_version=9,
    layout=Transparent(),
    quantization=Raw(),
    converts={"*": ("*",)},
    min_opset=lambda at: max(PACKED.get(dtype, 13) for dtype in dtypes(at.op)),
)
def cast(ctx: Context, x: Value) -> Value:
    """Cast of what is stored, whatever its scale; floats are cut to the range of integers first (cast.cc)."""
    before, after = dtypes(ctx.op)
    if before == after:
        return x
    if before.startswith("complex"):
        x, before = ctx.ops.Gather(x, np.asarray(0), axis=-1), "float32"
    if after.startswith("complex"):
        return paired(ctx, ctx.ops.Cast(x, to=after))
    if "float" in before and "int" in after:
        x = cut(ctx, x, before, after)
    return ctx.ops.Cast(x, to=after)


def cut(ctx: Context, x: Value, before: str, after: str) -> Value:
    """Floats in the range of an integer dtype; infinity and NaN become its highest number."""
    ops = ctx.ops
    low, high = PACKED_RANGE.get(after) or (int(np.iinfo(after).min), int(np.iinfo(after).max))
    if before not in ("float32", "float64"):
        x, before = ops.Cast(x, to="float32"), "float32"
    least, most = np.asarray(low, before), np.asarray(high, before)
    below, kept = ops.Less(x, most), ops.Max(x, least)
    if int(most) > high:  # it has no such number, but the next: what is below that is below this too
        return ops.Where(below, ops.Cast(kept, to=after), np.asarray(high, after))
    whole = ops.Where(below, kept, most)
    return ops.Cast(whole, to="int8") if after in PACKED else whole


def paired(ctx: Context, x: Value) -> Value:
    """Floats as complex ones: pairs whose second number is 0."""
    pads = np.zeros((2, ctx.op[0].rank + 1), np.int64)
    pads[1, -1] = 1
    return ctx.ops.Pad(ctx.ops.Unsqueeze(x, [-1]), pads.reshape(-1))


# --- bits ---------------------------------------------------------------------------------------

BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


def bits(dtype: str) -> int:
    return BITS.get(dtype) or int(np.iinfo(dtype).bits)


def shared_bits(at: Instance) -> Decline | None:
    """What has bits of its own in ONNX; True is 1 in both, but a bool may be made of no other bits."""
    before, after = dtypes(at.op)
    for dtype in (before, after):
        to_bool = dtype == "bool" != before
        if dtype in PACKED or "float8" in dtype or dtype.startswith("complex") or dtype == "string" or to_bool:
            return Decline(f"it reads the bits of {dtype}, which ONNX gives no meaning; bitcast another dtype")
    return None


def needs_bitcast(at: Instance) -> int:
    """The opset with BitCast where a float is read as another dtype; integers are split by arithmetic."""
    before, after = dtypes(at.op)
    return 26 if before != after and (before in BITS or after in BITS) else 13


@handler(
    "BITCAST",
    max_version=1,
    layout=lambda at: Transparent() if at.op[0].rank == at.op[out(0)].rank else Terminate(),
    quantization=Raw(),
    converts={"*": ("*",)},
    accepts=shared_bits,
    min_opset=needs_bitcast,
)
def bitcast(ctx: Context, x: Value) -> Value:
    """BitCast; to another width through unsigned integers, the least significant part first (bitcast.cc)."""
    before, after = dtypes(ctx.op)
    if before == after:
        return x
    if before == "bool":
        x, before = ctx.ops.Cast(x, to="uint8"), "uint8"
    wide, narrow = f"uint{bits(before)}", f"uint{bits(after)}"
    stored = same_bits(ctx, x, before, wide)
    if bits(before) > bits(after):
        stored = split(ctx, stored, bits(before), bits(after))
    elif bits(before) < bits(after):
        stored = merged(ctx, stored, bits(before), bits(after))
    return same_bits(ctx, stored, narrow, after)


def same_bits(ctx: Context, x: Value, before: str, after: str) -> Value:
    """Another dtype of the same width; between integers Cast wraps around, which is the same."""
    if before == after:
        return x
    real = before in BITS or after in BITS
    return ctx.ops.BitCast(x, to=after) if real else ctx.ops.Cast(x, to=after)


def split(ctx: Context, x: Value, before: int, after: int) -> Value:
    """The parts of each number, along a new last axis."""
    ops, base = ctx.ops, np.asarray(2**after, np.uint64)
    x = ops.Cast(x, to="uint64")
    parts = [ops.Unsqueeze(x, [ctx.op[0].rank])]
    for _ in range(before // after - 1):
        parts.append(ops.Div(parts[-1], base))
    return ops.Cast(ops.Mod(ops.Concat(*parts, axis=-1), base), to=f"uint{after}")


def merged(ctx: Context, x: Value, before: int, after: int) -> Value:
    """A number of the parts along the last axis."""
    ops, count = ctx.ops, after // before
    weights = np.asarray([1 << before * k for k in range(count)], np.uint64)
    parts = ops.Mul(ops.Cast(x, to="uint64"), weights)
    each = [ops.Gather(parts, np.asarray(k), axis=-1) for k in range(count)]
    return ops.Cast(reduce(ops.Add, each), to=f"uint{after}")
