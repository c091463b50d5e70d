"""Gather and scatter of slices at runtime indices."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Refusal,
    Terminate,
    Value,
    handler,
    out,
    spend_budget,
)
from op_handlers.kernels.operands import cast_to_int64

# --- gather -----------------------------------------------------------------------------------


def check_index_vectors(op: Operator) -> Decline | None:
    """Return a Decline if the axis of index vectors does not exist.

    The kernel would read beyond the indices (ReadIndexVector, tensor_slice_util.h).
    """
    if op.options.index_vector_dim < 0:
        return Decline(f"index_vector_dim is {op.options.index_vector_dim}, which is not an axis of the indices")
    if op.options.index_vector_dim >= op[1].rank:
        return Decline(
            "the axis of index vectors is missing, so the kernel reads beyond the shape of the indices; add an axis of size 1"
        )
    return None


def check_gather(at: Instance) -> Decline | None:
    if not at.op.options.start_index_map:
        return Decline("start_index_map is empty, so the indices refer to no axis")
    options, x, index = at.op.options, at.op[0], at.op[1]
    if not {*options.start_index_map} <= {*range(x.rank)}:
        return Decline(f"start_index_map is {list(options.start_index_map)}, but the rank is {x.rank}")
    length = index.dims[options.index_vector_dim] if 0 <= options.index_vector_dim < index.rank else 1
    if length != len(options.start_index_map) or len(options.slice_sizes) != x.rank:
        lengths = f"{'of dynamic length' if length is None else length} for {len(options.start_index_map)} axes"
        return Decline(
            f"index vectors are {lengths}, and slice_sizes has {len(options.slice_sizes)} entries for rank {x.rank}"
        )
    slice_axes, offset_dims, result = (
        x.rank - len({*options.collapsed_slice_dims}),
        {*options.offset_dims},
        at.op[out(0)],
    )
    rank = result.rank if result.has_rank else slice_axes + index.rank - 1
    if len(offset_dims) != slice_axes or rank != slice_axes + index.rank - 1 or not offset_dims <= {*range(rank)}:
        return Decline(
            f"the slices have {slice_axes} axes, but offset_dims is {sorted(offset_dims)} for a result of rank {rank}"
        )
    if any(size < (axis in options.collapsed_slice_dims) for axis, size in enumerate(options.slice_sizes)):
        return Decline(
            f"slice_sizes {list(options.slice_sizes)} has a negative size, or a size other than 1 on a collapsed axis"
        )
    if any(
        size is not None and slice_size > size for slice_size, size in zip(options.slice_sizes, x.dims, strict=True)
    ):
        return Decline(f"slice_sizes {list(options.slice_sizes)} exceeds the operand's shape {list(x.dims)}")
    return check_index_vectors(at.op)


@handler(
    "STABLEHLO_GATHER",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(shift_safe=True, onnx="Gather"),
    types="T, int32 int64 -> T",
    accepts=check_gather,
)
def gather(ctx: Context, x: Value, indices: Value) -> Value:
    """Emit Gather along one axis, else GatherND.

    Start indices are clamped so that slices fit (stablehlo_gather.cc). Axes are named ``b0`` ... in the indices and
    ``o0`` ... in the operand.
    """
    options, rank = ctx.options, ctx.op[0].rank
    mapped_axes, collapsed_axes = list(options.start_index_map), set(options.collapsed_slice_dims)
    batch_axes = [f"b{k}" for k in range(ctx.op[1].rank - 1)]
    other_axes = [axis for axis in range(rank) if axis not in mapped_axes]
    slice_axes = [axis for axis in sorted(mapped_axes) if axis not in collapsed_axes]
    element_positions = element_indices(ctx, start_vectors(ctx, indices), slice_axes)
    y = slice_other_axes(ctx, x, other_axes)
    if len(mapped_axes) == 1:
        (axis,) = mapped_axes
        y = ctx.ops.Gather(y, vector_component(ctx, element_positions, 0), axis=axis)
        names = [
            *(f"o{k}" for k in range(axis)),
            *batch_axes,
            *(f"o{k}" for k in slice_axes),
            *(f"o{k}" for k in other_axes if k > axis),
        ]
    else:
        y = ctx.ops.GatherND(transpose(ctx, y, [*mapped_axes, *other_axes]), element_positions)
        names = [*batch_axes, *(f"o{k}" for k in (*slice_axes, *other_axes))]
    collapsed_positions = [k for k, name in enumerate(names) if name[0] == "o" and int(name[1:]) in collapsed_axes]
    if collapsed_positions:
        y = ctx.ops.Squeeze(y, np.asarray(collapsed_positions))
        names = [name for k, name in enumerate(names) if k not in collapsed_positions]
    return transpose(ctx, y, [names.index(name) for name in result_axes(ctx.op, batch_axes)])


def result_axes(op: Operator, batch_axes: list[str]) -> list[str]:
    """Return the names of the result's axes.

    Axes at ``offset_dims`` are axes of the slice; all other axes are axes of the indices.
    """
    options = op.options
    offsets = iter(f"o{k}" for k in range(op[0].rank) if k not in options.collapsed_slice_dims)
    batches = iter(batch_axes)
    return [next(offsets) if k in options.offset_dims else next(batches) for k in range(op[out(0)].rank)]


def start_vectors(ctx: Context, indices: Value) -> Value | Array:
    """Return the start vector of each slice along the last axis.

    Starts are clamped so that the slice fits.
    """
    options, (x, index) = ctx.options, (ctx.op[0], ctx.op[1])
    starts = move_vectors_last(ctx, cast_to_int64(ctx, 1, indices), options.index_vector_dim, index.rank)
    sizes = [options.slice_sizes[axis] for axis in options.start_index_map]
    dims = [x.dims[axis] for axis in options.start_index_map]
    if None not in dims:
        max_starts = np.asarray(
            [size - slice_size for size, slice_size in zip(dims, sizes, strict=True) if size is not None], np.int64
        )
        if isinstance(starts, np.ndarray):
            return np.maximum(np.minimum(starts, max_starts), 0)
        return ctx.ops.Max(ctx.ops.Min(starts, max_starts), np.int64(0))
    shape = ctx.ops.Gather(ctx.ops.Shape(ctx.quantized_values(0)), np.asarray(options.start_index_map, np.int64))
    runtime_max_starts = ctx.ops.Sub(shape, np.asarray(sizes, np.int64))
    return ctx.ops.Max(ctx.ops.Min(starts, runtime_max_starts), np.int64(0))


def move_vectors_last(ctx: Context, indices: Value | Array, axis: int, rank: int) -> Value | Array:
    """Return indices with the index vectors along the last axis."""
    if isinstance(indices, np.ndarray):
        return np.moveaxis(indices, axis, -1)
    return transpose(ctx, indices, [*(k for k in range(rank) if k != axis), axis])


def element_indices(ctx: Context, starts: Value | Array, slice_axes: list[int]) -> Value | Array:
    """Return the indices of a slice's elements along ``slice_axes``.

    The result has one additional axis for each of ``slice_axes``.
    """
    if not slice_axes:
        return starts
    options = ctx.options
    sizes = [options.slice_sizes[axis] for axis in slice_axes]
    spend_budget(prod(sizes) * 2 * len(options.start_index_map), 8, "the indices of a slice's elements")
    steps = np.zeros([*sizes, len(options.start_index_map)], np.int64)
    for axis, step in zip(slice_axes, np.indices(sizes), strict=True):
        steps[..., list(options.start_index_map).index(axis)] = step
    if isinstance(starts, np.ndarray):
        return np.expand_dims(starts, tuple(range(-1 - len(slice_axes), -1))) + steps
    return ctx.ops.Add(ctx.ops.Unsqueeze(starts, list(range(-1 - len(slice_axes), -1))), steps)


def vector_component(ctx: Context, vectors: Value | Array, k: int) -> Value | Array:
    """Return one component of each vector."""
    return vectors[..., k] if isinstance(vectors, np.ndarray) else ctx.ops.Gather(vectors, np.asarray(k), axis=-1)


def slice_other_axes(ctx: Context, x: Value, axes: list[int]) -> Value:
    """Return x cropped along the axes without an index, where slices start at 0."""
    sizes = ctx.options.slice_sizes
    cropped_axes = [axis for axis in axes if ctx.op[0].dims[axis] != sizes[axis]]
    ends = np.asarray([sizes[axis] for axis in cropped_axes], np.int64)
    return (
        ctx.ops.Slice(x, np.zeros(len(cropped_axes), np.int64), ends, np.asarray(cropped_axes, np.int64))
        if cropped_axes
        else x
    )


def transpose(ctx: Context, x: Value, perm: list[int]) -> Value:
    return x if perm == sorted(perm) else ctx.ops.Transpose(x, perm=perm)


# --- scatter ----------------------------------------------------------------------------------

REDUCTIONS = {
    "STABLEHLO_ADD": "add",
    "STABLEHLO_MULTIPLY": "mul",
    "STABLEHLO_MAXIMUM": "max",
    "STABLEHLO_MINIMUM": "min",
}


def scatter_reduction(ctx: Context) -> str:
    """Return the reduction that the subgraph computes.

    The result is "none" if updates replace elements (GetComputationType).
    """
    operators = ctx.subgraph(ctx.options.update_computation_subgraph_index).operators
    if not operators:
        return "none"
    if len(operators) > 1 or operators[0].code not in REDUCTIONS:
        codes = ", ".join(op.code for op in operators)
        raise Refusal(
            f"the region contains {codes}; LiteRT supports only {', '.join(REDUCTIONS)}, and also refuses the file; "
            "export the model without such updates"
        )
    return REDUCTIONS[operators[0].code]


def check_scatter(at: Instance) -> Decline | None:
    if not at.op[0].is_static or not at.op[2].is_static or not at.op[1].is_static:
        return Decline("an operand or the result has a dynamic shape; set it with --input-shape")
    options, (x, _, updates) = at.op.options, (at.op[0], at.op[1], at.op[2])
    axes_by_rank = (
        (updates.rank, options.update_window_dims),
        (x.rank, (*options.inserted_window_dims, *options.scatter_dims_to_operand_dims)),
    )
    if any(not 0 <= axis < rank for rank, axes in axes_by_rank for axis in axes):
        return Decline("the dimension numbers name axes that the operands do not have")
    if any(
        len({*axes}) < len(axes)
        for axes in (options.update_window_dims, options.inserted_window_dims, options.scatter_dims_to_operand_dims)
    ):
        return Decline("the dimension numbers name an axis twice")
    if len(options.update_window_dims) + len(options.inserted_window_dims) != x.rank:
        return Decline(
            f"update_window_dims has {len(options.update_window_dims)} axes, which does not match rank {x.rank}"
        )
    vector_length = at.op[1].shape[options.index_vector_dim : options.index_vector_dim + 1]
    if vector_length and vector_length[0] != len(options.scatter_dims_to_operand_dims):
        return Decline(
            f"index vectors have {vector_length[0]} entries for {len(options.scatter_dims_to_operand_dims)} axes"
        )
    return check_index_vectors(at.op)


@handler(
    "STABLEHLO_SCATTER",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    min_opset=18,
    types="T, int32 int64, T -> T",
    accepts=check_scatter,
)
def scatter(ctx: Context, x: Value, indices: Value, updates: Value) -> Value:
    """Emit ScatterElements of updates into the flattened operand.

    Updates out of range go to an additional element. ONNX Runtime scatters elements in order, as the kernel does: the
    last update of an element is kept.
    """
    ops, reduction = ctx.ops, scatter_reduction(ctx)
    shape, count = ctx.op[0].shape, prod(ctx.op[0].shape)
    if count >= 2**31:
        raise Refusal(f"the operand has {count} elements, more than ONNX Runtime can index")
    if not count or not prod(ctx.op[2].shape):
        return ops.Identity(x)
    positions, may_exceed = flat_positions(ctx, indices)
    flat_operand, flat_updates = ops.Reshape(x, [-1]), ops.Reshape(updates, [-1])
    if may_exceed:
        flat_operand = ops.Concat(flat_operand, ops.Slice(flat_operand, [0], [1], [0]), axis=0)
    y = ops.ScatterElements(flat_operand, positions, flat_updates, axis=0, reduction=reduction)
    if may_exceed:
        y = ops.Slice(y, [0], [count], [0])
    return ops.Reshape(y, np.asarray(shape, np.int64))


def flat_positions(ctx: Context, indices: Value) -> tuple[Any, bool]:
    """Return the position of each update in the flattened operand.

    The second result is True if any position may be out of range. Updates out of range have the position after the
    last element.
    """
    options, ops, (x, index, updates) = ctx.options, ctx.ops, (ctx.op[0], ctx.op[1], ctx.op[2])
    window_axes, operand_axes = (
        list(options.update_window_dims),
        [k for k in range(x.rank) if k not in options.inserted_window_dims],
    )
    index_shape = [size for axis, size in enumerate(index.shape) if axis != options.index_vector_dim]
    update_shape = [size for axis, size in enumerate(updates.shape) if axis not in window_axes]
    if index.is_static and updates.is_static and update_shape != index_shape:
        raise Refusal(f"{index_shape} index vectors do not fit updates of shape {list(updates.shape)}")
    strides = [prod(x.shape[k + 1 :]) for k in range(x.rank)]
    starts = move_vectors_last(ctx, cast_to_int64(ctx, 1, indices), options.index_vector_dim, index.rank)
    spend_budget(4 * prod(updates.shape), 8, "the indices of scattered elements")
    positions: Any = np.zeros(updates.shape, np.int64)
    in_range: Any = np.ones(updates.shape, bool)

    def window_offsets(axis: int) -> Array:
        """Return the offset of each update in its window, along an axis of the operand."""
        if axis not in operand_axes:
            return np.zeros([1] * updates.rank, np.int64)
        window_axis = window_axes[operand_axes.index(axis)]
        return np.arange(updates.shape[window_axis]).reshape(
            [-1 if k == window_axis else 1 for k in range(updates.rank)]
        )

    for axis in range(x.rank):
        if axis not in options.scatter_dims_to_operand_dims:
            offsets = window_offsets(axis)
            positions, in_range = positions + offsets * strides[axis], in_range & (offsets < x.shape[axis])
    runtime_positions: list[tuple[Any, int]] = []
    for k, axis in enumerate(options.scatter_dims_to_operand_dims):
        start, offsets = vector_component(ctx, starts, k), window_offsets(axis)
        if isinstance(start, np.ndarray):
            offsets = np.expand_dims(start, tuple(window_axes)) + offsets
            positions, in_range = (
                positions + offsets * strides[axis],
                in_range & (offsets >= 0) & (offsets < x.shape[axis]),
            )
        else:
            starts_of_windows = ops.Unsqueeze(start, window_axes) if window_axes else start
            runtime_positions.append((ops.Add(starts_of_windows, offsets), axis))
    return add_runtime_positions(ctx, positions, in_range, runtime_positions, strides)


def add_runtime_positions(
    ctx: Context, positions: Array, in_range: Array, runtime_positions: list[tuple[Any, int]], strides: list[int]
) -> tuple[Any, bool]:
    """Return the sum of constant and runtime positions, flattened.

    The second result is True if any position may be out of range.
    """
    ops, x = ctx.ops, ctx.op[0]
    count = prod(x.shape)
    if not runtime_positions:
        return np.where(in_range, positions, count).reshape(-1), not in_range.all()
    sums: Any = positions
    all_fit: Any = in_range
    for position, axis in runtime_positions:
        sums = ops.Add(sums, ops.Mul(position, np.int64(strides[axis])))
        fits_axis = ops.And(ops.GreaterOrEqual(position, np.int64(0)), ops.Less(position, np.int64(x.shape[axis])))
        all_fit = ops.And(all_fit, fits_axis)
    return ops.Reshape(ops.Where(all_fit, sums, np.int64(count)), [-1]), True
