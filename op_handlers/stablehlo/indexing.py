"""Slices gathered and scattered at runtime indices."""

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
    spend,
)
from op_handlers.kernels.operands import cast_to_int64

# --- gather -----------------------------------------------------------------------------------


def check_index_vectors(op: Operator) -> Decline | None:
    """Return a Decline for a misplaced index vector axis, which the kernel reads out of range (ReadIndexVector, tensor_slice_util.h)."""
    if op.options.index_vector_dim < 0:
        return Decline(f"index_vector_dim is {op.options.index_vector_dim}, which is not an axis of the indices")
    if op.options.index_vector_dim >= op[1].rank:
        return Decline(
            "the indices have no axis for vectors, so the kernel reads beyond their shape; add one of size 1"
        )
    return None


def check_gather(at: Instance) -> Decline | None:
    if not at.op.options.start_index_map:
        return Decline("start_index_map is empty, so the indices refer to no axis")
    o, x, index = at.op.options, at.op[0], at.op[1]
    if not {*o.start_index_map} <= {*range(x.rank)}:
        return Decline(f"start_index_map is {list(o.start_index_map)}, but the rank is {x.rank}")
    length = index.dims[o.index_vector_dim] if 0 <= o.index_vector_dim < index.rank else 1
    if length != len(o.start_index_map) or len(o.slice_sizes) != x.rank:
        named = f"{'of dynamic length' if length is None else length} for {len(o.start_index_map)} axes"
        return Decline(f"index vectors are {named}, and slice_sizes has {len(o.slice_sizes)} entries for rank {x.rank}")
    slice_axes, kept, made = x.rank - len({*o.collapsed_slice_dims}), {*o.offset_dims}, at.op[out(0)]
    rank = made.rank if made.has_rank else slice_axes + index.rank - 1
    if len(kept) != slice_axes or rank != slice_axes + index.rank - 1 or not kept <= {*range(rank)}:
        return Decline(f"the slices have {slice_axes} axes, but the result of rank {rank} has them at {sorted(kept)}")
    if any(size < (axis in o.collapsed_slice_dims) for axis, size in enumerate(o.slice_sizes)):
        return Decline(
            f"slice_sizes {list(o.slice_sizes)} has a negative size, or a size other than 1 on a collapsed axis"
        )
    if any(size is not None and part > size for part, size in zip(o.slice_sizes, x.dims, strict=True)):
        return Decline(f"slice_sizes {list(o.slice_sizes)} exceeds the operand's shape {list(x.dims)}")
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
    """Emit a slice per index: Gather along one axis, else GatherND; starts are clamped so that it fits (stablehlo_gather.cc).

    Letters stand for axes: ``b0`` of the indices, ``o0`` of the operand.
    """
    o, rank = ctx.options, ctx.op[0].rank
    mapped, collapsed = list(o.start_index_map), set(o.collapsed_slice_dims)
    batch = [f"b{k}" for k in range(ctx.op[1].rank - 1)]
    rest = [axis for axis in range(rank) if axis not in mapped]
    within = [axis for axis in sorted(mapped) if axis not in collapsed]
    places = element_indices(ctx, start_vectors(ctx, indices), within)
    y = slice_other_axes(ctx, x, rest)
    if len(mapped) == 1:
        (axis,) = mapped
        y = ctx.ops.Gather(y, vector_component(ctx, places, 0), axis=axis)
        names = [
            *(f"o{k}" for k in range(axis)),
            *batch,
            *(f"o{k}" for k in within),
            *(f"o{k}" for k in rest if k > axis),
        ]
    else:
        y = ctx.ops.GatherND(transpose(ctx, y, [*mapped, *rest]), places)
        names = [*batch, *(f"o{k}" for k in (*within, *rest))]
    collapsed_positions = [k for k, name in enumerate(names) if name[0] == "o" and int(name[1:]) in collapsed]
    if collapsed_positions:
        y = ctx.ops.Squeeze(y, np.asarray(collapsed_positions))
        names = [name for k, name in enumerate(names) if k not in collapsed_positions]
    return transpose(ctx, y, [names.index(name) for name in result_axes(ctx.op, batch)])


def result_axes(op: Operator, batch: list[str]) -> list[str]:
    """Return the letters of the result's axes: the slice's at ``offset_dims``, the indices' in between."""
    o = op.options
    offsets = iter(f"o{k}" for k in range(op[0].rank) if k not in o.collapsed_slice_dims)
    batches = iter(batch)
    return [next(offsets) if k in o.offset_dims else next(batches) for k in range(op[out(0)].rank)]


