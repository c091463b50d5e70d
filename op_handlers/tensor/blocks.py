"""Blocks of height and width, and what they become: depth, or batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Array,
    Attribute,
    Context,
    Instance,
    Operator,
    Raw,
    Refused,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import cast_to_int64, constant_integers
from op_handlers.tensor.padding import padded, zero


def quantized_along(onnx: str) -> Callable[[Instance], Along | None]:
    """Channels first costs integers more than the Transposes around it, which runtimes take out again."""
    return lambda at: Along(f"{onnx}/integers", "h w") if at.op[0].dtype in ("int8", "uint8") else None


# --- depth ------------------------------------------------------------------------------------


@handler(
    "DEPTH_TO_SPACE",
    max_version=2,
    layout=Attribute(unordered="n"),
    axes="n h w c -> n h w c",
    along=quantized_along("DepthToSpace"),
    quantization=Raw(shift_safe=True),
)
def depth_to_space(ctx: Context, x: Value) -> Value:
    """DepthToSpace, DCR, channels first; in any other order the Transpose it stands for."""
    size = ctx.options.block_size
    if channels_first(ctx) and ctx.target.has_kernel("DepthToSpace", ctx.dtype(0)):
        return ctx.ops.DepthToSpace(x, blocksize=size, mode="DCR")
    n, h, w, c = ctx.op[0].dims
    sizes = {"n": n, "h": h, "w": w, "p": size, "q": size, "d": None if c is None else c // size**2}
    return rearranged(ctx, x, "n h w pqd", "n hp wq d", sizes)


@handler(
    "SPACE_TO_DEPTH",
    max_version=2,
    layout=Attribute(unordered="n"),
    axes="n h w c -> n h w c",
    along=quantized_along("SpaceToDepth"),
    quantization=Raw(shift_safe=True),
)
def space_to_depth(ctx: Context, x: Value) -> Value:
    """SpaceToDepth channels first; in any other order the Transpose it stands for."""
    size = ctx.options.block_size
    if channels_first(ctx) and ctx.target.has_kernel("SpaceToDepth", ctx.dtype(0)):
        return ctx.ops.SpaceToDepth(x, blocksize=size)
    n, h, w, c = ctx.op[0].dims
    sizes = {"n": n, "h": cut(h, size), "w": cut(w, size), "p": size, "q": size, "c": c}
    return rearranged(ctx, x, "n hp wq c", "n h w pqc", sizes)


def channels_first(ctx: Context) -> bool:
    return ctx.perm() == (0, 3, 1, 2)


# --- batches ----------------------------------------------------------------------------------


def constant_blocks(op: Operator) -> bool:
    return op.constant(1) is not None and op.constant(2) is not None


def by_blocks(at: Instance) -> Attribute | Terminate:
    return Attribute(unordered="c") if constant_blocks(at.op) else Terminate()


def along_blocks(at: Instance) -> Along | None:
    return Along("Transpose/blocks", "h w") if constant_blocks(at.op) else None


def spatial_axes(at: Instance) -> str:
    """Batch, one or two spatial axes, channels (the kernels take no more)."""
    axes = " ".join(["n", *"hw"[: at.op[0].rank - 2], "c"])
    return f"{axes} -> {axes}"


@handler(
    "SPACE_TO_BATCH_ND",
    max_version=4,
    layout=by_blocks,
    axes=spatial_axes,
    along=along_blocks,
    quantization=Raw(shift_safe=True, onnx="Pad"),
    types="_, int32, int32",  # which the kernels read whatever they are
)
def space_to_batch_nd(ctx: Context, x: Value, shape: Value, paddings: Value) -> Value:
    """Pad with zero, then one batch per place in a block, the place before the batch (space_to_batch_nd.h)."""
    if not constant_blocks(ctx.op):
        return batches_at_run_time(ctx, x, cast_to_int64(ctx, 1, shape), cast_to_int64(ctx, 2, paddings))
    block, rows = blocks(ctx.op)
    if any(map(any, rows)):
        x = padded(ctx, x, [(0, 0), *rows, (0, 0)], zero(ctx))
    n, *size, c = ctx.op[0].dims
    total = [None if s is None else s + sum(row) for s, row in zip(size, rows, strict=True)]
    wide, flat = axis_patterns(len(block))
    sizes = {
        "n": n,
        "c": c,
        **dict(zip("pq", block, strict=False)),
        **dict(zip("hw", map(cut, total, block), strict=False)),
    }
    return rearranged(ctx, x, wide, flat, sizes)


@handler(
    "BATCH_TO_SPACE_ND",
    max_version=4,
    layout=by_blocks,
    axes=spatial_axes,
    along=along_blocks,
    quantization=Raw(shift_safe=True, onnx="Slice"),
    types="_, int32, int32",  # which the kernels read whatever they are
)
def batch_to_space_nd(ctx: Context, x: Value, shape: Value, crops: Value) -> Value:
    """SPACE_TO_BATCH_ND backwards: the batches take their places again, then Slice the crops off."""
    if not constant_blocks(ctx.op):
        return space_at_run_time(ctx, x, cast_to_int64(ctx, 1, shape), cast_to_int64(ctx, 2, crops))
    block, rows = blocks(ctx.op)
    n, *size, c = ctx.op[0].dims
    wide, flat = axis_patterns(len(block))
    sizes = {
        "n": cut(n, prod(block)),
        "c": c,
        **dict(zip("pq", block, strict=False)),
        **dict(zip("hw", size, strict=False)),
    }
    whole = rearranged(ctx, x, flat, wide, sizes)
    cropped = [k for k, row in enumerate(rows) if any(row)]
    if not cropped:
        return whole
    starts, ends = [rows[k][0] for k in cropped], [-rows[k][1] or 2**31 for k in cropped]
    return ctx.ops.Slice(whole, starts, ends, [ctx.axis(1 + k) for k in cropped])


def axis_patterns(spatial: int) -> tuple[str, str]:
    """The axes with blocks in height and width, and with the places in a block before the batch."""
    return ("n hp c", "pn h c") if spatial == 1 else ("n hp wq c", "pqn h w c")


def blocks(op: Operator) -> tuple[list[int], list[tuple[int, int]]]:
    """The block's shape, and what is padded or cropped before and after each spatial axis."""
    block, rows = constant_integers(op, 1) or [], constant_integers(op, 2) or []
    return block, list(zip(rows[::2], rows[1::2], strict=True))


