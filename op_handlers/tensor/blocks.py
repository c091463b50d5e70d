"""Rearrangements of spatial blocks to and from channels or batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    AxisPrice,
    Context,
    Instance,
    Operator,
    Raw,
    Refusal,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import cast_to_int64, constant_integers
from op_handlers.tensor.padding import emit_pad, padding_value


def rearrangement_price(op_type: str) -> Callable[[Instance], AxisPrice | None]:
    """Return an ``axis_price`` function.

    For integers, channels last is faster than channels first, even if it needs a Transpose before and after.
    """
    return lambda at: AxisPrice(f"{op_type}/integers", "h w") if at.op[0].dtype in ("int8", "uint8") else None


# --- depth ------------------------------------------------------------------------------------


@handler(
    "DEPTH_TO_SPACE",
    max_version=2,
    layout=Attribute(unordered="n"),
    axes="n h w c -> n h w c",
    axis_price=rearrangement_price("DepthToSpace"),
    quantization=Raw(shift_safe=True),
)
def depth_to_space(ctx: Context, x: Value) -> Value:
    """Emit DepthToSpace (DCR) channels first, else the equivalent Transpose."""
    size = ctx.options.block_size
    if is_channels_first(ctx) and ctx.target.has_kernel("DepthToSpace", ctx.dtype(0)):
        return ctx.ops.DepthToSpace(x, blocksize=size, mode="DCR")
    n, h, w, c = ctx.op[0].dims
    sizes = {"n": n, "h": h, "w": w, "p": size, "q": size, "d": None if c is None else c // size**2}
    return rearrange(ctx, x, "n h w pqd", "n hp wq d", sizes)


@handler(
    "SPACE_TO_DEPTH",
    max_version=2,
    layout=Attribute(unordered="n"),
    axes="n h w c -> n h w c",
    axis_price=rearrangement_price("SpaceToDepth"),
    quantization=Raw(shift_safe=True),
)
def space_to_depth(ctx: Context, x: Value) -> Value:
    """Emit SpaceToDepth channels first, else the equivalent Transpose."""
    size = ctx.options.block_size
    if is_channels_first(ctx) and ctx.target.has_kernel("SpaceToDepth", ctx.dtype(0)):
        return ctx.ops.SpaceToDepth(x, blocksize=size)
    n, h, w, c = ctx.op[0].dims
    sizes = {"n": n, "h": divide_size(h, size), "w": divide_size(w, size), "p": size, "q": size, "c": c}
    return rearrange(ctx, x, "n hp wq c", "n h w pqc", sizes)


def is_channels_first(ctx: Context) -> bool:
    return ctx.perm() == (0, 3, 1, 2)


# --- batches ----------------------------------------------------------------------------------


def has_constant_blocks(op: Operator) -> bool:
    return op.constant(1) is not None and op.constant(2) is not None


def block_layout(at: Instance) -> Attribute | Terminate:
    return Attribute(unordered="c") if has_constant_blocks(at.op) else Terminate()


def block_price(at: Instance) -> AxisPrice | None:
    return AxisPrice("Transpose/blocks", "h w") if has_constant_blocks(at.op) else None


def spatial_axes(at: Instance) -> str:
    """Return the axes: batch, one or two spatial axes, and channels.

    The kernels support no other ranks.
    """
    axes = " ".join(["n", *"hw"[: at.op[0].rank - 2], "c"])
    return f"{axes} -> {axes}"


@handler(
    "SPACE_TO_BATCH_ND",
    max_version=4,
    layout=block_layout,
    axes=spatial_axes,
    axis_price=block_price,
    quantization=Raw(shift_safe=True, onnx="Pad"),
    types="_, int32, int32",  # the kernels read int32 regardless of the dtype
)
def space_to_batch_nd(ctx: Context, x: Value, shape: Value, paddings: Value) -> Value:
    """Emit Pad with zeros, and one batch per position in a block.

    Positions come before batches (space_to_batch_nd.h).
    """
    if not has_constant_blocks(ctx.op):
        return emit_runtime_space_to_batch(ctx, x, cast_to_int64(ctx, 1, shape), cast_to_int64(ctx, 2, paddings))
    block, padding_pairs = constant_block_operands(ctx.op)
    if any(map(any, padding_pairs)):
        x = emit_pad(ctx, x, [(0, 0), *padding_pairs, (0, 0)], padding_value(ctx))
    n, *size, c = ctx.op[0].dims
    padded_sizes = [None if s is None else s + sum(pair) for s, pair in zip(size, padding_pairs, strict=True)]
    image_pattern, batch_pattern = axis_patterns(len(block))
    sizes = {
        "n": n,
        "c": c,
        **dict(zip("pq", block, strict=False)),
        **dict(zip("hw", map(divide_size, padded_sizes, block), strict=False)),
    }
    return rearrange(ctx, x, image_pattern, batch_pattern, sizes)


@handler(
    "BATCH_TO_SPACE_ND",
    max_version=4,
    layout=block_layout,
    axes=spatial_axes,
    axis_price=block_price,
    quantization=Raw(shift_safe=True, onnx="Slice"),
    types="_, int32, int32",  # the kernels read int32 regardless of the dtype
)
def batch_to_space_nd(ctx: Context, x: Value, shape: Value, crops: Value) -> Value:
    """Emit the inverse of SPACE_TO_BATCH_ND, and Slice for the crops."""
    if not has_constant_blocks(ctx.op):
        return emit_runtime_batch_to_space(ctx, x, cast_to_int64(ctx, 1, shape), cast_to_int64(ctx, 2, crops))
    block, crop_pairs = constant_block_operands(ctx.op)
    n, *size, c = ctx.op[0].dims
    image_pattern, batch_pattern = axis_patterns(len(block))
    sizes = {
        "n": divide_size(n, prod(block)),
        "c": c,
        **dict(zip("pq", block, strict=False)),
        **dict(zip("hw", size, strict=False)),
    }
    image = rearrange(ctx, x, batch_pattern, image_pattern, sizes)
    cropped_axes = [k for k, pair in enumerate(crop_pairs) if any(pair)]
    if not cropped_axes:
        return image
    starts, ends = [crop_pairs[k][0] for k in cropped_axes], [-crop_pairs[k][1] or 2**31 for k in cropped_axes]
    return ctx.ops.Slice(image, starts, ends, [ctx.axis(1 + k) for k in cropped_axes])


def axis_patterns(spatial_rank: int) -> tuple[str, str]:
    """Return the axes of the image and of the batches, with blocks as letters p and q.

    In the image, a block position follows its spatial axis. In the batches, block positions precede the batch.
    """
    return ("n hp c", "pn h c") if spatial_rank == 1 else ("n hp wq c", "pqn h w c")


def constant_block_operands(op: Operator) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the block's shape, and the padding or crops.

    There are two amounts for each spatial axis, before and after it.
    """
    block, amounts = constant_integers(op, 1) or [], constant_integers(op, 2) or []
    return block, list(zip(amounts[::2], amounts[1::2], strict=True))


