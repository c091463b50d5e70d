"""Padding with a constant, or by reflection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    AxisPrice,
    Context,
    Decline,
    Instance,
    Quantization,
    Raw,
    Refusal,
    Value,
    ValueLike,
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

PADDINGS_BY_AXIS = {1: 0}
COPIED = Raw(shift_safe=True, onnx="Pad")


def padding_layout(at: Instance) -> Attribute:
    """Return a layout in which axes without padding are unordered."""
    amounts = constant_integers(at.op, 1) or []
    return unordered_layout(axis for axis in range(len(amounts) // 2) if not any(amounts[2 * axis : 2 * axis + 2]))


def check_pairs(at: Instance) -> Decline | None:
    """Return a Decline unless the paddings are pairs."""
    paddings = at.op[1]
    if paddings.is_static and paddings.has_rank and paddings.shape[1:] != (2,):
        return Decline(f"paddings have shape {list(paddings.shape)}, expected pairs")
    return None


padding_handler = partial(
    handler,
    layout=padding_layout,
    axes=rank_preserving_axes,
    indexed_by_axis=PADDINGS_BY_AXIS,
    quantization=COPIED,
    accepts=check_pairs,
)


@padding_handler("PAD", max_version=6)
def pad(ctx: Context, x: Value, paddings: Value) -> Value:
    """Emit Pad with zeros, or for integers with the output's zero point (pad.cc)."""
    return ctx.ops.Pad(x, onnx_pads(ctx, paddings), padding_value(ctx), mode="constant")


@padding_handler("PADV2", max_version=6)
def pad_v2(ctx: Context, x: Value, paddings: Value, value: Value | None = None) -> Value:
    """Emit Pad with a value in the output's quantization, by default zeros."""
    pad_value = padding_value(ctx) if value is None else reshape_to_scalar(ctx, 2, value)
    return ctx.ops.Pad(x, onnx_pads(ctx, paddings), pad_value, mode="constant")


def padding_value(ctx: Context) -> Array:
    quantization, file_quantization = ctx.quantization(out(0)), ctx.op[out(0)].quantization
    if ctx.op[0].quantization is None and isinstance(file_quantization, Quantization):
        raise Refusal("the result has a scale, but the operand has none; give both tensors a scale")
    return ctx.scalar(quantization.zero_point[0] if ctx.uses_integers and quantization else 0)


def emit_pad(ctx: Context, x: Value, pairs: Sequence[tuple[int, int]], value: ValueLike) -> Value:
    """Emit Pad with pairs (before, after) per axis of the file."""
    return ctx.ops.Pad(x, np.asarray(ctx.permute_entries(pairs), np.int64).T.reshape(-1), value, mode="constant")


def onnx_pads(ctx: Context, paddings: Value) -> Value | Array:
    """Return the pairs (before, after) in the order of ONNX.

    ONNX lists the amounts before each axis, then the amounts after each axis.
    """
    pairs = cast_to_int64(ctx, 1, paddings)
    if isinstance(pairs, np.ndarray):
        return pairs.T.reshape(-1)
    return ctx.ops.Concat(*(ctx.ops.Gather(pairs, np.asarray(side), axis=1) for side in (0, 1)), axis=0)


# --- mirror images ----------------------------------------------------------------------------


def mirror_price(at: Instance) -> AxisPrice | None:
    """Return the price of a Gather along padded axes.

    The Gather is slow along the innermost axis.
    """
    op = at.op
    amounts = constant_integers(op, 1)
    if op.options.mode == "REFLECT" or amounts is None or max(amounts, default=0) <= 1:
        return None
    return AxisPrice(
        "Gather", " ".join(f"a{axis}" for axis in range(op[0].rank) if any(amounts[2 * axis : 2 * axis + 2]))
    )


@padding_handler("MIRROR_PAD", max_version=3, axis_price=mirror_price)
def mirror_pad(ctx: Context, x: Value, paddings: Value) -> Value:
    """Emit Pad by reflection, or for SYMMETRIC a Gather per padded axis.

    SYMMETRIC with at most one element of padding equals the mode "edge".
    """
    constant_paddings = ctx.constant(1)
    if ctx.options.mode == "REFLECT":
        return ctx.ops.Pad(x, onnx_pads(ctx, paddings), mode="reflect")
    if constant_paddings is not None and constant_paddings.max(initial=0) <= 1:
        return ctx.ops.Pad(x, onnx_pads(ctx, paddings), mode="edge")
    shape, y = ctx.shape(0), x
    for axis, size in enumerate(shape):
        if constant_paddings is None or size is None:
            y = ctx.ops.Gather(y, emit_mirrored_indices(ctx, x, cast_to_int64(ctx, 1, paddings), axis), axis=axis)
        elif constant_paddings[axis].any():
            y = ctx.ops.Gather(y, mirror_indices(size, *map(int, constant_paddings[axis])), axis=axis)
    return y


def mirror_indices(size: int, before: int, after: int) -> Array:
    """Return the indices of an axis and its reflections.

    Reflections are not longer than the axis (mirror_pad.cc).
    """
    spend_budget(3 * (before + size + after), 8, "the indices of mirrored elements")
    indices = np.arange(-before, size + after)
    indices = np.maximum(indices, -1 - indices)
    return np.minimum(indices, 2 * size - 1 - indices)


def emit_mirrored_indices(ctx: Context, x: Value, pairs: Value | Array, axis: int) -> Value:
    ops = ctx.ops
    size = ops.Gather(ops.Shape(x), np.asarray(axis))
    before, after = (ops.Gather(ops.Gather(pairs, np.asarray(axis)), np.asarray(side)) for side in (0, 1))
    indices = ops.Range(ops.Neg(before), ops.Add(size, after), 1)
    indices = ops.Max(indices, ops.Sub(-1, indices))
    return ops.Min(indices, ops.Sub(ops.Sub(ops.Mul(size, 2), 1), indices))
