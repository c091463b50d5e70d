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


def concatenate(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit CONCATENATION along the axis in the last operand."""
    *operands, _ = rewriter.op.inputs
    return rewriter.finish(
        builtin.concatenation,
        operands,
        axis=constant_scalar(rewriter.op, len(operands)),
        fused_activation_function="NONE",
    )


def check_last_axis(instance: Instance) -> Decline | None:
    return constant_scalar_check(len(instance.op.inputs) - 1, "axis")(instance)


def check_equal_ranks(instance: Instance, slot: int) -> Decline | None:
    """Return a Decline unless the operand and the results have the same rank."""
    ranks = {
        tensor.rank for tensor in (instance.op[slot], *instance.op.outputs) if tensor is not None and tensor.has_rank
    }
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


def rewrite_split_v(rewriter: Rewriter, node: NodeDef) -> Any:
    """Emit SPLIT_V with an int32 axis."""
    x, sizes, axis = rewriter.op[0], rewriter.op[1], rewriter.op[2]
    return rewriter.finish(splitting.split_v, [x, sizes, as_int32(rewriter, axis)], num_splits=len(rewriter.op.outputs))


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
    accepts=lambda instance: constant_scalar_check(0, "axis")(instance) or check_equal_ranks(instance, 1),
    moves=True,
)
split_v = rewrite_to(
    "SplitV",
    splitting.split_v,
    split_v_arrays,
    operands=3,
    rewrite=rewrite_split_v,
    accepts=lambda instance: constant_scalar_check(2, "axis")(instance) or check_equal_ranks(instance, 0),
    moves=True,
)
