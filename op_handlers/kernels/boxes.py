"""Corners and overlap of boxes."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Value


def float32_below(threshold: float) -> np.float32:
    """Return the largest float32 below a threshold, so that ``>`` can replace ``>=``."""
    return np.float32(np.nextafter(np.float32(threshold), np.float32(-np.inf)))


def split_columns(ctx: Context, values: Value, rank: int = 1) -> list[Value]:
    """Return the four columns of ``[N, 4]``, with shape ``[N]`` or ``[N, 1]``.

    ``rank``: rank of each column, 1 or 2.
    """
    columns = ctx.ops.Split(values, np.ones(4, np.int64), axis=1, outputs=4)
    return [ctx.ops.Squeeze(column, [1]) for column in columns] if rank == 1 else list(columns)


class Boxes:
    """Boxes ``[N, 4]`` with two corners y1 x1 y2 x2, in either order.

    ``low`` and ``high``: the lower and upper corners. ``area``: the areas, ``[N]``.
    """

    def __init__(self, ctx: Context, corners: Value) -> None:
        ops = self.ops = ctx.ops
        y1, x1, y2, x2 = split_columns(ctx, corners)
        self.low = (ops.Min(y1, y2), ops.Min(x1, x2))
        self.high = (ops.Max(y1, y2), ops.Max(x1, x2))
        (top, left), (bottom, right) = self.low, self.high
        self.area = ops.Mul(ops.Sub(bottom, top), ops.Sub(right, left))

    def overlap(self, index: Value) -> Value:
        """Return the intersection over union of one box with each box.

        ``index``: the index of the box. The overlap is 0 if either box has no area. Source:
        ComputeIntersectionOverUnion.
        """
        ops = self.ops
        area = ops.Gather(self.area, index)
        sides = [
            ops.Max(
                ops.Sub(ops.Min(ops.Gather(high, index), high), ops.Max(ops.Gather(low, index), low)), np.float32(0)
            )
            for low, high in zip(self.low, self.high, strict=True)
        ]
        intersection = ops.Mul(*sides)
        ratio = ops.Div(intersection, ops.Sub(ops.Add(area, self.area), intersection))
        has_no_area = ops.LessOrEqual(ops.Min(area, self.area), np.float32(0))
        return ops.Where(has_no_area, np.float32(0), ratio)
