"""Rows written into a tensor one after the other, as the kernels do.

ONNX Runtime's ScatterND shares its updates out among threads, so that sums at one place lose some and the last of several
values is up to chance; its ScatterElements keeps their order.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refused, Value, ValueLike

OUTSIDE = np.iinfo(np.int64).max
"""A row that no tensor has: the runtime refuses it, as LiteRT does the place that led to it."""


def scattered(ctx: Context, base: Value, rows: Value | Array, updates: Value, reduction: str | None = None) -> Value:
    """``base[rows[i]]`` becomes ``updates[i]``, or is combined with it, for each i in turn.

    Shapes: base ``[P, S]``, rows ``[n]``, updates ``[n, S]``.
    """
    wide = ctx.ops.Expand(ctx.ops.Unsqueeze(rows, [1]), ctx.ops.Shape(updates))
    return ctx.ops.ScatterElements(base, wide, updates, axis=0, reduction=reduction)


def flat_rows(ctx: Context, places: Value | Array, sizes: Value | Array, depth: int) -> Value | Array:
    """Places in the first ``depth`` axes as row numbers ``[n]``; a place outside is an error.

    Shapes: places ``[..., depth or more]``, sizes ``[depth or more]``.

    Raises Refused where that is known at conversion time.
    """
    if isinstance(places, np.ndarray) and isinstance(sizes, np.ndarray):
        return known_rows(places.reshape(-1, places.shape[-1])[:, :depth], sizes[:depth])
    ops = ctx.ops
    rows = ops.Mul(ops.Gather(places, np.asarray(0), axis=-1), 0)
    inside: ValueLike = np.asarray(True)
    for axis in range(depth):
        index, size = (ops.Gather(vector, np.asarray(axis), axis=-1) for vector in (places, sizes))
        rows = ops.Add(ops.Mul(rows, size), index)
        inside = ops.And(inside, ops.And(ops.GreaterOrEqual(index, 0), ops.Less(index, size)))
    return ops.Reshape(ops.Where(inside, rows, OUTSIDE), [-1])


def known_rows(places: Array, sizes: Array) -> Array:
    """The row numbers of constant places. Raises Refused where one is outside."""
    if ((places < 0) | (places >= sizes)).any():
        raise Refused(f"it writes outside a tensor of sizes {sizes.tolist()}, which LiteRT refuses too")
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
    return np.asarray(places @ strides[: places.shape[1]], np.int64)