def batches_at_run_time(ctx: Context, x: Value, block: Value | Array, rows: Value | Array) -> Value:
    """The same in the file's order, the block, the paddings or both known only at run time."""
    ops, spatial = ctx.ops, ctx.op[0].rank - 2
    before, after = sides(ctx, rows)
    full = ctx.ops.Pad(x, ops.Concat([0], before, [0, 0], after, [0], axis=0), zero(ctx), mode="constant")
    n, size, c = edges(ctx, full)
    cells = ops.Div(size, block)
    pairs = ops.Reshape(ops.Concat(ops.Unsqueeze(cells, [1]), ops.Unsqueeze(block, [1]), axis=1), [-1])
    split = ops.Reshape(full, ops.Concat(n, pairs, c, axis=0))
    perm = [*range(2, 2 * spatial + 1, 2), 0, *range(1, 2 * spatial + 1, 2), 2 * spatial + 1]
    return ops.Reshape(ops.Transpose(split, perm=perm), ops.Concat([-1], cells, c, axis=0))


def space_at_run_time(ctx: Context, x: Value, block: Value | Array, crops: Value | Array) -> Value:
    ops, spatial = ctx.ops, ctx.op[0].rank - 2
    _, size, c = edges(ctx, x)
    split = ops.Reshape(x, ops.Concat(block, [-1], size, c, axis=0))
    pairs = [axis for k in range(spatial) for axis in (spatial + 1 + k, k)]
    full = ops.Mul(size, block)
    whole = ops.Reshape(
        ops.Transpose(split, perm=[spatial, *pairs, 2 * spatial + 1]), ops.Concat([-1], full, c, axis=0)
    )
    before, after = sides(ctx, crops)
    return ops.Slice(whole, before, ops.Sub(full, after), list(range(1, 1 + spatial)))


