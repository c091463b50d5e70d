"""Selection by a condition."""

from __future__ import annotations

from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Transparent,
    Value,
    axis_names,
    format_axes,
    handler,
    out,
)

TYPES = "bool, T, T -> T"


def selection_axes(at: Instance) -> str | None:
    """Return the axes; a condition of rank 1 has axis 0.

    The result is None if ranks or shapes do not fit together.
    """
    op = at.op
    names, rank = axis_names(op[1].rank), op[0].rank
    if op[1].dims != op[2].dims or op[out(0)].rank != op[1].rank or rank not in (0, 1, op[1].rank):
        return None
    return format_axes([names[:rank], names, names], names)


def check_condition(op: Operator) -> Decline | None:
    """Return a Decline for a vector condition on scalars.

    The kernel selects rows by its elements (SelectPrepare, kernels/select.cc).
    """
    condition, x = op[0], op[1]
    if condition.rank != 1 or x.rank or condition.shape == (1,) or not condition.is_static:
        return None
    return Decline(f"the condition has shape {list(condition.shape)}, but the operands are scalars")


@handler(
    "SELECT",
    max_version=4,
    layout=Attribute(unordered="*"),
    axes=selection_axes,
    quantization=Raw(shift_safe=True, onnx="Where"),
    types=TYPES,
    accepts=lambda at: check_condition(at.op),
)
def select(ctx: Context, condition: Value, x: Value, y: Value) -> Value:
    """Emit Where; a condition of rank 1 selects rows.

    Source: RankOneSelect (reference/select.h).
    """
    rank = ctx.op[1].rank
    if ctx.op[0].rank == 1 and rank > 1:
        row = ctx.axis(0, 1)
        condition = ctx.ops.Unsqueeze(condition, [axis for axis in range(rank) if axis != row])
    return emit_where(ctx, condition, x, y)


@handler("SELECT_V2", max_version=2, layout=Transparent(), quantization=Raw(shift_safe=True, onnx="Where"), types=TYPES)
def select_v2(ctx: Context, condition: Value, x: Value, y: Value) -> Value:
    """Emit Where with broadcast operands."""
    return emit_where(ctx, condition, x, y)


def emit_where(ctx: Context, condition: Value, x: Value, y: Value) -> Value:
    """Emit Where on quantized values; scales are ignored.

    The result is reshaped if the file stores a different rank of the result.
    """
    dtype, ops = ctx.dtype(out(0)), ctx.ops
    if dtype.startswith("complex"):
        condition = ops.Unsqueeze(condition, [-1])
    result = ops.Where(condition, x, y)
    broadcast_rank = max(ctx.op[slot].rank for slot in range(3))
    return result if broadcast_rank == ctx.op[out(0)].rank else ctx.reshape_to_slot(result, out(0))
