"""Matrix products and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Operator, Terminate, Value, handler
from op_handlers.custom.select.nodedef import PREFIX, NodeDef, node_of
from op_handlers.custom.select.rewriting import FLOATS, acceptance_check, make_kernel, rewrite_to, uniform_types
from op_handlers.matrix.batch_matmul import batch_matmul

ADJOINTS = {"MatMul": ("transpose_a", "transpose_b")}
"""Attributes that transpose the operands of operators that do not call them adj_x and adj_y."""


def adjoint_flags(node: NodeDef) -> tuple[bool, bool]:
    first, second = ADJOINTS.get(node.op, ("adj_x", "adj_y"))
    return node.flag(first), node.flag(second)


def options(node: NodeDef, op: Operator) -> dict[str, Any]:
    x, y = adjoint_flags(node)
    return {"adj_x": x, "adj_y": y, "asymmetric_quantize_inputs": False}


def multiply(op: Operator, x: Array, y: Array) -> Array:
    matrices = (
        np.swapaxes(a, -1, -2) if flag else a for a, flag in zip((x, y), adjoint_flags(node_of(op)), strict=True)
    )
    return np.asarray(np.matmul(*matrices))


TYPES = uniform_types(FLOATS, 2)
mat_mul = rewrite_to("MatMul", batch_matmul, multiply, operands=2, options=options, types=TYPES)
batch_mat_mul = rewrite_to("BatchMatMul", batch_matmul, multiply, operands=2, options=options, types=TYPES)
batch_mat_mul_v2 = rewrite_to("BatchMatMulV2", batch_matmul, multiply, operands=2, options=options, types=TYPES)
batch_mat_mul_v3 = rewrite_to("BatchMatMulV3", batch_matmul, multiply, operands=2, options=options, types=TYPES)


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