def sides(ctx: Context, rows: Value | Array) -> tuple[Value, Value]:
    """What is before and after each spatial axis."""
    before, after = (ctx.ops.Gather(rows, np.asarray(side), axis=1) for side in (0, 1))
    return before, after


def edges(ctx: Context, x: Value) -> tuple[Value, Value, Value]:
    """The numbers of batches, of places along each spatial axis, and of channels."""
    shape, rank = ctx.ops.Shape(x), ctx.op[0].rank
    n, size, c = (ctx.ops.Slice(shape, [a], [b]) for a, b in ((0, 1), (1, rank - 1), (rank - 1, rank)))
    return n, size, c


# --- both -------------------------------------------------------------------------------------


def cut(size: int | None, block: int) -> int | None:
    if size is not None and size % block:
        raise Refused(f"{size} elements are not in blocks of {block}")
    return None if size is None else size // block


def rearranged(ctx: Context, x: Value, before: str, after: str, sizes: Mapping[str, int | None]) -> Value:
    """Reshape, Transpose, Reshape in planned order. Each group is an axis of the file, each letter a factor of it."""
    left, right = ctx.by_axis(before.split()), ctx.by_axis(after.split(), out(0))
    letters, wanted = "".join(left), "".join(right)
    shapes = [[sizes[letter] for letter in letters], [times([sizes[letter] for letter in group]) for group in right]]
    if max(shape.count(None) for shape in shapes) > 1:
        lengths = run_time_lengths(ctx, x, left, sizes)
        split, whole = (joined(ctx, groups, lengths) for groups in (letters, right))
        allowzero = 1 if ctx.opset >= 14 else None
        parts = ctx.ops.Reshape(x, split, allowzero=allowzero)
        moved = ctx.ops.Transpose(parts, perm=[letters.index(letter) for letter in wanted])
        return ctx.ops.Reshape(moved, whole, allowzero=allowzero)
    split = shaped(ctx, x, shapes[0])
    moved = ctx.ops.Transpose(split, perm=[letters.index(letter) for letter in wanted])
    return shaped(ctx, moved, shapes[1])


def run_time_lengths(
    ctx: Context, x: Value, groups: Sequence[str], sizes: Mapping[str, int | None]
) -> dict[str, Value | Array]:
    """The length of each letter, of shape [1]; an unknown one is what the others leave of its axis."""
    shape, lengths = ctx.ops.Shape(x), dict[str, "Value | Array"]()
    for axis, group in enumerate(groups):
        for letter in group:
            size = sizes[letter]
            rest = prod(sizes[other] or 1 for other in group if other != letter)
            whole = np.full(1, size) if size is not None else ctx.ops.Gather(shape, [axis])
            lengths[letter] = whole if isinstance(whole, np.ndarray) else ctx.ops.Div(whole, rest)
    return lengths


def joined(ctx: Context, groups: Sequence[str], lengths: Mapping[str, Value | Array]) -> Value:
    """The sizes that groups of letters have."""
    sizes = []
    for group in groups:
        size = lengths[group[0]]
        for letter in group[1:]:
            size = ctx.ops.Mul(size, lengths[letter])
        sizes.append(size)
    return ctx.ops.Concat(*sizes, axis=0)


def times(sizes: Sequence[int | None]) -> int | None:
    return None if None in sizes else prod(size or 0 for size in sizes)


def shaped(ctx: Context, x: Value, sizes: Sequence[int | None]) -> Value:
    allowzero = 1 if 0 in sizes and ctx.opset >= 14 else None
    return ctx.ops.Reshape(x, [-1 if size is None else size for size in sizes], allowzero=allowzero)
