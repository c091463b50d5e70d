"""Reshape, transpose and shape operators."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Dims,
    Instance,
    Operator,
    Raw,
    Refusal,
    Tensor,
    Terminate,
    Transparent,
    Value,
    ValueLike,
    axis_names,
    format_axes,
    handler,
    out,
    permutation_axes,
    reshape_axes_of,
    spend_budget,
)
from op_handlers.kernels.operands import cast_to_int64, constant_integers, dynamic_shape, insert_axis

COPIED = Raw(shift_safe=True)


def requested_shape(at: Instance) -> Dims:
    """Return the requested shape, with -1 replaced by the remaining size.

    The size follows from the number of elements (GetOutputShape, reshape.cc).
    """
    op = at.op
    operand, count = shape_operand(op), element_count(op[0].dims)
    if operand is not None and not operand.is_constant:
        return dynamic_shape(op, operand)
    requested_sizes = [int(size) for size in (op.options.new_shape if operand is None else operand.array)]
    requested_sizes = [] if requested_sizes == [0] and operand is None else requested_sizes
    known_product = prod(size for size in requested_sizes if size != -1)
    fits = count is None or (
        count % known_product == 0 if -1 in requested_sizes and known_product else count == known_product
    )
    if not fits or requested_sizes.count(-1) > 1:
        raise Refusal(f"shape {requested_sizes} does not fit the {count} elements of {list(op[0].dims)}")
    return tuple(
        (None if count is None else count // (known_product or 1)) if size == -1 else size for size in requested_sizes
    )


def shape_operand(op: Operator) -> Tensor | None:
    """Return the shape operand, or None if the option is used.

    Kernels require a vector of int32 (ShapeIsVector, reshape.cc).
    """
    operand = op.tensor(1)
    return operand if operand is not None and operand.rank == 1 and operand.dtype == "int32" else None


def element_count(dims: Dims) -> int | None:
    """Return the number of elements, ``None`` for a dynamic shape."""
    return None if None in dims else prod(size or 0 for size in dims)


@handler(
    "RESHAPE",
    max_version=1,
    layout=Attribute(unordered="*"),
    axes=reshape_axes_of,
    quantization=COPIED,
    result_shape=requested_shape,
    dynamic_batch_values={1: -1, "new_shape": -1},
)
def reshape(ctx: Context, x: Value, shape: Value | None = None) -> Value:
    """Emit Reshape to the planned shape; a runtime shape keeps the file's layout."""
    requested_sizes, stored_shape = requested_shape(ctx), ctx.op[out(0)].dims  # raises Refusal if the shapes do not fit
    if None not in (*requested_sizes, *stored_shape) and requested_sizes != stored_shape:
        raise Refusal(f"shape {list(requested_sizes)} is requested, but the result is stored as {list(stored_shape)}")
    if sum(d is None for d in ctx.op[out(0)].dims) <= 1:
        return ctx.reshape_to_slot(x, out(0))
    if shape is None or shape_operand(ctx.op) is None:
        sizes: ValueLike = np.asarray(ctx.options.new_shape)
    else:
        sizes = cast_to_int64(ctx, 1, shape)
    may_have_zeros = not isinstance(sizes, np.ndarray) or 0 in sizes
    return ctx.ops.Reshape(x, sizes, allowzero=1 if may_have_zeros and ctx.opset >= 14 else None)


def squeeze_axes(at: Instance) -> str | None:
    """Return the axes without those in ``squeeze_dims``.

    If ``squeeze_dims`` is empty, all axes of size 1 are removed.
    """
    op = at.op
    removed_axes, names = {axis % max(op[0].rank, 1) for axis in op.options.squeeze_dims}, axis_names(op[0].rank)
    if not removed_axes or op[out(0)].rank != len(names) - len(removed_axes):
        return reshape_axes_of(at)
    groups = ["1" if axis in removed_axes else name for axis, name in enumerate(names)]
    return format_axes([groups], [name for name in groups if name != "1"])


def squeeze_shape(at: Instance) -> Dims:
    """Return the shape without the axes in ``squeeze_dims``.

    If ``squeeze_dims`` is empty, all axes of size 1 are removed. Raises Refusal if a removed axis has another size.
    """
    op = at.op
    dims, removed_axes = op[0].dims, {axis % max(op[0].rank, 1) for axis in op.options.squeeze_dims}
    if not removed_axes and None in dims:
        raise Refusal("all axes of size 1 are removed, but some sizes are dynamic; set them with --input-shape")
    if any(dims[axis] not in (1, None) for axis in removed_axes if axis < len(dims)):
        raise Refusal(f"axes {sorted(removed_axes)} of {list(dims)} are removed, but not all have size 1")
    return tuple(size for axis, size in enumerate(dims) if (axis not in removed_axes if removed_axes else size != 1))