def start_vectors(ctx: Context, indices: Value) -> Value | Array:
    """Return the starts, one vector along the last axis per slice, clamped so that the slice fits."""
    o, (x, index) = ctx.options, (ctx.op[0], ctx.op[1])
    starts = vectors_last(ctx, cast_to_int64(ctx, 1, indices), o.index_vector_dim, index.rank)
    sizes = [o.slice_sizes[axis] for axis in o.start_index_map]
    dims = [x.dims[axis] for axis in o.start_index_map]
    if None not in dims:
        highest = np.asarray([size - own for size, own in zip(dims, sizes, strict=True) if size is not None], np.int64)
        if isinstance(starts, np.ndarray):
            return np.maximum(np.minimum(starts, highest), 0)
        return ctx.ops.Max(ctx.ops.Min(starts, highest), np.int64(0))
    shape = ctx.ops.Gather(ctx.ops.Shape(ctx.quantized_values(0)), np.asarray(o.start_index_map, np.int64))
    most = ctx.ops.Sub(shape, np.asarray(sizes, np.int64))
    return ctx.ops.Max(ctx.ops.Min(starts, most), np.int64(0))


def vectors_last(ctx: Context, indices: Value | Array, axis: int, rank: int) -> Value | Array:
    """Move index vectors to the last axis."""
    if isinstance(indices, np.ndarray):
        return np.moveaxis(indices, axis, -1)
    return transpose(ctx, indices, [*(k for k in range(rank) if k != axis), axis])


def element_indices(ctx: Context, starts: Value | Array, within: list[int]) -> Value | Array:
    """Return the indices of a slice's elements along the axes ``within``, one leading axis each."""
    if not within:
        return starts
    o = ctx.options
    sizes = [o.slice_sizes[axis] for axis in within]
    spend(prod(sizes) * 2 * len(o.start_index_map), 8, "the indices of a slice's elements")
    steps = np.zeros([*sizes, len(o.start_index_map)], np.int64)
    for axis, step in zip(within, np.indices(sizes), strict=True):
        steps[..., list(o.start_index_map).index(axis)] = step
    if isinstance(starts, np.ndarray):
        return np.expand_dims(starts, tuple(range(-1 - len(within), -1))) + steps
    return ctx.ops.Add(ctx.ops.Unsqueeze(starts, list(range(-1 - len(within), -1))), steps)


def vector_component(ctx: Context, vectors: Value | Array, k: int) -> Value | Array:
    """Return one component of each vector."""
    return vectors[..., k] if isinstance(vectors, np.ndarray) else ctx.ops.Gather(vectors, np.asarray(k), axis=-1)


def slice_other_axes(ctx: Context, x: Value, axes: list[int]) -> Value:
    """Slice the axes without an index, which start at 0 and may end early."""
    sizes = ctx.options.slice_sizes
    cut = [axis for axis in axes if ctx.op[0].dims[axis] != sizes[axis]]
    ends = np.asarray([sizes[axis] for axis in cut], np.int64)
    return ctx.ops.Slice(x, np.zeros(len(cut), np.int64), ends, np.asarray(cut, np.int64)) if cut else x


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
    """Return the reduction that the subgraph computes; none if updates replace (GetComputationType)."""
    inner = ctx.subgraph(ctx.options.update_computation_subgraph_index).operators
    if not inner:
        return "none"
    if len(inner) > 1 or inner[0].code not in REDUCTIONS:
        held = ", ".join(op.code for op in inner)
        raise Refusal(
            f"the region holds {held}; LiteRT supports one of {', '.join(REDUCTIONS)} and refuses the file too; "
            "export the model without such updates"
        )
    return REDUCTIONS[inner[0].code]


