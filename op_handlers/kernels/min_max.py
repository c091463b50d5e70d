"""Minimum and maximum of two tensors."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Value


def emit_min_max(ctx: Context, op_type: str, x: Value, y: Value) -> Value:
    """Emit ``Max`` or ``Min``. For int64, emit a comparison and ``Where``.

    ONNX Runtime's int64 kernels are wrong for numbers that differ beyond 32 bits.
    """
    ops = ctx.ops
    if ctx.op[0].dtype != "int64":
        return ops.named(op_type)(x, y)
    return ops.Where(ops.Less(x, y) if op_type == "Max" else ops.Less(y, x), y, x)
