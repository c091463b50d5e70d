"""Constant tensors, ranges and one-hot tensors."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Instance,
    Operator,
    Raw,
    Refusal,
    Terminate,
    Transparent,
    Value,
    ValueLike,
    axis_names,
    format_axes,
    handler,
    out,
    spend_budget,
)
from op_handlers.kernels.operands import cast_to_int64, insert_axis, shape_from_operand, unordered_layout


def fill_axes(at: Instance) -> str:
    """Return the axes of the output; the value is a scalar."""
    return format_axes([None, []], axis_names(at.op[out(0)].rank))


@handler(
    "FILL",
    max_version=5,
    layout=Transparent(),
    axes=fill_axes,
    indexed_by_axis={0: out(0)},
    types="int32 int64, T -> T",
    quantization=Raw(shift_safe=True, onnx="Expand"),
    result_shape=shape_from_operand(0),
)
def fill(ctx: Context, shape: Value, value: Value) -> Value:
    """Emit Expand."""
    return ctx.ops.Expand(value, cast_to_int64(ctx, 0, shape))


@handler("ZEROS_LIKE", max_version=1, layout=Transparent())
def zeros_like(ctx: Context, x: Value) -> Value:
    """Emit zeros of the operand's shape.

    A product with 0 would keep NaN.
    """
    zero = np.zeros((), ctx.op[0].dtype)
    if ctx.op[0].is_static:
        sizes: ValueLike = np.asarray(ctx.shape(0), np.int64)
    else:
        sizes = ctx.ops.Shape(x)
    return ctx.ops.Expand(zero, sizes)


# --- sequences ----------------------------------------------------------------------------------


def constant_range(op: Operator) -> Array | None:
    """Return the range if operands are constant and delta leads to limit, else None.

    The kernel adds delta repeatedly (CalculateRange, range.cc).
    """
    start, limit, delta = (op.constant(slot) for slot in range(3))
    if start is None or limit is None or delta is None or not delta:
        return None
    if (limit > start) if delta < 0 else (limit < start):
        return None
    is_float = start.dtype == np.float32
    size = int(np.ceil(np.abs((limit - start) / delta)) if is_float else -(-abs(int(limit - start)) // abs(int(delta))))
    spend_budget(2 * size, start.itemsize, "a range")
    terms = np.concatenate([start.reshape(1), np.full(size, delta, start.dtype)])
    return np.add.accumulate(terms, dtype=start.dtype)[:size]


@handler("RANGE", max_version=2, layout=Terminate(), evaluate=lambda at: constant_range(at.op))
def range_(ctx: Context, start: Value, limit: Value, delta: Value) -> Value:
    """Emit Range, or for float32 a cumulative sum.

    The cumulative sum is rounded at each element, as in the kernel.
    """
    ops, constant_result = ctx.ops, constant_range(ctx.op)
    if constant_result is not None:
        return ctx.constant_value(constant_result)
    if all(ctx.op.constant(slot) is not None for slot in range(3)):
        raise Refusal("delta leads away from limit, which the kernel refuses (GetSize, range.cc)")
    if ctx.op[0].dtype != "float32":
        return ops.Range(start, limit, delta)
    size = ops.Reshape(ops.Cast(ops.Ceil(ops.Abs(ops.Div(ops.Sub(limit, start), delta))), to="int64"), [1])
    terms = ops.Concat(ops.Reshape(start, [1]), ops.Expand(delta, size), axis=0)
    return ops.Slice(ops.CumSum(terms, np.asarray(0)), [0], size)


# --- one-hot ---------------------------------------------------------------------------


def one_hot_axes(at: Instance) -> str | None:
    """Return the axes with the class axis inserted; a negative axis is the last."""
    names = axis_names(at.op[0].rank)
    return format_axes([names, None, None, None], insert_axis(names, int(at.op.options.axis)))


@handler(
    "ONE_HOT",
    max_version=1,
    layout=lambda at: unordered_layout(range(at.op[0].rank)),
    axes=one_hot_axes,
    quantization=Raw(),
    types="int32 int64, int32, T, T -> T",
)
def one_hot(ctx: Context, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Value:
    """Emit Equal with the class numbers, and Where.

    ONNX's OneHot counts negative indices from the end; the kernel gives them the off value. Indices of 64 bits are
    truncated to 32 (OneHotComputeImpl, one_hot.cc).
    """
    ops, axis, constant_depth = ctx.ops, ctx.axis(ctx.options.axis, out(0)), ctx.constant(1)
    if ctx.op[0].dtype != "int32":
        indices = ops.Cast(indices, to="int32")
    class_numbers: Value | Array
    if constant_depth is None:
        zero, one = np.asarray(0, np.int32), np.asarray(1, np.int32)
        class_numbers = ops.Range(zero, ops.Reshape(depth, np.zeros(0, np.int64)), one)
    else:
        spend_budget(4 * max(int(constant_depth.reshape(-1)[0]), 0), 4, "the numbers of classes")  # written and read
        class_numbers = np.arange(int(constant_depth.reshape(-1)[0]), dtype=np.int32)
    rank = ctx.op[0].rank
    aligned_numbers = ops.Unsqueeze(class_numbers, list(range(1, rank + 1 - axis))) if axis < rank else class_numbers
    is_class = ops.Equal(ops.Unsqueeze(indices, [axis]), aligned_numbers)
    return ops.Where(is_class, *(ops.Reshape(value, np.zeros(0, np.int64)) for value in (on_value, off_value)))
