"""Gathering of elements by index, and lookup of rows in a table."""

from __future__ import annotations

from math import prod

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    AxisPrice,
    Context,
    Decline,
    Dequantized,
    Implicit,
    Instance,
    Operator,
    Quantization,
    Raw,
    Terminate,
    Value,
    axis_names,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import cast_to_int64, require_quantization, unordered_layout


def batch_dims(op: Operator) -> int:
    """Return the number of leading axes that input and indices share."""
    count = int(op.options.batch_dims)
    return count + op[1].rank if count < 0 else count


def gather_axis(op: Operator) -> int:
    return int(op.options.axis) % max(op[0].rank, 1)


def check_axes(at: Instance) -> Decline | None:
    op = at.op
    if not op[0].rank:
        return Decline("the input is a scalar, which the kernel refuses")
    if op.options.batch_dims and not 0 <= batch_dims(op) <= min(gather_axis(op), op[1].rank):
        axes = f"input of rank {op[0].rank} gathered along axis {gather_axis(op)} with indices of rank {op[1].rank}"
        return Decline(f"batch_dims is {op.options.batch_dims} for {axes}, which the kernel refuses")
    return None


def gather_axes(at: Instance) -> str | None:
    """Return the axes: in the result, axes of the indices replace the gathered axis.

    Batch axes that input and indices share are not repeated.
    """
    op = at.op
    names, axis, batch_count = axis_names(op[0].rank), gather_axis(op), batch_dims(op)
    before, after = names[:axis], names[axis + 1 :]
    if batch_count:
        index_axes = axis_names(op[1].rank - batch_count, "x")
        return format_axes([names, [*names[:batch_count], *index_axes]], [*before, *index_axes, *after])
    if op[1].rank > 1:
        return None
    return format_axes([names, None], [*before, *names[axis : axis + op[1].rank], *after])


def gather_layout(at: Instance) -> Attribute | Implicit:
    """Return the layout.

    Gather supports any layout. GatherND requires batch axes first, then the gathered axis.
    """
    op = at.op
    axis, batch_count = gather_axis(op), batch_dims(op)
    if not batch_count:
        return unordered_layout(a for a in range(op[0].rank) if a != axis)
    names = axis_names(op[0].rank)
    index_axes, other_axes = axis_names(op[1].rank - batch_count, "x"), [*names[batch_count:axis], *names[axis + 1 :]]
    return Implicit(
        onnx={
            0: " ".join([*names[:batch_count], names[axis], *other_axes]),
            out(0): " ".join([*names[:batch_count], *index_axes, *other_axes]),
        }
    )


def gather_price(at: Instance) -> AxisPrice | None:
    op = at.op
    return AxisPrice("Gather", f"a{gather_axis(op)}") if op[1].rank == 1 and not batch_dims(op) else None


@handler(
    "GATHER",
    max_version=8,
    layout=gather_layout,
    axes=gather_axes,
    axis_price=gather_price,
    quantization=Raw(shift_safe=True, onnx="Gather"),
    accepts=check_axes,
)
def gather(ctx: Context, x: Value, indices: Value) -> Value:
    """Emit Gather, or with batch dimensions GatherND on indices of one element."""
    batch_count = batch_dims(ctx.op)
    if not batch_count:
        onnx_indices = indices if ctx.op[1].dtype in ("int32", "int64") else cast_to_int64(ctx, 1, indices)
        return ctx.ops.Gather(x, onnx_indices, axis=ctx.axis(ctx.options.axis))
    positions = cast_to_int64(ctx, 1, indices)
    index_vectors = positions[..., None] if isinstance(positions, np.ndarray) else ctx.ops.Unsqueeze(positions, [-1])
    return ctx.ops.GatherND(x, index_vectors, batch_dims=batch_count)


# --- rows of a table --------------------------------------------------------------------------

MIN_PACKED_ELEMENTS = 2**18
"""Minimum number of elements of a table that is kept at 4 bits. This saves 128 kB; a lookup takes seven more operators."""
VALUES_PER_BYTE = {"int8": 1, "uint8": 1, "int4": 2, "int2": 4}


def is_dequantized(op: Operator) -> bool:
    """True if looked-up rows are dequantized."""
    return op[1].dtype != op[out(0)].dtype


def check_table(at: Instance) -> Decline | None:
    """Return a Decline unless rows and blocks begin at a byte and have no zero points.

    Source: Unpack4Bit, Unpack2Bit and EvalBlockwise, embedding_lookup.cc.
    """
    op = at.op
    rows, dtype, quantization = op[1], op[out(0)].dtype, op[1].quantization
    if not is_dequantized(op):
        return Decline("the table holds strings, which the kernel copies as bytes") if dtype == "string" else None
    if rows.dtype not in VALUES_PER_BYTE or dtype not in ("float32", "float16") or not rows.is_constant:
        return Decline(f"no kernel looks up {dtype} in a runtime table of {rows.dtype}; the table must be a constant")
    if rows.blocks is not None:
        if rows.dtype not in ("int4", "int2") or rows.rank != 2 or rows.blocks.block_size % VALUES_PER_BYTE[rows.dtype]:
            return Decline(
                f"the table is {rows.dtype} in blocks of {rows.blocks.block_size}, which the kernel does not read"
            )
        return None
    if (
        not isinstance(quantization, Quantization)
        or any(quantization.zero_point)
        or (quantization.per_axis and quantization.axis)
    ):
        return Decline(
            f"the {rows.dtype} table must have one scale, or one per row, and zero points of 0; quantize it this way"
        )
    if prod(rows.shape[1:]) % VALUES_PER_BYTE[rows.dtype]:
        return Decline(
            f"rows of {prod(rows.shape[1:])} {rows.dtype} end in the middle of a byte, and the kernel reads beyond the table"
        )
    return None