@handler(
    "SQUEEZE",
    max_version=2,
    layout=Attribute(unordered="*"),
    axes=squeeze_axes,
    quantization=COPIED,
    result_shape=squeeze_shape,
)
def squeeze(ctx: Context, x: Value) -> Value:
    """Return the operand in the planned shape.

    For several dynamic dimensions, Squeeze is emitted.
    """
    if not ctx.options.squeeze_dims and None in ctx.op[0].dims:
        squeeze_shape(ctx)
    if max(ctx.op[slot].dims.count(None) for slot in (0, out(0))) > 1:
        squeezed_axes = {axis % ctx.op[0].rank for axis in ctx.options.squeeze_dims}
        # The plan may already have removed some of the axes.
        removed_axes = [k for k, axis in enumerate(ctx.perm(0)) if axis in squeezed_axes]
        return ctx.ops.Squeeze(x, removed_axes) if removed_axes else x
    return ctx.reshape_to_slot(x, out(0))


def expand_dims_axes(at: Instance) -> str | None:
    """Return the axes with an axis of size 1 inserted."""
    axis, names = constant_integers(at.op, 1), axis_names(at.op[0].rank)
    return None if axis is None else format_axes([names], insert_axis(names, axis[0], new="1"))


def check_result_rank(at: Instance) -> Decline | None:
    """Return a Decline for an inconsistent rank.

    The kernels refuse it, but XNNPACK accepts it.
    """
    x, y = at.op[0], at.op[out(0)]
    if not (x.has_rank and y.has_rank) or y.rank == x.rank + 1:
        return None
    return Decline(f"the result has rank {y.rank}, expected one more than the operand's {x.rank}")


@handler(
    "EXPAND_DIMS",
    max_version=1,
    layout=Attribute(unordered="*"),
    axes=expand_dims_axes,
    quantization=COPIED,
    accepts=check_result_rank,
)
def expand_dims(ctx: Context, x: Value, axis: Value) -> Value:
    """Emit Unsqueeze at an axis of the result."""
    constant_axis = constant_integers(ctx.op, 1)
    if constant_axis is None:
        # Expand, not Reshape: ONNX Runtime would treat a Reshape of the axis as a Reshape of x.
        axes = ctx.ops.Expand(ctx.ops.Cast(axis, to="int64"), [1])
        return ctx.ops.Unsqueeze(x, axes)
    if len(ctx.shape(0)) == len(ctx.shape(out(0))):
        return x  # the plan has the new axis on both sides, or on neither
    return ctx.ops.Unsqueeze(x, [ctx.axis(constant_axis[0], out(0))])


def transpose_shape(at: Instance) -> Dims:
    perm = constant_integers(at.op, 1)
    return (None,) * at.op[0].rank if perm is None else tuple(at.op[0].dims[axis] for axis in perm)


def check_perm(at: Instance) -> Decline | None:
    """Return a Decline unless perm contains each axis once.

    If perm is a runtime value, the shape of the result is checked instead.
    """
    x, y = at.op[0], at.op[out(0)]
    if at.op[1].dtype != "int32":
        return Decline(f"perm has dtype {at.op[1].dtype}, but the kernel reads int32")
    perm = constant_integers(at.op, 1)
    if perm is not None and x.has_rank and sorted(axis % max(x.rank, 1) for axis in perm) != list(range(x.rank)):
        return Decline(f"perm is {perm}, expected a permutation of {x.rank} axes")
    if perm is not None or not x.is_static or Counter(filter(None, y.dims)) <= Counter(x.dims):
        return None
    return Decline(f"the result has shape {list(y.dims)}, which is not a permutation of {list(x.shape)}")


@handler(
    "TRANSPOSE",
    max_version=9,
    layout=lambda at: Terminate() if at.op.constant(1) is None else Transparent(),
    axes=permutation_axes(1),
    quantization=COPIED,
    accepts=check_perm,
    result_shape=transpose_shape,
)
def transpose(ctx: Context, x: Value, perm: Value) -> Value:
    """Return the operand, with renamed axes.

    The layout plan inserts a Transpose on a dataflow edge if needed.
    """
    return x if ctx.op.constant(1) is not None else emit_runtime_transpose(ctx, x, perm)


