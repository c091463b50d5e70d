"""Rows written to a tensor one after the other, as the kernels do.

ONNX Runtime's ScatterND splits updates among threads: sums at one index lose terms, and of several values for one
index a random one remains. Its ScatterElements is sequential.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Refusal, Value, ValueLike

OUT_OF_RANGE = np.iinfo(np.int64).max
"""Row index out of range of any tensor: ONNX Runtime refuses it, as LiteRT refuses the original index."""


def scatter_rows(ctx: Context, base: Value, rows: Value | Array, updates: Value, reduction: str | None = None) -> Value:
    """Set ``base[rows[i]]`` to ``updates[i]``, or combine them by ``reduction``, for each ``i`` in turn.

    Shapes: base ``[P, S]``, rows ``[n]``, updates ``[n, S]``.
    """
    wide = ctx.ops.Expand(ctx.ops.Unsqueeze(rows, [1]), ctx.ops.Shape(updates))
    return ctx.ops.ScatterElements(base, wide, updates, axis=0, reduction=reduction)


def flatten_indices(ctx: Context, places: Value | Array, sizes: Value | Array, depth: int) -> Value | Array:
    """Return indices into the first ``depth`` axes as row numbers ``[n]``. An index out of range is a runtime error.

    Shapes: places ``[..., depth or more]``, sizes ``[depth or more]``. Raises Refusal if constant indices are out of
    range.
    """
    if isinstance(places, np.ndarray) and isinstance(sizes, np.ndarray):
        return flatten_constant_indices(places.reshape(-1, places.shape[-1])[:, :depth], sizes[:depth])
    ops = ctx.ops
    rows = ops.Mul(ops.Gather(places, np.asarray(0), axis=-1), 0)
    inside: ValueLike = np.asarray(True)
    for axis in range(depth):
        index, size = (ops.Gather(vector, np.asarray(axis), axis=-1) for vector in (places, sizes))
        rows = ops.Add(ops.Mul(rows, size), index)
        inside = ops.And(inside, ops.And(ops.GreaterOrEqual(index, 0), ops.Less(index, size)))
    return ops.Reshape(ops.Where(inside, rows, OUT_OF_RANGE), [-1])


def flatten_constant_indices(places: Array, sizes: Array) -> Array:
    """Return the row numbers of constant indices. Raises Refusal if one is out of range."""
    if ((places < 0) | (places >= sizes)).any():
        raise Refusal(f"an index is out of range of shape {sizes.tolist()}, which LiteRT refuses too")
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
    return np.asarray(places @ strides[: places.shape[1]], np.int64)
