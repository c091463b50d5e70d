"""Between dtypes, whatever the quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Context, Operator, Raw, Transparent, handler, out

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
    min_opset=lambda at: max(PACKED.get(dtype, 13) for dtype in dtypes(at.op)),
)
def cast(ctx: Context, x: Any) -> Any:
    """Cast of what is stored, whatever its scale; real numbers are cut to the range of integers first (cast.cc)."""
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


def cut(ctx: Context, x: Any, before: str, after: str) -> Any:
    """Real numbers in the range of an integer dtype; infinity and NaN become its highest number."""
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


def paired(ctx: Context, x: Any) -> Any:
    """Real numbers as complex ones: pairs whose second number is 0."""
    pads = np.zeros((2, ctx.op[0].rank + 1), np.int64)
    pads[1, -1] = 1
    return ctx.ops.Pad(ctx.ops.Unsqueeze(x, [-1]), pads.reshape(-1))