def emit_runtime_space_to_batch(ctx: Context, x: Value, block: Value | Array, paddings: Value | Array) -> Value:
    """Emit SPACE_TO_BATCH_ND with a runtime block or runtime paddings.

    The layout is that of the file.
    """
    ops, spatial_rank = ctx.ops, ctx.op[0].rank - 2
    before, after = split_sides(ctx, paddings)
    padded = ctx.ops.Pad(x, ops.Concat([0], before, [0, 0], after, [0], axis=0), padding_value(ctx), mode="constant")
    n, size, c = split_shape(ctx, padded)
    block_counts = ops.Div(size, block)
    counts_and_blocks = ops.Reshape(
        ops.Concat(ops.Unsqueeze(block_counts, [1]), ops.Unsqueeze(block, [1]), axis=1), [-1]
    )
    blocks = ops.Reshape(padded, ops.Concat(n, counts_and_blocks, c, axis=0))
    perm = [*range(2, 2 * spatial_rank + 1, 2), 0, *range(1, 2 * spatial_rank + 1, 2), 2 * spatial_rank + 1]
    return ops.Reshape(ops.Transpose(blocks, perm=perm), ops.Concat([-1], block_counts, c, axis=0))


def emit_runtime_batch_to_space(ctx: Context, x: Value, block: Value | Array, crops: Value | Array) -> Value:
    ops, spatial_rank = ctx.ops, ctx.op[0].rank - 2
    _, size, c = split_shape(ctx, x)
    blocks = ops.Reshape(x, ops.Concat(block, [-1], size, c, axis=0))
    merged_axes = [axis for k in range(spatial_rank) for axis in (spatial_rank + 1 + k, k)]
    full_sizes = ops.Mul(size, block)
    image = ops.Reshape(
        ops.Transpose(blocks, perm=[spatial_rank, *merged_axes, 2 * spatial_rank + 1]),
        ops.Concat([-1], full_sizes, c, axis=0),
    )
    before, after = split_sides(ctx, crops)
    return ops.Slice(image, before, ops.Sub(full_sizes, after), list(range(1, 1 + spatial_rank)))