def check_scatter(at: Instance) -> Decline | None:
    if not at.op[0].is_static or not at.op[2].is_static or not at.op[1].is_static:
        return Decline("an operand or the result has a dynamic shape; set it with --input-shape")
    o, (x, _, new) = at.op.options, (at.op[0], at.op[1], at.op[2])
    declared = (new.rank, o.update_window_dims), (x.rank, (*o.inserted_window_dims, *o.scatter_dims_to_operand_dims))
    if any(not 0 <= axis < rank for rank, axes in declared for axis in axes):
        return Decline("the dimension numbers name axes that the operands do not have")
    if any(
        len({*axes}) < len(axes)
        for axes in (o.update_window_dims, o.inserted_window_dims, o.scatter_dims_to_operand_dims)
    ):
        return Decline("the dimension numbers name an axis twice")
    if len(o.update_window_dims) + len(o.inserted_window_dims) != x.rank:
        return Decline(f"update_window_dims has {len(o.update_window_dims)} axes, which does not match rank {x.rank}")
    vector = at.op[1].shape[o.index_vector_dim : o.index_vector_dim + 1]
    if vector and vector[0] != len(o.scatter_dims_to_operand_dims):
        return Decline(f"index vectors have {vector[0]} entries for {len(o.scatter_dims_to_operand_dims)} axes")
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
    """Emit ScatterElements on the flattened operand in the order of the updates; updates beyond its ends go to an extra element.

    ONNX Runtime scatters elements in order, like the kernel: the last update of an element wins.
    """
    ops, reduction = ctx.ops, scatter_reduction(ctx)
    shape, count = ctx.op[0].shape, prod(ctx.op[0].shape)
    if count >= 2**31:
        raise Refusal(f"the operand has {count} elements, more than ONNX Runtime can index")
    if not count or not prod(ctx.op[2].shape):
        return ops.Identity(x)
    places, beyond = flat_indices(ctx, indices)
    data, new = ops.Reshape(x, [-1]), ops.Reshape(updates, [-1])
    if beyond:
        data = ops.Concat(data, ops.Slice(data, [0], [1], [0]), axis=0)
    y = ops.ScatterElements(data, places, new, axis=0, reduction=reduction)
    if beyond:
        y = ops.Slice(y, [0], [count], [0])
    return ops.Reshape(y, np.asarray(shape, np.int64))


def flat_indices(ctx: Context, indices: Value) -> tuple[Any, bool]:
    """Return the index of each update in the flattened operand, one after its end if out of range, and True if any may be."""
    o, ops, (x, index, new) = ctx.options, ctx.ops, (ctx.op[0], ctx.op[1], ctx.op[2])
    windows, axes = list(o.update_window_dims), [k for k in range(x.rank) if k not in o.inserted_window_dims]
    places = [size for axis, size in enumerate(index.shape) if axis != o.index_vector_dim]
    given = [size for axis, size in enumerate(new.shape) if axis not in windows]
    if index.is_static and new.is_static and given != places:
        raise Refusal(f"{places} index vectors do not fit updates of shape {list(new.shape)}")
    strides = [prod(x.shape[k + 1 :]) for k in range(x.rank)]
    starts = vectors_last(ctx, cast_to_int64(ctx, 1, indices), o.index_vector_dim, index.rank)
    spend(4 * prod(new.shape), 8, "the indices of scattered elements")
    total: Any = np.zeros(new.shape, np.int64)
    inside: Any = np.ones(new.shape, bool)
    for axis in range(x.rank):
        at: Any = np.zeros([1] * new.rank, np.int64)
        if axis in axes:
            along = windows[axes.index(axis)]
            at = np.arange(new.shape[along]).reshape([-1 if k == along else 1 for k in range(new.rank)])
        if axis not in o.scatter_dims_to_operand_dims:
            total, inside = total + at * strides[axis], inside & (at < x.shape[axis])
    run_time: list[tuple[Any, int]] = []
    for k, axis in enumerate(o.scatter_dims_to_operand_dims):
        start = vector_component(ctx, starts, k)
        at = np.arange(new.shape[windows[axes.index(axis)]]) if axis in axes else np.zeros(1, np.int64)
        at = at.reshape([-1 if axis in axes and d == windows[axes.index(axis)] else 1 for d in range(new.rank)])
        if isinstance(start, np.ndarray):
            at = np.expand_dims(start, tuple(windows)) + at
            total, inside = total + at * strides[axis], inside & (at >= 0) & (at < x.shape[axis])
        else:
            wide = ops.Unsqueeze(start, windows) if windows else start
            run_time.append((ops.Add(wide, at), axis))
    return add_index_parts(ctx, total, inside, run_time, strides)


def add_index_parts(
    ctx: Context, total: Array, inside: Array, run_time: list[tuple[Any, int]], strides: list[int]
) -> tuple[Any, bool]:
    """Return the sum of constant and runtime parts, flattened."""
    ops, x = ctx.ops, ctx.op[0]
    count = prod(x.shape)
    if not run_time:
        return np.where(inside, total, count).reshape(-1), not inside.all()
    places: Any = total
    fits: Any = inside
    for at, axis in run_time:
        places = ops.Add(places, ops.Mul(at, np.int64(strides[axis])))
        ok = ops.And(ops.GreaterOrEqual(at, np.int64(0)), ops.Less(at, np.int64(x.shape[axis])))
        fits = ops.And(fits, ok)
    return ops.Reshape(ops.Where(fits, places, np.int64(count)), [-1]), True
