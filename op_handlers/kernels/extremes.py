"""The larger or smaller of two numbers."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Value


def extreme(ctx: Context, onnx: str, x: Value, y: Value) -> Value:
    """``Max`` or ``Min``; of int64 by a comparison, for ONNX Runtime's kernels mistake numbers that differ beyond 32 bits."""
    ops = ctx.ops
    if ctx.op[0].dtype != "int64":
        return ops.named(onnx)(x, y)
    return ops.Where(ops.Less(x, y) if onnx == "Max" else ops.Less(y, x), y, x)
