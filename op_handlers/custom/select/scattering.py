"""TensorFlow's scattering of updates and sums of segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Handler, Operator, Terminate, Value, handler
from op_handlers.custom.select.nodedef import PREFIX
from op_handlers.custom.select.rewriting import (
    INDICES,
    acceptance_check,
    element_count_check,
    make_kernel,
    rank_check,
    rewrite_to,
    rewrite_with_int32,
)
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.kernels.scattering import flatten_indices, index_size, scatter_rows
from op_handlers.tensor import scattering as builtin
from op_handlers.tensor import segments

NUMBERS = ("float32", "float64", "int32", "int64")


# --- updates at indices -----------------------------------------------------------------------


def assign(x: Array, indices: Any, updates: Array) -> None:
    x[indices] = updates


def scatter_handler(
    name: str, reduction: str, update: Any, *, min_opset: int = 18, negates_updates: bool = False
) -> Handler:
    """Return the handler of an operator that updates a tensor at indices.

    ``reduction``: the attribute of ScatterElements. ``update``: function that applies updates to a NumPy array at indices.
    ``negates_updates``: True to subtract the updates.
    """

    def kernel(op: Operator, x: Array, indices: Array, updates: Array) -> Array:
        result = x.copy()
        update(result, tuple(np.moveaxis(indices, -1, 0)), -updates if negates_updates else updates)
        return result

    def lower(ctx: Context, x: Value, indices: Value, updates: Value) -> Value:
        ops, size, sizes = ctx.ops, index_size(ctx.op, 1), ctx.ops.Shape(x)
        rows = flatten_indices(ctx, cast_to_int64(ctx, 1, indices), sizes, size)
        values = ops.Flatten(ops.Neg(updates) if negates_updates else updates, axis=ctx.op[1].rank - 1)
        return ops.Reshape(scatter_rows(ctx, ops.Flatten(x, axis=size), rows, values, reduction or None), sizes)

    lower.__name__, lower.__doc__ = name, f"Emit ScatterElements with the reduction {reduction or 'none'!r}."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Terminate(),
        min_opset=min_opset,
        types=tuple(f"{dtype}, {INDICES}, {dtype} -> {dtype}" for dtype in NUMBERS),
        accepts=acceptance_check(3),
        kernel=kernel,
    )(lower)


tensor_scatter_max = scatter_handler("TensorScatterMax", "max", np.maximum.at)
tensor_scatter_min = scatter_handler("TensorScatterMin", "min", np.minimum.at)
tensor_scatter_add = scatter_handler("TensorScatterAdd", "add", np.add.at, min_opset=16)
tensor_scatter_sub = scatter_handler("TensorScatterSub", "add", np.add.at, min_opset=16, negates_updates=True)
tensor_scatter_update = scatter_handler("TensorScatterUpdate", "", assign, min_opset=11)


def scatter_array(indices: Array, updates: Array, shape: Array) -> Array:
    result = np.zeros([int(size) for size in shape], updates.dtype)
    np.add.at(result, tuple(np.moveaxis(indices, -1, 0)), updates)
    return result


scatter_nd = rewrite_to(
    "ScatterNd",
    builtin.scatter_nd,
    make_kernel(scatter_array),
    operands=3,
    rewrite=rewrite_with_int32(builtin.scatter_nd, 0, 2),
    types=tuple(f"{indices}, {dtype}, {indices} -> {dtype}" for dtype in NUMBERS for indices in INDICES.split()),
)


# --- segments ---------------------------------------------------------------------------------


def segment_handler(name: str, base: Handler, function: Any, initial: Any) -> Handler:
    """Return the handler of an operator that combines the slices of each segment.

    ``function``: NumPy function of two slices. ``initial``: function of a dtype that returns the value of a segment
    without slices.
    """

    def kernel(op: Operator, x: Array, ids: Array, count: Array) -> Array:
        result = np.full((int(count), *x.shape[ids.ndim :]), initial(x.dtype), x.dtype)
        slices = x.reshape(-1, *x.shape[ids.ndim :])
        is_used = ids.reshape(-1) >= 0  # TensorFlow drops slices with a negative id
        function.at(result, ids.reshape(-1)[is_used], slices[is_used])
        return result

    return rewrite_to(
        name,
        base,
        kernel,
        operands=3,
        rewrite=rewrite_with_int32(base, 1, 2),
        types=tuple(f"{dtype}, {INDICES}, {INDICES} -> {dtype}" for dtype in ("float32", "int32")),
        accepts=element_count_check(slot=2, count=1),
    )


def lowest(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max


unsorted_segment_sum = segment_handler("UnsortedSegmentSum", segments.unsorted_segment_sum, np.add, lambda dtype: 0)
unsorted_segment_prod = segment_handler(
    "UnsortedSegmentProd", segments.unsorted_segment_prod, np.multiply, lambda dtype: 1
)
unsorted_segment_max = segment_handler("UnsortedSegmentMax", segments.unsorted_segment_max, np.maximum, lowest)
unsorted_segment_min = segment_handler("UnsortedSegmentMin", segments.unsorted_segment_min, np.minimum, highest)


def segment_sums(x: Array, ids: Array) -> Array:
    result = np.zeros((int(ids[-1]) + 1 if len(ids) else 0, *x.shape[1:]), x.dtype)
    np.add.at(result, ids, x)
    return result


segment_sum = rewrite_to(
    "SegmentSum",
    segments.segment_sum,
    make_kernel(segment_sums),
    operands=2,
    rewrite=rewrite_with_int32(segments.segment_sum, 1),
    types=tuple(f"{dtype}, {INDICES} -> {dtype}" for dtype in ("float32", "int32")),
    accepts=rank_check({1: 1}),
)
