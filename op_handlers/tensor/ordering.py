"""Elements sorted, reversed or deduplicated along an axis."""

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


# --- sorted -----------------------------------------------------------------------------------


@handler(
    "TOPK_V2",
    max_version=3,
    layout=lambda at: unordered_layout(range(at.op[0].rank - 1)),
    axes=lambda at: rank_preserving_axes(at, outputs=2),
    quantization=Raw(shift_safe=True, onnx="TopK"),
)
def topk_v2(ctx: Context, x: Value, k: Value) -> tuple[Value, Value]:
    """Emit TopK over the last axis: first of equals first, NaN last, nothing for negative k (topk_v2.cc).

    NaN is ranked as -inf, so in a row with both they are equal.
    """
    constant = constant_integers(ctx.op, 1)
    number = (
        ctx.ops.Max(ctx.ops.Reshape(cast_to_int64(ctx, 1, k), [1]), [0]) if constant is None else [max(constant[0], 0)]
    )
    axis, real = ctx.axis(-1), ctx.op[0].dtype == "float32"
    ranked = ctx.ops.Where(ctx.ops.IsNaN(x), np.float32(-np.inf), x) if real else x
    values, places = ctx.ops.TopK(ranked, number, axis=axis, outputs=2)
    if real:
        values = ctx.ops.GatherElements(x, places, axis=axis)
    return values, ctx.ops.Cast(places, to=ctx.op[out(1)].dtype)


# --- reversed ---------------------------------------------------------------------------------


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
    holds_axes={1},
    quantization=Raw(shift_safe=True, onnx="Slice"),
)
def reverse_v2(ctx: Context, x: Value, axes: Value) -> Value:
    """Emit Slice from the last element backwards."""
    ops, count, along = ctx.ops, ctx.op[1].dims[0], cast_to_int64(ctx, 1, axes)
    if count == 0:
        return x
    if count is not None:
        return ops.Slice(x, [-1] * count, [INT64.min] * count, along, [-1] * count)
    each = ops.Shape(along)
    back, least = ops.Expand([-1], each), ops.Expand([INT64.min], each)
    return ops.Slice(x, back, least, along, back)


def reverse_sequence_layout(at: Instance) -> Implicit:
    """Return the layout with the sequence and batch axes first, in their stored order."""
    op = at.op
    names, front = axis_names(op[0].rank), [op.options.seq_dim, op.options.batch_dim]
    first = sorted(front)
    return Implicit(
        onnx={0: " ".join([*(names[a] for a in first), *(n for a, n in enumerate(names) if a not in front)])}
    )


def check_lengths(at: Instance) -> Decline | None:
    """Return a Decline for missing axes or lengths out of range (reverse_sequence.cc).

    The kernel checks the first length only, and writes beyond the end for the others.
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
    """Emit ReverseSequence; elements after a sequence's end stay (reference_ops.h)."""
    time, batch = ctx.axis(ctx.options.seq_dim), ctx.axis(ctx.options.batch_dim)
    at_least_one = ctx.ops.Max(cast_to_int64(ctx, 1, lengths), 1)  # the same; before 1.28 ONNX Runtime is wrong for 0
    return ctx.ops.ReverseSequence(x, at_least_one, time_axis=time, batch_axis=batch)


# --- without repeats --------------------------------------------------------------------------


@handler("UNIQUE", max_version=1, layout=Terminate(), quantization=Raw())
def unique(ctx: Context, x: Value) -> tuple[Value, Value]:
    """Emit Unique in order of first occurrence, with the index of each element."""
    values, _, places, _ = ctx.ops.Unique(x, sorted=0, outputs=4)
    return values, ctx.ops.Cast(places, to=ctx.op[out(1)].dtype)
