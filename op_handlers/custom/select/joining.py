"""Concatenation and splitting of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Decline, Instance, Operator, Replacement, Rewriter
from op_handlers.custom.select.nodedef import NodeDef, node_of
from op_handlers.custom.select.rewriting import ANY, as_int32, constant_scalar, constant_scalar_check, rewrite_to
from op_handlers.tensor import joining as builtin
from op_handlers.tensor import splitting

SAME_TYPES = tuple(f"{dtype}..." for dtype in f"{ANY} complex64".split())


def concatenate(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit CONCATENATION along the axis in the last operand."""
    *operands, _ = steps.op.inputs
    return steps.finish(
        builtin.concatenation,
        operands,
        axis=constant_scalar(steps.op, len(operands)),
        fused_activation_function="NONE",
    )


def check_last_axis(at: Instance) -> Decline | None:
    return constant_scalar_check(len(at.op.inputs) - 1, "axis")(at)


def check_equal_ranks(at: Instance, slot: int) -> Decline | None:
    """Return a Decline unless the operand and the results have the same rank."""
    ranks = {tensor.rank for tensor in (at.op[slot], *at.op.outputs) if tensor is not None and tensor.has_rank}
    return Decline(f"operand and results have ranks {sorted(ranks)}, expected equal ranks") if len(ranks) > 1 else None


def pack_arrays(op: Operator, *operands: Array) -> Array:
    return np.stack(operands, node_of(op).integer("axis"))


def unpack_array(op: Operator, x: Array) -> Sequence[Array]:
    axis = node_of(op).integer("axis")
    return [np.take(x, k, axis) for k in range(x.shape[axis])]


def split_arrays(op: Operator, axis: Array, x: Array) -> Sequence[Array]:
    return np.split(x, len(op.outputs), int(axis.reshape(-1)[0]))


def split_v_arrays(op: Operator, x: Array, sizes: Array, axis: Array) -> Sequence[Array]:
    split_axis = int(axis.reshape(-1)[0])
    remaining_size = x.shape[split_axis] - sum(int(size) for size in sizes if size >= 0)
    ends = np.cumsum([remaining_size if size < 0 else size for size in sizes])
    return np.split(x, ends[:-1], split_axis)


def rewrite_split_v(steps: Rewriter, node: NodeDef) -> Any:
    """Emit SPLIT_V with an int32 axis."""
    x, sizes, axis = steps.op[0], steps.op[1], steps.op[2]
    return steps.finish(splitting.split_v, [x, sizes, as_int32(steps, axis)], num_splits=len(steps.op.outputs))


concat_v2 = rewrite_to(
    "ConcatV2",
    builtin.concatenation,
    lambda op, *operands: np.concatenate(operands[:-1], int(operands[-1].reshape(-1)[0])),
    operands=None,
    rewrite=concatenate,
    accepts=check_last_axis,
)
pack = rewrite_to(
    "Pack",
    builtin.pack,
    pack_arrays,
    operands=None,
    options=lambda node, op: {"axis": node.integer("axis"), "values_count": len(op.inputs)},
    types=SAME_TYPES,
    moves=True,
)
unpack = rewrite_to(
    "Unpack",
    splitting.unpack,
    unpack_array,
    options=lambda node, op: {"axis": node.integer("axis"), "num": len(op.outputs)},
    moves=True,
)
split = rewrite_to(
    "Split",
    splitting.split,
    split_arrays,
    operands=2,
    options=lambda node, op: {"num_splits": node.integer("num_split", len(op.outputs))},
    accepts=lambda at: constant_scalar_check(0, "axis")(at) or check_equal_ranks(at, 1),
    moves=True,
)
split_v = rewrite_to(
    "SplitV",
    splitting.split_v,
    split_v_arrays,
    operands=3,
    rewrite=rewrite_split_v,
    accepts=lambda at: constant_scalar_check(2, "axis")(at) or check_equal_ranks(at, 0),
    moves=True,
)
