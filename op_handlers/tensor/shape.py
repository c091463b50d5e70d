"""Operators that rename, regroup, stack, repeat or report axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Operator,
    Raw,
    Transparent,
    handler,
    out,
    permuted_by,
    reshaped,
    spelled,
)
from onnx_tflite_plugin.api.axes import letters
from op_handlers.kernels.operands import any_order, as_int64, in_place, whole_numbers

COPIED = Raw(shift_safe=True)


@handler("RESHAPE", max_version=1, layout=Attribute(unordered="*"), axes=reshaped, quantization=COPIED)
def reshape(ctx: Context, x: Any, shape: Any = None) -> Any:
    """Reshape to the planned shape; a shape known only at run time is taken as it comes, in source order."""
    if shape is None or ctx.op[1].constant or sum(d is None for d in ctx.op[out(0)].dims) <= 1:
        return ctx.reshaped(x, out(0))
    return ctx.ops.Reshape(x, ctx.ops.Cast(shape, to="int64"), allowzero=1 if ctx.opset >= 14 else None)


def squeezed(op: Operator) -> str | None:
    """The axes that are named go; where none is, all of size 1, which takes sizes."""
    gone, names = {axis % max(op[0].rank, 1) for axis in op.options.squeeze_dims}, letters(op[0].rank)
    if not gone or op[out(0)].rank != len(names) - len(gone):
        return reshaped(op)
    held = ["1" if axis in gone else name for axis, name in enumerate(names)]
    return spelled([held], [name for name in held if name != "1"])


@handler("SQUEEZE", max_version=2, layout=Attribute(unordered="*"), axes=squeezed, quantization=COPIED)
def squeeze(ctx: Context, x: Any) -> Any:
    """The same elements in the planned shape."""
    return ctx.reshaped(x, out(0))


def expanded(op: Operator) -> str | None:
    """An axis of size 1 is put in."""
    held, names = whole_numbers(op, 1), letters(op[0].rank)
    return None if held is None else spelled([names], with_axis(names, held[0], new="1"))


def with_axis(names: list[str], axis: int, new: str = "new") -> list[str]:
    """A new axis at a place counted in the result's axes (negative: from its end)."""
    at = axis % (len(names) + 1)
    return [*names[:at], new, *names[at:]]


@handler("EXPAND_DIMS", max_version=1, layout=Attribute(unordered="*"), axes=expanded, quantization=COPIED)
def expand_dims(ctx: Context, x: Any, axis: Any) -> Any:
    """Unsqueeze; the axis counts in the result's axes."""
    held = whole_numbers(ctx.op, 1)
    if held is None:
        one = ctx.ops.Expand(ctx.ops.Cast(axis, to="int64"), [1])  # ONNX Runtime takes a Reshape for one of x
        return ctx.ops.Unsqueeze(x, one)
    if len(ctx.shape(0)) == len(ctx.shape(out(0))):
        return x  # the plan shows the new axis on both sides, or on neither
    return ctx.ops.Unsqueeze(x, [ctx.axis(held[0], out(0))])


@handler(
    "TRANSPOSE",
    max_version=9,
    layout=Transparent(),
    axes=permuted_by(1),
    requires_constant={1},
    quantization=COPIED,
)
def transpose(ctx: Context, x: Any, _perm: Any) -> Any:
    """Only renames axes; where elements must move, the plan has put a Transpose at one of its edges."""
    return x


@handler("SHAPE", max_version=1, layout=Attribute(unordered="*"), indexed_by_axis={out(0): 0}, quantization=COPIED)
def shape(ctx: Context, x: Any) -> Any:
    """Shape of the planned order, which the host brings back to the file's; a constant where all sizes are known."""
    dtype = ctx.op[out(0)].dtype
    if ctx.op[0].static:
        return ctx.constant_value(np.asarray(ctx.shape(0), dtype))
    sizes = ctx.ops.Shape(x)
    return sizes if dtype == "int64" else ctx.ops.Cast(sizes, to=dtype)


# --- stacks and repetitions -------------------------------------------------------------------


def packed(op: Operator) -> str:
    names = letters(op[0].rank)
    return spelled([names] * len(op.inputs), with_axis(names, op.options.axis))


@handler(
    "PACK",
    max_version=5,
    layout=lambda op: any_order(op, range(op[0].rank)),
    axes=packed,
    quantization=Raw(shift_safe=True, onnx="Concat"),
)
def pack(ctx: Context, *xs: Any) -> Any:
    """Unsqueeze and Concat along the new axis, which counts in the result's axes."""
    axis = ctx.axis(ctx.options.axis, out(0))
    return ctx.ops.Concat(*(ctx.ops.Unsqueeze(x, [axis]) for x in xs), axis=axis)


def other_axes(op: Operator) -> list[int]:
    return [axis for axis in range(op[0].rank) if axis != op.options.axis % op[0].rank]


def unpacked(op: Operator) -> str:
    names = letters(op[0].rank)
    return spelled([names], *[[names[axis] for axis in other_axes(op)]] * len(op.outputs))


@handler(
    "UNPACK",
    max_version=6,
    layout=lambda op: any_order(op, other_axes(op)),
    axes=unpacked,
    quantization=Raw(shift_safe=True, onnx="Gather"),
)
def unpack(ctx: Context, x: Any) -> Any:
    """A Gather for each part that is used; of one part, Squeeze."""
    axis, n = ctx.axis(ctx.options.axis), len(ctx.op.outputs)
    if n == 1:
        return ctx.ops.Squeeze(x, [axis])
    return tuple(ctx.ops.Gather(x, np.asarray(k), axis=axis) if ctx.wanted(k) else None for k in range(n))


def repeated_once(op: Operator) -> Attribute:
    return any_order(op, (axis for axis, times in enumerate(whole_numbers(op, 1) or []) if times == 1))


@handler(
    "TILE",
    max_version=3,
    layout=repeated_once,
    axes=in_place,
    indexed_by_axis={1: 0},
    quantization=Raw(shift_safe=True, onnx="Tile"),
)
def tile(ctx: Context, x: Any, times: Any) -> Any:
    """Tile."""
    return ctx.ops.Tile(x, as_int64(ctx, 1, times)) if ctx.op[0].rank else x


@handler(
    "BROADCAST_TO",
    max_version=4,
    layout=Transparent(),
    indexed_by_axis={1: out(0)},
    quantization=Raw(shift_safe=True, onnx="Expand"),
)
def broadcast_to(ctx: Context, x: Any, shape: Any) -> Any:
    """Expand."""
    return ctx.ops.Expand(x, as_int64(ctx, 1, shape))
