"""Logic of bool."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Transparent, handler


@handler("LOGICAL_AND", max_version=1, layout=Transparent())
def logical_and(ctx: Context, x: Any, y: Any) -> Any:
    """And."""
    return ctx.ops.And(x, y)


@handler("LOGICAL_OR", max_version=1, layout=Transparent())
def logical_or(ctx: Context, x: Any, y: Any) -> Any:
    """Or."""
    return ctx.ops.Or(x, y)


@handler("LOGICAL_NOT", max_version=1, layout=Transparent())
def logical_not(ctx: Context, x: Any) -> Any:
    """Not."""
    return ctx.ops.Not(x)