def emit_runtime_transpose(ctx: Context, x: Value, perm: Value) -> Value:
    """Emit a Gather, because ONNX's Transpose has no runtime perm.

    The index of an element of the flattened x is the sum of position times stride over all axes.
    """
    ops, rank = ctx.ops, ctx.op[0].rank
    axes, sizes = ops.Cast(perm, to="int64"), ops.Shape(x)
    strides: ValueLike = np.ones(1, np.int64)
    for axis in reversed(range(1, rank)):
        strides = ops.Concat(ops.Mul(ops.Gather(strides, [0]), ops.Gather(sizes, [axis])), strides, axis=0)
    indices: ValueLike = np.zeros(1, np.int64)
    for axis in range(rank):
        source_axis = ops.Gather(axes, np.asarray(axis))
        positions = ops.Range(np.asarray(0), ops.Gather(sizes, source_axis), np.asarray(1))
        offsets = ops.Mul(positions, ops.Gather(strides, source_axis))
        indices = ops.Add(indices, ops.Reshape(offsets, [-1, *[1] * (rank - 1 - axis)]))
    return ops.Gather(ops.Reshape(x, [-1]), indices)


@handler(
    "SHAPE",
    max_version=1,
    layout=Attribute(unordered="*"),
    indexed_by_axis={out(0): 0},
    quantization=COPIED,
    types=lambda at: f"_ -> {at.op.options.out_type.lower()}",
)
def shape(ctx: Context, x: Value) -> Value:
    """Emit Shape of the planned layout, or a constant for a static shape.

    The host converts the result to the layout of the file.
    """
    dtype = ctx.op[out(0)].dtype
    if ctx.op[0].is_static:
        return ctx.constant_value(np.asarray(ctx.shape(0), dtype))
    sizes = ctx.ops.Shape(x)
    return sizes if dtype == "int64" else ctx.ops.Cast(sizes, to=dtype)


@handler(
    "RANK",
    max_version=1,
    layout=Attribute(unordered="*"),
    axes=lambda at: format_axes([axis_names(at.op[0].rank)], []),
    quantization=COPIED,
    evaluate=lambda at: np.asarray(at.op[0].rank, np.int32),
)
def rank(ctx: Context, x: Value) -> Value:
    """Return the rank as a constant."""
    return ctx.constant_value(np.asarray(ctx.op[0].rank, np.int32))


# --- shapes as tensors ------------------------------------------------------------------------


def broadcast_shape(at: Instance) -> Array | None:
    """Return the broadcast shape of two constant shapes.

    The result is None if the shapes do not broadcast.
    """
    op = at.op
    shapes = [op.constant(slot) for slot in (0, 1)]
    if any(dims is None for dims in shapes):
        return None
    rank = max(len(dims) for dims in shapes if dims is not None)
    first_shape, second_shape = (
        np.concatenate([np.ones(rank - len(dims), dims.dtype), dims]) for dims in shapes if dims is not None
    )
    return (
        None
        if ((first_shape != 1) & (second_shape != 1) & (first_shape != second_shape)).any()
        else np.where(first_shape == 1, second_shape, first_shape)
    )


@handler("BROADCAST_ARGS", max_version=1, layout=Terminate(), quantization=Raw(), evaluate=broadcast_shape)
def broadcast_args(ctx: Context, first: Value, second: Value) -> Value:
    """Emit the second size where the first is 1, else the first.

    Shorter shapes are padded with leading ones. Source: broadcast_args.h.
    """
    if ctx.op[0].is_constant and ctx.op[1].is_constant and broadcast_shape(ctx) is None:
        raise Refusal("the shapes do not broadcast, which LiteRT refuses too")
    operands = {0: first, 1: second}
    if ctx.op[0].is_static and ctx.op[1].is_static:
        rank = max(ctx.op[slot].shape[0] for slot in operands)
        first_padded, second_padded = (prepend_ones(ctx, slot, shape, rank) for slot, shape in operands.items())
    else:
        max_rank = ctx.ops.Max(*(ctx.ops.Shape(shape) for shape in operands.values()))
        first_padded, second_padded = (prepend_ones_at_runtime(ctx, shape, max_rank) for shape in operands.values())
    return ctx.ops.Where(ctx.ops.Equal(first_padded, ctx.scalar(1)), second_padded, first_padded)


def prepend_ones(ctx: Context, slot: int, shape: Value, rank: int) -> Value:
    """Return a shape with leading ones up to a rank."""
    missing = rank - ctx.op[slot].shape[0]
    spend_budget(missing, 8, "a shape")
    return ctx.ops.Concat(np.ones(missing, ctx.op[slot].dtype), shape, axis=0) if missing else shape


def prepend_ones_at_runtime(ctx: Context, shape: Value, rank: Value) -> Value:
    """Prepend ones to a shape, up to a rank; both lengths are runtime values."""
    ones = ctx.ops.Expand(ctx.scalar(1), ctx.ops.Sub(rank, ctx.ops.Shape(shape)))
    return ctx.ops.Concat(ones, shape, axis=0)
