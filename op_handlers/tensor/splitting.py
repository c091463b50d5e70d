"""Splitting of tensors along an axis, which the results keep or drop."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Refusal,
    Value,
    axis_names,
    format_axes,
    handler,
    out,
)
from op_handlers.kernels.operands import cast_to_int64, rank_preserving_axes, unordered_layout


def check_part_count(at: Instance) -> Decline | None:
    """Return a Decline unless num_splits is the number of outputs.

    LiteRT's kernels would write beyond the outputs.
    """
    declared, output_count = at.op.options.get("num_splits", 0), len(at.op.outputs)
    return (
        Decline(f"num_splits is {declared}, but the operator has {output_count} outputs")
        if declared != output_count
        else None
    )


@handler(
    "SPLIT",
    max_version=5,
    layout=Attribute(),
    axis_number_slots={0},
    requires_constant={0},
    quantization=Raw(shift_safe=True, onnx="Split"),
    accepts=check_part_count,
)
def split(ctx: Context, _axis: Value, x: Value) -> tuple[Value, ...]:
    """Emit Split into equal parts along the axis in operand 0."""
    return emit_split(ctx, x, slot=0, data_slot=1)


def constant_axis(ctx: Context, slot: int) -> int:
    """Return the axis of a constant operand in the planned layout."""
    axis = ctx.require_constant(slot)
    if axis.size != 1:
        raise Refusal(f"the axis has shape {list(ctx.op[slot].shape)}, but the kernel reads a scalar")
    return int(axis.reshape(-1)[0])


def emit_split(ctx: Context, x: Value, slot: int, data_slot: int) -> tuple[Value, ...]:
    """Emit Split along the axis of a constant operand, into the sizes of the outputs."""
    axis, output_count = constant_axis(ctx, slot), len(ctx.op.outputs)
    # In the main subgraph (number 0) the converter derives the sizes; in other subgraphs they are the sizes in the file.
    if ctx.op.subgraph and any(len(ctx.shape(out(k))) != len(ctx.shape(data_slot)) for k in range(output_count)):
        raise Refusal("results and operand have different ranks")
    sizes, axis_size = [ctx.shape(out(k))[axis] for k in range(output_count)], ctx.shape(data_slot)[axis]
    if None not in sizes:
        return ctx.ops.Split(x, [size or 0 for size in sizes], axis=axis, outputs=output_count)
    if axis_size is not None and axis_size % output_count:
        raise Refusal(f"size {axis_size} does not divide into {output_count} equal parts")
    if axis_size is not None:
        return ctx.ops.Split(x, [axis_size // output_count] * output_count, axis=axis, outputs=output_count)
    part_size = ctx.ops.Div(ctx.ops.Gather(ctx.ops.Shape(x), [axis]), [output_count])
    return ctx.ops.Split(x, ctx.ops.Expand(part_size, [output_count]), axis=axis, outputs=output_count)


@handler(
    "SPLIT_V",
    max_version=3,
    layout=Attribute(),
    axis_number_slots={2},
    requires_constant={2},
    axes=lambda at: rank_preserving_axes(at, len(at.op.outputs)),
    quantization=Raw(shift_safe=True, onnx="Split"),
    types="_, int32 int64, int32",
    accepts=check_part_count,
)
def split_v(ctx: Context, x: Value, sizes: Value, _axis: Value) -> tuple[Value, ...]:
    """Emit Split into the sizes of an operand.

    One of the sizes may be -1 for the remainder.
    """
    axis, output_count = constant_axis(ctx, 2), len(ctx.op.outputs)
    if all(ctx.op[out(k)].rank == ctx.op[0].rank and ctx.shape(out(k))[axis] is not None for k in range(output_count)):
        return emit_split(ctx, x, slot=2, data_slot=0)
    part_sizes, axis_size = cast_to_int64(ctx, 1, sizes), ctx.shape(0)[axis]
    if isinstance(part_sizes, np.ndarray) and (axis_size is not None or -1 not in part_sizes):
        remainder = (axis_size or 0) - int(part_sizes[part_sizes >= 0].sum())
        return ctx.ops.Split(x, np.where(part_sizes < 0, remainder, part_sizes), axis=axis, outputs=output_count)
    runtime_remainder = ctx.ops.Sub(
        ctx.ops.Gather(ctx.ops.Shape(x), [axis]), ctx.ops.Add(ctx.ops.ReduceSum(part_sizes), 1)
    )
    return ctx.ops.Split(
        x, ctx.ops.Where(ctx.ops.Equal(part_sizes, -1), runtime_remainder, part_sizes), axis=axis, outputs=output_count
    )


def other_axes(op: Operator) -> list[int]:
    return [axis for axis in range(op[0].rank) if axis != op.options.axis % op[0].rank]


def unpack_axes(at: Instance) -> str:
    op = at.op
    names = axis_names(op[0].rank)
    return format_axes([names], *[[names[axis] for axis in other_axes(op)]] * len(op.outputs))


@handler(
    "UNPACK",
    max_version=6,
    layout=lambda at: unordered_layout(other_axes(at.op)),
    axes=unpack_axes,
    quantization=Raw(shift_safe=True, onnx="Gather"),
)
def unpack(ctx: Context, x: Value) -> Value | tuple[Value | None, ...]:
    """Emit a Gather per used output, or Squeeze for a single output."""
    axis, output_count = ctx.axis(ctx.options.axis), len(ctx.op.outputs)
    if ctx.shape(0)[axis] not in (None, output_count):
        outputs = f"{output_count} output{'s' if output_count > 1 else ''}"
        raise Refusal(f"axis {axis} has size {ctx.shape(0)[axis]}, and the operator has {outputs}")
    if output_count == 1:
        return ctx.ops.Squeeze(x, [axis])
    return tuple(ctx.ops.Gather(x, np.asarray(k), axis=axis) if ctx.is_used(k) else None for k in range(output_count))
