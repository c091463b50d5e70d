"""Resizing that is decomposed into RESHAPE and TILE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_tflite_plugin.api import Call, Context, Decline, Match, Value, fusion, operands, out
from op_handlers.image.resize import resize_nearest_neighbor

x, opened, turned, closed = operands("x opened turned closed")
down, across = operands("down across", constant=True)

_rows = Call("TILE", Call("RESHAPE", x, opened), down)
KERAS = Call("RESHAPE", Call("TILE", Call("RESHAPE", _rows, turned), across), closed)


def match_repetition(match: Match) -> Mapping[str, Any] | Decline:
    """Return how often rows and columns are repeated."""
    end, _, middle, _, start = match.calls.values()
    if match[x].rank != 4 or None in match[x].dims:
        return Decline("the input is not an image of static shape")
    (n, h, w, c), k, j = match[x].dims, match[down].array.tolist(), match[across].array.tolist()
    if len(k) != 5 or len(j) != 5 or not k[2] or not j[3]:
        return Decline("TILE repeats other axes than rows and columns")
    tall, wide = (h or 0) * k[2], (w or 0) * j[3]
    steps = ((start, (n, h, 1, w, c)), (middle, (n, tall, w, 1, c)), (end, (n, tall, wide, c)))
    if any(op[out(0)].dims != dims for op, dims in steps):
        return Decline("RESHAPE regroups other axes than rows and columns")  # the shapes allow nothing else
    return {"times": (k[2], j[3])}


@fusion(
    "UPSAMPLING_2D",
    pattern=KERAS,
    inputs=(x,),
    check=match_repetition,
    layout=resize_nearest_neighbor.layout,
    axes=resize_nearest_neighbor.axes,
    axis_price=resize_nearest_neighbor.axis_price,
    quantization=resize_nearest_neighbor.quantization,
)
def upsampling_2d(ctx: Context, x: Value) -> Value:
    """Emit nearest-neighbor Resize; Keras repeats rows, then columns."""
    y: Value = resize_nearest_neighbor(ctx, x)
    return y
