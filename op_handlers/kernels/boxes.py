"""Boxes by their corners, and how much they overlap."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Context, Value


def below(threshold: float) -> np.float32:
    """The float32 before a threshold: to be above it is to be at the threshold, or above."""
    return np.float32(np.nextafter(np.float32(threshold), np.float32(-np.inf)))


def columns(ctx: Context, values: Value, rank: int = 1) -> list[Value]:
    """The four columns of ``[N, 4]``, each ``[N]``, or ``[N, 1]`` for a rank of 2."""
    parts = ctx.ops.Split(values, np.ones(4, np.int64), axis=1, outputs=4)
    return [ctx.ops.Squeeze(part, [1]) for part in parts] if rank == 1 else list(parts)


class Boxes:
    """``[N, 4]`` corners y1 x1 y2 x2, in either order, with what their overlaps are computed from, each ``[N]``."""

    def __init__(self, ctx: Context, corners: Value) -> None:
        ops = self.ops = ctx.ops
        y1, x1, y2, x2 = columns(ctx, corners)
        self.low = (ops.Min(y1, y2), ops.Min(x1, x2))
        self.high = (ops.Max(y1, y2), ops.Max(x1, x2))
        (top, left), (bottom, right) = self.low, self.high
        self.area = ops.Mul(ops.Sub(bottom, top), ops.Sub(right, left))

    def overlap(self, one: Value) -> Value:
        """Intersection over union of box ``one`` with each; 0 where one of them is flat (ComputeIntersectionOverUnion)."""
        ops = self.ops
        area = ops.Gather(self.area, one)
        sides = [
            ops.Max(ops.Sub(ops.Min(ops.Gather(high, one), high), ops.Max(ops.Gather(low, one), low)), np.float32(0))
            for low, high in zip(self.low, self.high, strict=True)
        ]
        common = ops.Mul(*sides)
        shared = ops.Div(common, ops.Sub(ops.Add(area, self.area), common))
        flat = ops.LessOrEqual(ops.Min(area, self.area), np.float32(0))
        return ops.Where(flat, np.float32(0), shared)