def split_sides(ctx: Context, pairs: Value | Array) -> tuple[Value, Value]:
    """Return the amounts before and after each spatial axis from pairs [axes, 2]."""
    before, after = (ctx.ops.Gather(pairs, np.asarray(side), axis=1) for side in (0, 1))
    return before, after


def split_shape(ctx: Context, x: Value) -> tuple[Value, Value, Value]:
    """Return the sizes of the batch, of the spatial axes, and of the channels."""
    shape, rank = ctx.ops.Shape(x), ctx.op[0].rank
    n, size, c = (ctx.ops.Slice(shape, [a], [b]) for a, b in ((0, 1), (1, rank - 1), (rank - 1, rank)))
    return n, size, c


# --- common -----------------------------------------------------------------------------------


def divide_size(size: int | None, block: int) -> int | None:
    if size is not None and size % block:
        raise Refusal(f"size {size} is not a multiple of the block size {block}")
    return None if size is None else size // block


def rearrange(ctx: Context, x: Value, source: str, result: str, sizes: Mapping[str, int | None]) -> Value:
    """Emit Reshape, Transpose and Reshape from axes ``source`` to axes ``result``.

    The nodes are in planned layout. Each group of letters is an axis in the layout of the file, and each letter a
    factor of its size.
    """
    source_groups, result_groups = ctx.permute_entries(source.split()), ctx.permute_entries(result.split(), out(0))
    source_letters, result_letters = "".join(source_groups), "".join(result_groups)
    shapes = [
        [sizes[letter] for letter in source_letters],
        [product_of_sizes([sizes[letter] for letter in group]) for group in result_groups],
    ]
    if max(shape.count(None) for shape in shapes) > 1:
        lengths = runtime_lengths(ctx, x, source_groups, sizes)
        factor_shape, result_shape = (group_sizes(ctx, groups, lengths) for groups in (source_letters, result_groups))
        allowzero = 1 if ctx.opset >= 14 else None
        factors = ctx.ops.Reshape(x, factor_shape, allowzero=allowzero)
        transposed = ctx.ops.Transpose(factors, perm=[source_letters.index(letter) for letter in result_letters])
        return ctx.ops.Reshape(transposed, result_shape, allowzero=allowzero)
    factors = emit_reshape(ctx, x, shapes[0])
    transposed = ctx.ops.Transpose(factors, perm=[source_letters.index(letter) for letter in result_letters])
    return emit_reshape(ctx, transposed, shapes[1])


def runtime_lengths(
    ctx: Context, x: Value, groups: Sequence[str], sizes: Mapping[str, int | None]
) -> dict[str, Value | Array]:
    """Return the length of each letter, of shape [1].

    A dynamic length is the size of its axis divided by the lengths of the other letters.
    """
    shape, lengths = ctx.ops.Shape(x), dict[str, "Value | Array"]()
    for axis, group in enumerate(groups):
        for letter in group:
            size = sizes[letter]
            other_factors = prod(sizes[other] or 1 for other in group if other != letter)
            axis_size = np.full(1, size) if size is not None else ctx.ops.Gather(shape, [axis])
            lengths[letter] = axis_size if isinstance(axis_size, np.ndarray) else ctx.ops.Div(axis_size, other_factors)
    return lengths


def group_sizes(ctx: Context, groups: Sequence[str], lengths: Mapping[str, Value | Array]) -> Value:
    """Return the sizes of groups of letters."""
    sizes = []
    for group in groups:
        size = lengths[group[0]]
        for letter in group[1:]:
            size = ctx.ops.Mul(size, lengths[letter])
        sizes.append(size)
    return ctx.ops.Concat(*sizes, axis=0)


def product_of_sizes(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else prod(size or 0 for size in sizes)


def emit_reshape(ctx: Context, x: Value, sizes: Sequence[int | None]) -> Value:
    allowzero = 1 if 0 in sizes and ctx.opset >= 14 else None
    return ctx.ops.Reshape(x, [-1 if size is None else size for size in sizes], allowzero=allowzero)
