"""Resizing images."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Along, Attribute, Context, Dequantized, Operator, handler, out


def sampled(op: Operator) -> Along | None:
    """Resizing many channels is faster with the channels last; what was dequantized has a price of its own."""
    if (op[0].dims[3] or 1) < 8:
        return None
    return Along("Resize" if op[0].dtype == "float32" else "Resize/dequantized", "h w", slot=out(0))


@handler(
    "RESIZE_BILINEAR",
    max_version=4,
    layout=Attribute(unordered="n c"),
    axes="n h w c -> n h w c",
    along=sampled,
    quantization=Dequantized(),
)
def resize_bilinear(ctx: Context, x: Any, size: Any) -> Any:
    """Resize, linear."""
    return ctx.ops.Resize(x, None, None, sizes(ctx, size), mode="linear", coordinate_transformation_mode=coordinates(ctx))


def coordinates(ctx: Context) -> str:
    o = ctx.options
    return "align_corners" if o.align_corners else "half_pixel" if o.half_pixel_centers else "asymmetric"


def sizes(ctx: Context, size: Any) -> Any:
    """The output's shape in planned order: batch and channels as they are, [height, width] from the operand."""
    n, _, _, c = ctx.op[0].dims
    held = ctx.op.constant(1)
    if held is not None and n is not None and c is not None:
        return np.asarray(ctx.by_axis([n, *held.reshape(-1), c]), np.int64)
    shape, wanted = ctx.ops.Shape(ctx.raw(0)), ctx.ops.Cast(size, to="int64")
    picked = {0: (shape, ctx.axis(0)), 1: (wanted, 0), 2: (wanted, 1), 3: (shape, ctx.axis(3))}
    return ctx.ops.Concat(*(ctx.ops.Gather(picked[axis][0], [picked[axis][1]]) for axis in ctx.perm()), axis=0)
