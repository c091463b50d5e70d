"""Padding: with a number, or with the mirror image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from onnx_tflite_plugin.api import (
    Along,
    Array,
    Attribute,
    Context,
    Decline,
    Instance,
    Quantization,
    Raw,
    Refused,
    Value,
    ValueLike,
    handler,
    out,
    spend,
)
from op_handlers.kernels.operands import (
    cast_to_int64,
    constant_integers,
    preserved_axes,
    reshape_to_scalar,
    unordered_layout,
)

BY_AXIS = {1: 0}
COPIED = Raw(shift_safe=True, onnx="Pad")


def unpadded(at: Instance) -> Attribute:
    """Axes that get no padding may hold their elements in any order."""
    rows = constant_integers(at.op, 1) or []
    return unordered_layout(axis for axis in range(len(rows) // 2) if not any(rows[2 * axis : 2 * axis + 2]))


def pairs(at: Instance) -> Decline | None:
    """What goes before and behind each axis."""
    rows = at.op[1]
    if rows.static and rows.has_rank and rows.shape[1:] != (2,):
        return Decline(f"its paddings are of shape {list(rows.shape)}, and no pairs")
    return None


by_pairs = partial(
    handler, layout=unpadded, axes=preserved_axes, indexed_by_axis=BY_AXIS, quantization=COPIED, accepts=pairs
)


@by_pairs("PAD", max_version=6)
def pad(ctx: Context, x: Value, paddings: Value) -> Value:
    """Pad with zero: on integers the zero point of the output (pad.cc)."""
    return ctx.ops.Pad(x, onnx_pads(ctx, paddings), zero(ctx), mode="constant")


@by_pairs("PADV2", max_version=6)
def pad_v2(ctx: Context, x: Value, paddings: Value, number: Value | None = None) -> Value:
    """Pad with a number that has the output's parameters; with zero where there is none."""
    filling = zero(ctx) if number is None else reshape_to_scalar(ctx, 2, number)
    return ctx.ops.Pad(x, onnx_pads(ctx, paddings), filling, mode="constant")


def zero(ctx: Context) -> Array:
    quantization, file = ctx.quantization(out(0)), ctx.op[out(0)].quantization
    if ctx.op[0].quantization is None and isinstance(file, Quantization):
        raise Refused("its result has a scale and its operand none; give both one")
    return ctx.scalar(quantization.zero_point[0] if ctx.integers and quantization else 0)


def padded(ctx: Context, x: Value, rows: Sequence[tuple[int, int]], number: ValueLike) -> Value:
    """Pad by (before, after) of each TFLite axis."""
    return ctx.ops.Pad(x, np.asarray(ctx.by_axis(rows), np.int64).T.reshape(-1), number, mode="constant")


def onnx_pads(ctx: Context, paddings: Value) -> Value | Array:
    """Rows of (before, after) as ONNX has them: all befores, then all afters."""
    rows = cast_to_int64(ctx, 1, paddings)
    if isinstance(rows, np.ndarray):
        return rows.T.reshape(-1)
    return ctx.ops.Concat(*(ctx.ops.Gather(rows, np.asarray(side), axis=1) for side in (0, 1)), axis=0)


# --- mirror images ----------------------------------------------------------------------------


def gathered(at: Instance) -> Along | None:
    """Where a Gather does it, padded axes had better not be the innermost."""
    op = at.op
    rows = constant_integers(op, 1)
    if op.options.mode == "REFLECT" or rows is None or max(rows, default=0) <= 1:
        return None
    return Along("Gather", " ".join(f"a{axis}" for axis in range(op[0].rank) if any(rows[2 * axis : 2 * axis + 2])))


@by_pairs("MIRROR_PAD", max_version=3, along=gathered)
def mirror_pad(ctx: Context, x: Value, paddings: Value) -> Value:
    """Pad, reflect; ONNX has no symmetric mode: by one it is edge, by more a Gather along each padded axis."""
    constant = ctx.constant(1)
    if ctx.options.mode == "REFLECT":
        return ctx.ops.Pad(x, onnx_pads(ctx, paddings), mode="reflect")
    if constant is not None and constant.max(initial=0) <= 1:
        return ctx.ops.Pad(x, onnx_pads(ctx, paddings), mode="edge")
    shape, y = ctx.shape(0), x
    for axis, size in enumerate(shape):
        if constant is None or size is None:
            y = ctx.ops.Gather(y, mirrored_at_run_time(ctx, x, cast_to_int64(ctx, 1, paddings), axis), axis=axis)
        elif constant[axis].any():
            y = ctx.ops.Gather(y, mirrored(size, *map(int, constant[axis])), axis=axis)
    return y


def mirrored(size: int, before: int, after: int) -> Array:
    """The places of an axis and its mirror images; no image is longer than the axis (mirror_pad.cc)."""
    spend(3 * (before + size + after), 8, "the places of mirrored elements")
    place = np.arange(-before, size + after)
    place = np.maximum(place, -1 - place)
    return np.minimum(place, 2 * size - 1 - place)


def mirrored_at_run_time(ctx: Context, x: Value, rows: Value | Array, axis: int) -> Value:
    ops = ctx.ops
    size = ops.Gather(ops.Shape(x), np.asarray(axis))
    before, after = (ops.Gather(ops.Gather(rows, np.asarray(axis)), np.asarray(side)) for side in (0, 1))
    place = ops.Range(ops.Neg(before), ops.Add(size, after), 1)
    place = ops.Max(place, ops.Sub(-1, place))
    return ops.Min(place, ops.Sub(ops.Sub(ops.Mul(size, 2), 1), place))
