"""Logical operators."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Transparent, Value, handler


@handler("LOGICAL_AND", max_version=1, layout=Transparent())
def logical_and(ctx: Context, x: Value, y: Value) -> Value:
    """Emit And."""
    return ctx.ops.And(x, y)


@handler("LOGICAL_OR", max_version=1, layout=Transparent())
def logical_or(ctx: Context, x: Value, y: Value) -> Value:
    """Emit Or."""
    return ctx.ops.Or(x, y)


@handler("LOGICAL_NOT", max_version=1, layout=Transparent())
def logical_not(ctx: Context, x: Value) -> Value:
    """Emit Not."""
    return ctx.ops.Not(x)
