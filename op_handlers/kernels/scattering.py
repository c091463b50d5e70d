"""Scatter of rows, one update after the other as in the kernels.

ONNX Runtime's ScatterElements is sequential. Its ScatterND splits updates among threads: sums at one index lose terms,
and one of several values for an index is selected at random.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Operator, Refusal, Value, ValueLike

OUT_OF_RANGE = np.iinfo(np.int64).max
"""Row index that is out of range for every tensor, so that ONNX Runtime fails where LiteRT fails."""


def scatter_rows(ctx: Context, base: Value, rows: Value | Array, updates: Value, reduction: str | None = None) -> Value:
    """Return ``base`` with the rows at ``rows`` replaced by ``updates``, in order.

    ``reduction``: operation that combines old row and update. Shapes: base ``[P, S]``, rows ``[n]``, updates ``[n,
    S]``.
    """
    indices = ctx.ops.Expand(ctx.ops.Unsqueeze(rows, [1]), ctx.ops.Shape(updates))
    return ctx.ops.ScatterElements(base, indices, updates, axis=0, reduction=reduction)


def index_size(op: Operator, slot: int) -> int:
    """Return the number of coordinates of each index in ``[..., size]``.

    Raises Refusal if the size is dynamic.
    """
    size = op[slot].dims[-1]
    if size is None:
        raise Refusal(f"the last axis of the indices {op[slot].name!r} is dynamic; set its size with --input-shape")
    return size


def flatten_indices(ctx: Context, indices: Value | Array, sizes: Value | Array, depth: int) -> Value | Array:
    """Return indices into the first ``depth`` axes as row numbers ``[n]``.

    Shapes: indices ``[..., depth or more]``, sizes ``[depth or more]``. An index out of range fails at runtime. Raises
    Refusal if constant indices are out of range.
    """
    if isinstance(indices, np.ndarray) and isinstance(sizes, np.ndarray):
        return flatten_constant_indices(indices.reshape(-1, indices.shape[-1])[:, :depth], sizes[:depth])
    ops = ctx.ops
    rows = ops.Mul(ops.Gather(indices, np.asarray(0), axis=-1), 0)
    in_range: ValueLike = np.asarray(True)
    for axis in range(depth):
        index, size = (ops.Gather(vector, np.asarray(axis), axis=-1) for vector in (indices, sizes))
        rows = ops.Add(ops.Mul(rows, size), index)
        in_range = ops.And(in_range, ops.And(ops.GreaterOrEqual(index, 0), ops.Less(index, size)))
    return ops.Reshape(ops.Where(in_range, rows, OUT_OF_RANGE), [-1])


def flatten_constant_indices(indices: Array, sizes: Array) -> Array:
    """Return the row numbers of constant indices. Raises Refusal if out of range."""
    if ((indices < 0) | (indices >= sizes)).any():
        raise Refusal(f"an index is out of range of shape {sizes.tolist()}, which LiteRT refuses too")
    strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
    return np.asarray(indices @ strides[: indices.shape[1]], np.int64)