@handler(
    "EMBEDDING_LOOKUP",
    max_version=5,
    layout=Terminate(),
    quantization=lambda at: (
        Dequantized(weights=(1,), blocks=(1,)) if is_dequantized(at.op) else Raw(shift_safe=True, onnx="Gather")
    ),
    accepts=check_table,
    result_shape=lambda at: (*at.op[0].dims, *at.op[1].dims[1:]),
)
def embedding_lookup(ctx: Context, ids: Value, rows: Value) -> Value:
    """Emit Gather; gathered integers are dequantized with the scales of their rows.

    Source: embedding_lookup.cc.
    """
    if not is_dequantized(ctx.op):
        return ctx.ops.Gather(rows, ids, axis=0)
    integers, scales = rows_and_scales(ctx.op)
    if ctx.folds_weights:
        y = ctx.ops.Gather(integers.astype(np.float32) * scales, ids, axis=0)
    else:
        row_scales = scales if scales.size == 1 else look_up_scales(ctx, scales, ids)
        y = ctx.ops.Mul(look_up_integers(ctx, integers, ids), row_scales)
    y = y if integers.ndim == ctx.op[1].rank else ctx.reshape_to_slot(y, out(0))
    return y if ctx.op[out(0)].dtype == "float32" else ctx.ops.Cast(y, to="float16")


def look_up_scales(ctx: Context, scales: Array, ids: Value) -> Value:
    """Return the scales of the looked-up rows, with a trailing axis.

    Block scales have no trailing axis in the constant, so that products with the same table can share the constant.
    """
    if scales.ndim < 3:
        return ctx.ops.Gather(scales, ids, axis=0)
    return ctx.ops.Unsqueeze(ctx.ops.Gather(scales[..., 0], ids, axis=0), [-1])


def look_up_integers(ctx: Context, integers: Array, ids: Value) -> Value:
    """Return rows of integers as float32.

    Large tables of 4 bits store two values per byte, the first in the low bits, with 8 added to each.
    """
    is_packed = ctx.op[1].dtype == "int4" and ctx.target.packed_int4_lookups and integers.size >= MIN_PACKED_ELEMENTS
    if not is_packed or integers.shape[-1] % 2:
        return ctx.ops.Cast(ctx.ops.Gather(integers, ids, axis=0), to="float32")
    pairs = (integers + 8).astype(np.uint8).reshape(*integers.shape[:-1], -1, 2)
    table, four = pairs[..., 0] | pairs[..., 1] << 4, np.asarray(4, np.uint8)
    packed_rows = ctx.ops.Gather(table, ids, axis=0)
    low = ctx.ops.BitShift(ctx.ops.BitShift(packed_rows, four, direction="LEFT"), four, direction="RIGHT")
    high = ctx.ops.BitShift(packed_rows, four, direction="RIGHT")
    unpacked = ctx.ops.Concat(ctx.ops.Unsqueeze(low, [-1]), ctx.ops.Unsqueeze(high, [-1]), axis=-1)
    rows = ctx.ops.Reshape(unpacked, [*[0] * (ctx.op[0].rank + integers.ndim - 2), -1])
    return ctx.ops.Sub(ctx.ops.Cast(rows, to="float32"), np.float32(8))


def rows_and_scales(op: Operator) -> tuple[Array, Array]:
    """Return the table as int8, and scales that broadcast to it.

    The table's own dtype is ignored. Blocks get their own axis.
    """
    array = op[1].array
    integers = array.view(np.int8) if array.dtype == np.uint8 else array.astype(np.int8)
    if op[1].blocks is not None:
        rows, size = len(integers), op[1].blocks.block_size
        return integers.reshape(rows, -1, size), op[1].blocks.flat().reshape(rows, -1, 1)
    quantization = require_quantization(op[1])
    scales = np.asarray(quantization.scale, np.float32)
    return integers, scales.reshape(-1, *[1] * (integers.ndim - 1)) if quantization.per_axis else scales.reshape(())


# --- coordinates -----------------------------------------------------------------------------------


@handler("GATHER_ND", max_version=6, layout=Terminate(), quantization=Raw(shift_safe=True, onnx="GatherND"))
def gather_nd(ctx: Context, x: Value, indices: Value) -> Value:
    """Emit GatherND, which also fails for an index out of range (gather_nd.cc)."""
    return ctx.ops.GatherND(x, indices if ctx.op[1].dtype == "int64" else cast_to_int64(ctx, 1, indices))


@handler("WHERE", max_version=2, layout=Terminate(), quantization=Raw())
def where(ctx: Context, condition: Value) -> Value:
    """Emit NonZero, transposed to one row per coordinate (where.cc)."""
    nonzero = condition if ctx.op[0].dtype == "bool" else ctx.ops.Cast(condition, to="bool")
    return ctx.ops.Transpose(ctx.ops.NonZero(nonzero), perm=[1, 0])
