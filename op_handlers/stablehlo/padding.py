"""Padding or cropping at both ends of axes, and padding between elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Context,
    Decline,
    Instance,
    Raw,
    Refusal,
    Value,
    handler,
    out,
    spend_budget,
)
from op_handlers.kernels.operands import (
    cast_to_int64,
    constant_integers,
    rank_preserving_axes,
    reshape_to_scalar,
    unordered_layout,
)


def padding_layout(at: Instance) -> Attribute:
    """Return a layout that may permute elements along axes without padding."""
    options = at.op.options
    amounts = zip(options.edge_padding_low, options.edge_padding_high, options.interior_padding, strict=True)
    return unordered_layout((axis for axis, axis_amounts in enumerate(amounts) if not any(axis_amounts)))


def check_not_empty(at: Instance) -> Decline | None:
    """Return a Decline for an empty result.

    The kernel would set every size to 0.
    """
    return Decline("the result has no elements") if 0 in at.op[out(0)].shape else None


@handler(
    "STABLEHLO_PAD",
    max_version=1,
    layout=padding_layout,
    axes=rank_preserving_axes,
    quantization=Raw(shift_safe=True, onnx="Pad"),
    accepts=check_not_empty,
)
def stablehlo_pad(ctx: Context, x: Value, value: Value) -> Value:
    """Emit Pad, and Gather for padding between elements (stablehlo_pad.cc).

    A negative amount crops.
    """
    options = ctx.options
    amounts = (
        ctx.permute_entries(entries)
        for entries in (options.edge_padding_low, options.edge_padding_high, options.interior_padding)
    )
    return emit_dilated_pad(ctx, x, reshape_to_scalar(ctx, 1, value), *amounts)


def emit_dilated_pad(
    ctx: Context, x: Value, value: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Value:
    """Emit padding before, after and between the elements of each axis.

    Axes are in the planned layout. Negative amounts remove elements. For interior padding, one padding value is appended
    to the axis, and a Gather inserts it between elements.
    """
    dilated_axes = [axis for axis, count in enumerate(interior) if count]
    edge_amounts = [
        0 if axis in dilated_axes else max(count, 0) for side in (low, high) for axis, count in enumerate(side)
    ]
    for axis in dilated_axes:
        edge_amounts[len(low) + axis] = 1
    y = x if not any(edge_amounts) else ctx.ops.Pad(x, np.asarray(edge_amounts, np.int64), value, mode="constant")
    for axis in dilated_axes:
        y = ctx.ops.Gather(y, source_indices(static_size(ctx, axis), low[axis], high[axis], interior[axis]), axis=axis)
    cropped_axes = [axis for axis in range(len(low)) if axis not in dilated_axes and min(low[axis], high[axis]) < 0]
    if not cropped_axes:
        return y
    ends = [min(high[axis], 0) or np.iinfo(np.int64).max for axis in cropped_axes]
    return ctx.ops.Slice(
        y, np.asarray([-min(low[axis], 0) for axis in cropped_axes]), np.asarray(ends), np.asarray(cropped_axes)
    )


def static_size(ctx: Context, axis: int) -> int:
    """Return an axis's size in the planned layout. Raises Refusal if dynamic."""
    size = ctx.shape(0)[axis]
    if size is None:
        raise Refusal("an axis with interior padding has a dynamic size; set it with --input-shape")
    return size


def source_indices(size: int, low: int, high: int, interior: int) -> Array:
    """Return the source index of each element; for a padding value, it is ``size``."""
    span = max((size - 1) * (interior + 1) + 1, 0)
    spend_budget(4 * max(low + span + high, 0), 8, "the indices of padded elements")
    positions = np.arange(-low, span + high)
    is_element = (positions % (interior + 1) == 0) & (positions >= 0) & (positions < span)
    return np.where(is_element, positions // (interior + 1), size).astype(np.int64)


# --- DILATE -----------------------------------------------------------------------------------


def dilate_layout(at: Instance) -> Attribute:
    return unordered_layout((axis for axis, step in enumerate(constant_integers(at.op, 1) or []) if step == 1))


@handler(
    "DILATE",
    max_version=1,
    layout=dilate_layout,
    axes=rank_preserving_axes,
    indexed_by_axis={1: 0},
    quantization=Raw(shift_safe=True, onnx="Pad"),
)
def dilate(ctx: Context, x: Value, steps: Value, value: Value) -> Value:
    """Emit padding values between elements, but not after the last (dilate.cc)."""
    constant_steps, rank = ctx.constant(1), ctx.op[0].rank
    if constant_steps is not None and all(
        step == 1 or ctx.shape(0)[axis] is not None for axis, step in enumerate(constant_steps)
    ):
        return emit_dilated_pad(
            ctx, x, reshape_to_scalar(ctx, 2, value), [0] * rank, [0] * rank, [int(step) - 1 for step in constant_steps]
        )
    ops, step_sizes = ctx.ops, cast_to_int64(ctx, 1, steps)
    y = ctx.ops.Pad(x, np.asarray([0] * rank + [1] * rank, np.int64), reshape_to_scalar(ctx, 2, value), mode="constant")
    for axis in range(rank):
        size = ops.Gather(ops.Shape(x), np.asarray(axis))
        step = (
            np.asarray(step_sizes[axis])
            if isinstance(step_sizes, np.ndarray)
            else ops.Gather(step_sizes, np.asarray(axis))
        )
        positions = ops.Range(0, ops.Add(ops.Mul(ops.Sub(size, 1), step), 1), 1)
        is_element = ops.Equal(ops.Mod(positions, step), 0)
        y = ops.Gather(y, ops.Where(is_element, ops.Div(positions, step), size), axis=axis)
    return y
