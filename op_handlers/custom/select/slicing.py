"""Slicing, gathering, filling, padding, and blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Decline, Instance, Operator, Replacement, Rewriter, out
from op_handlers.custom.select.nodedef import NodeDef, node_of
from op_handlers.custom.select.rewriting import (
    ANY,
    INDEXED_TYPES,
    REAL,
    as_int32,
    constant_scalar,
    constant_scalar_check,
    make_kernel,
    rank_check,
    rewrite_to,
)
from op_handlers.tensor import blocks, filling, indexing, ordering, padding, slicing

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def check_axes_exist(instance: Instance) -> Decline | None:
    """Return a Decline for axes that the operand does not have."""
    axes, rank, result = instance.op.constant(1), instance.op[0].rank, instance.op[out(0)]
    if result.has_rank and result.rank != rank:
        return Decline(f"the operand has rank {rank} and the result {result.rank}, expected equal ranks")
    invalid_axes = [] if axes is None else [int(axis) for axis in axes.reshape(-1) if not -rank <= axis < rank]
    return Decline(f"axis {invalid_axes[0]} is reversed, but the rank is {rank}") if invalid_axes else None


def emit_strided_slice(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit STRIDED_SLICE with int32 bounds."""
    bounds = [as_int32(rewriter, rewriter.op[slot]) for slot in (1, 2, 3)]
    masks = {name: node.integer(name) for name in MASKS}
    return rewriter.finish(slicing.strided_slice, [rewriter.op[0], *bounds], offset=False, **masks)


def strided_slice_kernel(op: Operator, x: Array, begin: Array, end: Array, strides: Array) -> Array:
    node = node_of(op)
    indices: list[Any] = []
    masks = {name: node.integer(name) for name in MASKS}

    def has_mask(name: str, k: int) -> bool:
        return bool(masks[name] >> k & 1)

    for k, (first, last, step) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        if has_mask("ellipsis_mask", k):
            indices.append(Ellipsis)
        elif has_mask("new_axis_mask", k):
            indices.append(np.newaxis)
        elif has_mask("shrink_axis_mask", k):
            indices.append(first)
        else:
            indices.append(
                slice(None if has_mask("begin_mask", k) else first, None if has_mask("end_mask", k) else last, step)
            )
    return np.asarray(x[tuple(indices)])


def slice_kernel(op: Operator, x: Array, begin: Array, size: Array) -> Array:
    ends = [n if s < 0 else b + s for n, b, s in zip(x.shape, begin.tolist(), size.tolist(), strict=True)]
    return x[tuple(slice(b, e) for b, e in zip(begin.tolist(), ends, strict=True))]


def check_equal_lengths(instance: Instance) -> Decline | None:
    """Return a Decline unless begin, end and strides are vectors of equal length."""
    shapes = [tensor.shape for tensor in (instance.op[1], instance.op[2], instance.op[3]) if tensor.is_static]
    if all(shape == shapes[0] and len(shape) == 1 for shape in shapes):
        return None
    listed_shapes = ", ".join(str(list(shape)) for shape in shapes)
    return Decline(f"begin, end and strides have shapes {listed_shapes}, expected vectors of equal length")


def check_entry_per_axis(instance: Instance) -> Decline | None:
    """Return a Decline unless begin and size have one entry per axis."""
    rank = instance.op[0].rank
    invalid = next((t for t in (instance.op[1], instance.op[2]) if t.is_static and t.shape != (rank,)), None)
    if invalid is None:
        return None
    return Decline(
        f"operand {invalid.name!r} has shape {list(invalid.shape)}, expected one entry for each of {rank} axes"
    )


strided_slice = rewrite_to(
    "StridedSlice",
    slicing.strided_slice,
    strided_slice_kernel,
    operands=4,
    rewrite=emit_strided_slice,
    accepts=check_equal_lengths,
    moves=True,
)
slice_ = rewrite_to("Slice", slicing.slice_, slice_kernel, operands=3, accepts=check_entry_per_axis, moves=True)


# --- gathering --------------------------------------------------------------------------------


