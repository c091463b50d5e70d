"""Upsampling that is decomposed into RESHAPE and TILE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_tflite_plugin.api import Call, Context, Decline, Match, Value, fusion, operands, out
from op_handlers.image.resize import resize_nearest_neighbor

x, row_shape, column_shape, result_shape = operands("x row_shape column_shape result_shape")
row_repeats, column_repeats = operands("row_repeats column_repeats", constant=True)

# Keras repeats rows, then columns.
_repeated_rows = Call("TILE", Call("RESHAPE", x, row_shape), row_repeats)
KERAS_PATTERN = Call(
    "RESHAPE", Call("TILE", Call("RESHAPE", _repeated_rows, column_shape), column_repeats), result_shape
)


def match_repetition(match: Match) -> Mapping[str, Any] | Decline:
    """Return how many times rows and columns are repeated, or a Decline."""
    last_reshape, _, middle_reshape, _, first_reshape = match.calls.values()
    if match[x].rank != 4 or None in match[x].dims:
        return Decline("the input is not an image of static shape")
    (n, h, w, c), row_repetitions, column_repetitions = (
        match[x].dims,
        match[row_repeats].array.tolist(),
        match[column_repeats].array.tolist(),
    )
    if len(row_repetitions) != 5 or len(column_repetitions) != 5 or not row_repetitions[2] or not column_repetitions[3]:
        return Decline("TILE repeats axes other than height and width")
    new_h, new_w = (h or 0) * row_repetitions[2], (w or 0) * column_repetitions[3]
    expected_results = (
        (first_reshape, (n, h, 1, w, c)),
        (middle_reshape, (n, new_h, w, 1, c)),
        (last_reshape, (n, new_h, new_w, c)),
    )
    if any(op[out(0)].dims != dims for op, dims in expected_results):
        return Decline("RESHAPE regroups axes other than height and width")
    return {"times": (row_repetitions[2], column_repetitions[3])}


@fusion(
    "UPSAMPLING_2D",
    pattern=KERAS_PATTERN,
    inputs=(x,),
    check=match_repetition,
    layout=resize_nearest_neighbor.layout,
    axes=resize_nearest_neighbor.axes,
    axis_price=resize_nearest_neighbor.axis_price,
    quantization=resize_nearest_neighbor.quantization,
)
def upsampling_2d(ctx: Context, x: Value) -> Value:
    """Emit Resize with nearest-neighbor interpolation."""
    y: Value = resize_nearest_neighbor(ctx, x)
    return y
