"""Reshaping, transposing, repeating and rolling of tensors, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Replacement,
    Rewriter,
    Terminate,
    Transparent,
    Value,
    handler,
    out,
)
from op_handlers.custom.select.nodedef import PREFIX, NodeDef, node_of
from op_handlers.custom.select.rewriting import (
    ANY,
    INDEXED_TYPES,
    INDICES,
    acceptance_check,
    as_int32,
    make_kernel,
    rewrite_to,
    rewrite_with_int32,
    uniform_types,
)
from op_handlers.math.cast import cast
from op_handlers.tensor import repetition
from op_handlers.tensor import shape as builtin

SAME_TYPES = (*uniform_types(f"{ANY} complex64"),)
"""Any dtype; the result has the dtype of the operand."""


def squeeze_array(op: Operator, x: Array) -> Array:
    return np.squeeze(x, tuple(node_of(op).integers("squeeze_dims")) or None)


def check_squeezed_axes(instance: Instance) -> Decline | None:
    """Return a Decline for axes that do not exist or whose size is not 1."""
    x, axes = instance.op[0], node_of(instance.op).integers("squeeze_dims")
    invalid_axis = next((axis for axis in axes if not -x.rank <= axis < x.rank or x.dims[axis] not in (1, None)), None)
    if invalid_axis is None:
        return None
    return Decline(f"axis {invalid_axis} of {list(x.dims)} is removed, but its size is not 1")


def rewrite_reshape(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit RESHAPE with an int32 vector of sizes."""
    return rewriter.finish(builtin.reshape, [rewriter.op[0], as_int32(rewriter, rewriter.op[1])], new_shape=())


def cast_sizes(op: Operator, sizes: Any) -> Array:
    """Return sizes, cast to the dtype of the operator's result."""
    return np.asarray(sizes, op[out(0)].dtype)


def rewrite_rank(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    return rewriter.finish(builtin.rank, [rewriter.op[0]])


def rewrite_identity(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit a CAST to the same dtype."""
    return rewriter.finish(cast, [rewriter.op[0]])


identity_ = rewrite_to(
    "Identity", cast, make_kernel(lambda x: x), rewrite=rewrite_identity, types=SAME_TYPES, moves=True
)
prevent_gradient = rewrite_to(
    "PreventGradient", cast, make_kernel(lambda x: x), rewrite=rewrite_identity, types=SAME_TYPES, moves=True
)
stop_gradient = rewrite_to(
    "StopGradient", cast, make_kernel(lambda x: x), rewrite=rewrite_identity, types=SAME_TYPES, moves=True
)
snapshot = rewrite_to(
    "Snapshot", cast, make_kernel(lambda x: x), rewrite=rewrite_identity, types=SAME_TYPES, moves=True
)
ensure_shape = rewrite_to(
    "EnsureShape", cast, make_kernel(lambda x: x), rewrite=rewrite_identity, types=SAME_TYPES, moves=True
)

expand_dims = rewrite_to(
    "ExpandDims",
    builtin.expand_dims,
    make_kernel(lambda x, axis: np.expand_dims(x, int(axis.reshape(-1)[0]))),
    operands=2,
    types=INDEXED_TYPES,
    moves=True,
)
squeeze = rewrite_to(
    "Squeeze",
    builtin.squeeze,
    squeeze_array,
    options=lambda node, op: {"squeeze_dims": node.integers("squeeze_dims")},
    types=SAME_TYPES[:-1],
    accepts=check_squeezed_axes,
    moves=True,
)
reshape_ = rewrite_to(
    "Reshape",
    builtin.reshape,
    make_kernel(lambda x, sizes: x.reshape([int(n) for n in sizes])),
    operands=2,
    rewrite=rewrite_reshape,
    types=INDEXED_TYPES,
    moves=True,
    dynamic_batch_values={1: -1},
)
transpose = rewrite_to(
    "Transpose",
    builtin.transpose,
    make_kernel(lambda x, perm: x.transpose([int(axis) for axis in perm])),
    operands=2,
    rewrite=rewrite_with_int32(builtin.transpose, 1),
    types=INDEXED_TYPES,
    moves=True,
)
broadcast_to = rewrite_to(
    "BroadcastTo",
    repetition.broadcast_to,
    make_kernel(lambda x, sizes: np.broadcast_to(x, [int(n) for n in sizes])),
    operands=2,
    types=INDEXED_TYPES,
    moves=True,
    dynamic_batch_values={1: 1},
)
tile = rewrite_to(
    "Tile",
    repetition.tile,
    make_kernel(lambda x, times: np.tile(x, [int(n) for n in times])),
    operands=2,
    types=INDEXED_TYPES,
    moves=True,
)
shape = rewrite_to(
    "Shape",
    builtin.shape,
    lambda op, x: cast_sizes(op, x.shape),
    options=lambda node, op: {"out_type": node.dtype("out_type", "int32").upper()},
    types=f"_ -> {INDICES}",
    moves=True,
)
rank_ = rewrite_to(
    "Rank", builtin.rank, lambda op, x: cast_sizes(op, x.ndim), rewrite=rewrite_rank, types="_ -> int32", moves=True
)


@handler(
    PREFIX + "Size",
    max_version=1,
    layout=Transparent(),
    axes="... -> ",
    quantization=Raw(),
    types=f"_ -> {INDICES}",
    result_dtypes={"*": ("*",)},
    accepts=acceptance_check(1, moves=True),
    kernel=lambda op, x: cast_sizes(op, x.size),
)
def size(ctx: Context, x: Value) -> Value:
    """Emit Size."""
    element_count, dtype = ctx.ops.Size(x), ctx.op[out(0)].dtype
    return element_count if dtype == "int64" else ctx.ops.Cast(element_count, to=dtype)


def check_shifts(instance: Instance) -> Decline | None:
    shift, axis = instance.op[1], instance.op[2]
    if not (shift.is_static and axis.is_static) or prod(shift.shape) == prod(axis.shape):
        return None
    return Decline(f"{prod(shift.shape)} shifts for {prod(axis.shape)} axes, expected one per axis")


@handler(
    PREFIX + "Roll",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types=tuple(f"{dtype}, int32 int64, int32 int64 -> {dtype}" for dtype in ANY.split()),
    requires_constant={1, 2},
    accepts=acceptance_check(3, moves=True, accepts=check_shifts),
    kernel=lambda op, x, shift, axis: np.roll(x, shift.reshape(-1).tolist(), axis.reshape(-1).tolist()),
)
def roll(ctx: Context, x: Value, _shift: Value, _axis: Value) -> Value:
    """Emit a Gather of shifted positions for each axis."""
    ops = ctx.ops
    for shift, axis in zip(ctx.require_constant(1).reshape(-1), ctx.require_constant(2).reshape(-1), strict=True):
        onnx_axis, count = ctx.axis(int(axis)), ctx.op[0].dims[int(axis)]
        if count is not None:
            x = ops.Gather(x, (np.arange(count) - int(shift)) % max(count, 1), axis=onnx_axis)
            continue
        runtime_count = ops.Gather(ops.Shape(x), np.asarray(onnx_axis))
        positions = ops.Sub(ops.Range(np.int64(0), runtime_count, np.int64(1)), np.int64(shift))
        x = ops.Gather(x, ops.Mod(positions, runtime_count), axis=onnx_axis)
    return x
