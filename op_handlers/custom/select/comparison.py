"""Comparisons, logical operators, and selection by a condition."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array
from op_handlers.custom.select.rewriting import ANY, REAL, make_kernel, rewrite_to, uniform_types
from op_handlers.math import comparison as builtin
from op_handlers.math import logic, selection
from op_handlers.tensor import indexing

COMPARISON_TYPES = uniform_types(REAL, 2, "bool")
EQUALITY_TYPES = uniform_types(f"{REAL} bool", 2, "bool")
LOGICAL_TYPES = "bool, bool -> bool"
SELECTION_TYPES = tuple(f"bool, {dtype}, {dtype} -> {dtype}" for dtype in (*ANY.split(), "complex64"))

equal = rewrite_to("Equal", builtin.equal, make_kernel(np.equal), operands=2, types=EQUALITY_TYPES)
not_equal = rewrite_to("NotEqual", builtin.not_equal, make_kernel(np.not_equal), operands=2, types=EQUALITY_TYPES)
greater = rewrite_to("Greater", builtin.greater, make_kernel(np.greater), operands=2, types=COMPARISON_TYPES)
greater_equal = rewrite_to(
    "GreaterEqual", builtin.greater_equal, make_kernel(np.greater_equal), operands=2, types=COMPARISON_TYPES
)
less = rewrite_to("Less", builtin.less, make_kernel(np.less), operands=2, types=COMPARISON_TYPES)
less_equal = rewrite_to("LessEqual", builtin.less_equal, make_kernel(np.less_equal), operands=2, types=COMPARISON_TYPES)

logical_and = rewrite_to("LogicalAnd", logic.logical_and, make_kernel(np.logical_and), operands=2, types=LOGICAL_TYPES)
logical_or = rewrite_to("LogicalOr", logic.logical_or, make_kernel(np.logical_or), operands=2, types=LOGICAL_TYPES)
logical_not = rewrite_to("LogicalNot", logic.logical_not, make_kernel(np.logical_not), types="bool -> bool")


def select_rows(condition: Array, x: Array, y: Array) -> Array:
    """Return elements of x or y; a condition of rank 1 selects along the first axis."""
    if condition.ndim == 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


def nonzero_positions(condition: Array) -> Array:
    return np.argwhere(condition).astype(np.int64)


select = rewrite_to("Select", selection.select, make_kernel(select_rows), operands=3, types=SELECTION_TYPES, moves=True)
select_v2 = rewrite_to(
    "SelectV2", selection.select_v2, make_kernel(np.where), operands=3, types=SELECTION_TYPES, moves=True
)
where = rewrite_to("Where", indexing.where, make_kernel(nonzero_positions), types=f"{REAL} bool -> int64", moves=True)