def emit_gather(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit GATHER along the axis in the last operand."""
    op = rewriter.op
    return rewriter.finish(
        indexing.gather, [op[0], op[1]], axis=constant_scalar(op, 2), batch_dims=node.integer("batch_dims")
    )


def gather_kernel(op: Operator, x: Array, indices: Array, axis: Array) -> Array:
    batch_dims = node_of(op).integer("batch_dims") % (indices.ndim + 1)
    return gather_array(x, indices, int(axis.reshape(-1)[0]) % x.ndim, batch_dims)


def gather_array(x: Array, indices: Array, axis: int, batch_dims: int) -> Array:
    """Return gathered elements, with ``batch_dims`` axes shared by x and indices."""
    if not batch_dims:
        return np.take(x, indices, axis)
    return np.stack([gather_array(a, b, axis - 1, batch_dims - 1) for a, b in zip(x, indices, strict=True)])


def one_hot_array(op: Operator, indices: Array, depth: Array, on_value: Array, off_value: Array) -> Array:
    axis, class_count = node_of(op).integer("axis", -1), int(depth)
    class_axis = axis % (indices.ndim + 1)
    classes = np.arange(class_count).reshape(-1, *[1] * (indices.ndim - class_axis))
    return np.where(np.expand_dims(indices, class_axis) == classes, on_value, off_value)


gather_v2 = rewrite_to(
    "GatherV2",
    indexing.gather,
    gather_kernel,
    operands=3,
    rewrite=emit_gather,
    accepts=constant_scalar_check(2, "axis"),
    moves=True,
)
gather_nd = rewrite_to(
    "GatherNd",
    indexing.gather_nd,
    make_kernel(lambda x, indices: x[tuple(np.moveaxis(indices, -1, 0))]),
    operands=2,
    types=INDEXED_TYPES,
    moves=True,
)
one_hot = rewrite_to(
    "OneHot",
    filling.one_hot,
    one_hot_array,
    operands=4,
    options=lambda node, op: {"axis": node.integer("axis", -1)},
)
reverse_v2 = rewrite_to(
    "ReverseV2",
    ordering.reverse_v2,
    make_kernel(lambda x, axes: np.flip(x, tuple(axes.reshape(-1).tolist()))),
    operands=2,
    types=INDEXED_TYPES,
    accepts=check_axes_exist,
    moves=True,
)


# --- filling ----------------------------------------------------------------------------------


def emit_fill(rewriter: Rewriter, node: NodeDef) -> Any:
    return rewriter.finish(filling.fill, [rewriter.op[0], rewriter.op[1]])


def arange_kernel(op: Operator, start: Array, limit: Array, delta: Array) -> Array:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


fill = rewrite_to(
    "Fill",
    filling.fill,
    make_kernel(lambda sizes, value: np.full([int(n) for n in sizes], value)),
    operands=2,
    rewrite=emit_fill,
    types=tuple(f"int32 int64, {dtype} -> {dtype}" for dtype in ANY.split()),
)
range_ = rewrite_to(
    "Range",
    filling.range_,
    arange_kernel,
    operands=3,
    types=tuple(f"{d}, {d}, {d} -> {d}" for d in ["float32", "int32", "int64"]),
    accepts=rank_check({0: 0, 1: 0, 2: 0}),
)
zeros_like = rewrite_to(
    "ZerosLike", filling.zeros_like, make_kernel(np.zeros_like), types=tuple(f"{d} -> {d}" for d in ANY.split())
)


# --- padding ----------------------------------------------------------------------------------


def mirror_pad_kernel(op: Operator, x: Array, paddings: Array) -> Array:
    return np.pad(x, paddings, mode="reflect" if node_of(op).text("mode") == "REFLECT" else "symmetric")


pad = rewrite_to(
    "Pad", padding.pad, make_kernel(lambda x, paddings: np.pad(x, paddings)), operands=2, types=INDEXED_TYPES
)
pad_v2 = rewrite_to(
    "PadV2",
    padding.pad_v2,
    make_kernel(lambda x, paddings, value: np.pad(x, paddings, constant_values=value)),
    operands=3,
)
mirror_pad = rewrite_to(
    "MirrorPad",
    padding.mirror_pad,
    mirror_pad_kernel,
    operands=2,
    options=lambda node, op: {"mode": node.text("mode")},
    types=INDEXED_TYPES,
    moves=True,
)


# --- blocks of pixels -------------------------------------------------------------------------


def check_blocks(instance: Instance) -> Decline | None:
    node, x, y = node_of(instance.op), instance.op[0], instance.op[out(0)]
    layout, block_size = node.text("data_format", "NHWC"), node.integer("block_size")
    if layout != "NHWC":
        return Decline(f"data_format is {layout}; only NHWC is supported")
    if block_size < 2 or x.rank != 4 or y.rank != 4:
        return Decline(f"block_size is {block_size}, expected at least 2; the image has rank {x.rank}, expected 4")
    return None


def space_to_depth_kernel(op: Operator, x: Array) -> Array:
    b = node_of(op).integer("block_size")
    n, h, w, c = x.shape
    return x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // b, w // b, b * b * c)


def depth_to_space_kernel(op: Operator, x: Array) -> Array:
    b = node_of(op).integer("block_size")
    n, h, w, c = x.shape
    return x.reshape(n, h, w, b, b, c // b // b).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * b, w * b, c // b // b)


BLOCK_DECLARATIONS: dict[str, Any] = {
    "options": lambda node, op: {"block_size": node.integer("block_size")},
    "types": tuple(f"{dtype} -> {dtype}" for dtype in REAL.split()),
    "accepts": check_blocks,
    "moves": True,
}
space_to_depth = rewrite_to("SpaceToDepth", blocks.space_to_depth, space_to_depth_kernel, **BLOCK_DECLARATIONS)
depth_to_space = rewrite_to("DepthToSpace", blocks.depth_to_space, depth_to_space_kernel, **BLOCK_DECLARATIONS)
