"""Matrix products, sums of products, diagonals and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Decline, Instance, Operator, Refusal, Terminate, Value, handler
from op_handlers.custom.select.nodedef import PREFIX, NodeDef, node_of
from op_handlers.custom.select.rewriting import (
    FLOATS,
    REAL,
    acceptance_check,
    constant_scalar_check,
    make_kernel,
    rewrite_to,
    uniform_types,
)
from op_handlers.matrix.batch_matmul import batch_matmul

TRANSPOSE_ATTRIBUTES = {"MatMul": ("transpose_a", "transpose_b")}
"""Names of the transpose attributes, for operators that do not name them adj_x and adj_y."""


def adjoint_flags(node: NodeDef) -> tuple[bool, bool]:
    first, second = TRANSPOSE_ATTRIBUTES.get(node.op, ("adj_x", "adj_y"))
    return node.flag(first), node.flag(second)


def matmul_options(node: NodeDef, op: Operator) -> dict[str, Any]:
    adj_x, adj_y = adjoint_flags(node)
    return {"adj_x": adj_x, "adj_y": adj_y, "asymmetric_quantize_inputs": False}


def multiply(op: Operator, x: Array, y: Array) -> Array:
    matrices = (
        np.swapaxes(a, -1, -2) if flag else a for a, flag in zip((x, y), adjoint_flags(node_of(op)), strict=True)
    )
    return np.asarray(np.matmul(*matrices))


TYPES = uniform_types(FLOATS, 2)
mat_mul = rewrite_to("MatMul", batch_matmul, multiply, operands=2, options=matmul_options, types=TYPES)
batch_mat_mul = rewrite_to("BatchMatMul", batch_matmul, multiply, operands=2, options=matmul_options, types=TYPES)
batch_mat_mul_v2 = rewrite_to("BatchMatMulV2", batch_matmul, multiply, operands=2, options=matmul_options, types=TYPES)
batch_mat_mul_v3 = rewrite_to("BatchMatMulV3", batch_matmul, multiply, operands=2, options=matmul_options, types=TYPES)


@handler(
    PREFIX + "MatrixDeterminant",
    max_version=1,
    layout=Terminate(),
    types=uniform_types("float32"),
    accepts=acceptance_check(1),
    kernel=make_kernel(np.linalg.det),
)
def determinant(ctx: Context, x: Value) -> Value:
    """Emit Det."""
    return ctx.ops.Det(x)


# --- sums of products -------------------------------------------------------------------------


def check_equation(instance: Instance) -> Decline | None:
    """Return a Decline for an equation that ONNX's Einsum does not support."""
    equation = node_of(instance.op).text("equation").replace(" ", "")
    operands, arrow, result = equation.partition("->")
    if not arrow or operands.count(",") != len(instance.op.inputs) - 1:
        return Decline(f"the equation {equation!r} does not describe {len(instance.op.inputs)} operands and a result")
    labels = result.replace(".", "")
    if len({*labels}) < len(labels):
        return Decline(f"the result of the equation {equation!r} repeats a label")
    terms = enumerate(operands.split(","))
    ellipsis_ranks = {instance.op[k].rank - len(term) + len("...") for k, term in terms if "..." in term}
    if len(ellipsis_ranks) > 1:
        return Decline(f"the ellipses of the equation {equation!r} stand for different numbers of axes")
    if ellipsis_ranks and "..." not in result:
        return Decline(f"the equation {equation!r} sums over the axes of an ellipsis")
    return None


@handler(
    PREFIX + "Einsum",
    max_version=1,
    layout=Terminate(),
    types=tuple(f"{dtype}..." for dtype in ["float32", "float64", "int32", "int64"]),
    min_opset=12,
    accepts=acceptance_check(None, accepts=check_equation),
    kernel=lambda op, *operands: np.asarray(np.einsum(node_of(op).text("equation"), *operands)),
)
def einsum(ctx: Context, *operands: Value) -> Value:
    """Emit Einsum."""
    return ctx.ops.Einsum(*operands, equation=node_of(ctx.op).text("equation"))


# --- diagonals --------------------------------------------------------------------------------


def diagonal_indices(rows: int, columns: int, offset: int) -> Array:
    """Return the positions of a diagonal in the flattened matrix.

    ``offset``: columns to the right of the main diagonal.
    """
    first_row, first_column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first_row, columns - first_column), 0)
    return (first_row + np.arange(count)) * columns + first_column + np.arange(count)


@handler(
    PREFIX + "MatrixDiagPartV3",
    max_version=1,
    layout=Terminate(),
    types=tuple(f"{dtype}, int32, {dtype} -> {dtype}" for dtype in f"{REAL} bool".split()),
    requires_constant={1},
    accepts=acceptance_check(3, accepts=constant_scalar_check(1, "diagonal")),
    kernel=make_kernel(lambda x, k, padding: np.diagonal(x, int(k.reshape(-1)[0]), -2, -1)),
)
def matrix_diagonal(ctx: Context, x: Value, _diagonal: Value, _padding: Value) -> Value:
    """Emit Gather of a diagonal in the flattened matrices."""
    ops, dims = ctx.ops, ctx.op[0].dims
    rows, columns = dims[-2:]
    if rows is None or columns is None:
        raise Refusal("the matrix has a dynamic size; set it with --input-shape")
    indices = diagonal_indices(rows, columns, int(ctx.require_constant(1).reshape(-1)[0]))
    flattened_shape = [*[0] * (len(dims) - 2), rows * columns]
    return ops.Gather(ops.Reshape(x, np.asarray(flattened_shape, np.int64)), indices, axis=-1)
