"""Sorting, reversal and deduplication of elements along an axis."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Decline,
    Implicit,
    Instance,
    Raw,
    Terminate,
    Value,
    axis_names,
    constant_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import cast_to_int64, constant_integers, rank_preserving_axes, unordered_layout

INT64 = np.iinfo(np.int64)


# --- sorting ----------------------------------------------------------------------------------


@handler(
    "TOPK_V2",
    max_version=3,
    layout=lambda at: unordered_layout(range(at.op[0].rank - 1)),
    axes=lambda at: rank_preserving_axes(at, outputs=2),
    quantization=Raw(shift_safe=True, onnx="TopK"),
)
def topk_v2(ctx: Context, x: Value, k: Value) -> tuple[Value, Value]:
    """Emit TopK over the last axis; NaN is last.

    A negative k gives an empty result (topk_v2.cc). Equal elements keep their order. NaN is ranked like -inf, so NaN
    and -inf in one row count as equal.
    """
    constant_k = constant_integers(ctx.op, 1)
    count = (
        ctx.ops.Max(ctx.ops.Reshape(cast_to_int64(ctx, 1, k), [1]), [0])
        if constant_k is None
        else [max(constant_k[0], 0)]
    )
    axis, is_float = ctx.axis(-1), ctx.op[0].dtype == "float32"
    sort_keys = ctx.ops.Where(ctx.ops.IsNaN(x), np.float32(-np.inf), x) if is_float else x
    values, indices = ctx.ops.TopK(sort_keys, count, axis=axis, outputs=2)
    if is_float:
        values = ctx.ops.GatherElements(x, indices, axis=axis)
    return values, ctx.ops.Cast(indices, to=ctx.op[out(1)].dtype)


# --- reversal ---------------------------------------------------------------------------------


def reverse_layout(at: Instance) -> Attribute:
    """Return a layout with all axes unordered except reversed ones."""
    op = at.op
    reversed_axes = constant_axes(op, 1, op[0].rank)
    return (
        Attribute()
        if reversed_axes is None
        else unordered_layout(a for a in range(op[0].rank) if a not in reversed_axes)
    )


@handler(
    "REVERSE_V2",
    max_version=4,
    layout=reverse_layout,
    axes=rank_preserving_axes,
    axis_number_slots={1},
    quantization=Raw(shift_safe=True, onnx="Slice"),
)
def reverse_v2(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit Slice from the last element backwards."""
    ops, count, onnx_axes = ctx.ops, ctx.op[1].dims[0], cast_to_int64(ctx, 1, axes)
    if count == 0:
        return x
    if count is not None:
        return ops.Slice(x, [-1] * count, [INT64.min] * count, onnx_axes, [-1] * count)
    axis_count = ops.Shape(onnx_axes)
    minus_ones, ends = ops.Expand([-1], axis_count), ops.Expand([INT64.min], axis_count)
    return ops.Slice(x, minus_ones, ends, onnx_axes, minus_ones)


def reverse_sequence_layout(at: Instance) -> Implicit:
    """Return the layout with the sequence and batch axes first, in the file's order."""
    op = at.op
    names, leading_axes = axis_names(op[0].rank), [op.options.seq_dim, op.options.batch_dim]
    sorted_axes = sorted(leading_axes)
    return Implicit(
        onnx={
            0: " ".join([*(names[a] for a in sorted_axes), *(n for a, n in enumerate(names) if a not in leading_axes)])
        }
    )


def check_lengths(at: Instance) -> Decline | None:
    """Return a Decline for missing axes or lengths out of range.

    The kernel checks only the first length, and writes beyond the end for other lengths (reverse_sequence.cc).
    """
    axes = sorted({at.op.options.seq_dim, at.op.options.batch_dim})
    if not 0 <= axes[0] <= axes[-1] < at.op[0].rank:
        return Decline(f"sequences and batches lie along axes {axes}, but the rank is {at.op[0].rank}")
    lengths, size = constant_integers(at.op, 1), at.op[0].dims[at.op.options.seq_dim]
    if lengths is None or size is None or all(0 <= length <= size for length in lengths):
        return None
    return Decline(f"sequence lengths range from {min(lengths)} to {max(lengths)}, but the axis has {size} elements")


@handler(
    "REVERSE_SEQUENCE",
    max_version=1,
    layout=reverse_sequence_layout,
    axes=rank_preserving_axes,
    quantization=Raw(shift_safe=True, onnx="ReverseSequence"),
    accepts=check_lengths,
)
def reverse_sequence(ctx: Context, x: Value, lengths: Value) -> Value:
    """Emit ReverseSequence; elements after a sequence are unchanged.

    Source: reference_ops.h.
    """
    time, batch = ctx.axis(ctx.options.seq_dim), ctx.axis(ctx.options.batch_dim)
    # Length 1 is equivalent to 0, for which ONNX Runtime before 1.28 is wrong.
    positive_lengths = ctx.ops.Max(cast_to_int64(ctx, 1, lengths), 1)
    return ctx.ops.ReverseSequence(x, positive_lengths, time_axis=time, batch_axis=batch)


# --- deduplication ---------------------------------------------------------------------------


@handler("UNIQUE", max_version=1, layout=Terminate(), quantization=Raw())
def unique(ctx: Context, x: Value) -> tuple[Value, Value]:
    """Emit Unique in order of first occurrence, with the index of each element."""
    values, _, indices, _ = ctx.ops.Unique(x, sorted=0, outputs=4)
    return values, ctx.ops.Cast(indices, to=ctx.op[out(1)].dtype)
