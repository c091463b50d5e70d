"""Comparisons, logic, and selection by a condition."""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array
from op_handlers.custom.select.twins import ANY, REAL, alike, arrays, twin
from op_handlers.math import comparison as builtin
from op_handlers.math import logic, selection
from op_handlers.tensor import indexing

COMPARED = alike(REAL, 2, "bool")
EQUAL = alike(f"{REAL} bool", 2, "bool")
FLAGS = "bool, bool -> bool"
CHOSEN = tuple(f"bool, {dtype}, {dtype} -> {dtype}" for dtype in (*ANY.split(), "complex64"))

equal = twin("Equal", builtin.equal, arrays(np.equal), operands=2, types=EQUAL)
not_equal = twin("NotEqual", builtin.not_equal, arrays(np.not_equal), operands=2, types=EQUAL)
greater = twin("Greater", builtin.greater, arrays(np.greater), operands=2, types=COMPARED)
greater_equal = twin("GreaterEqual", builtin.greater_equal, arrays(np.greater_equal), operands=2, types=COMPARED)
less = twin("Less", builtin.less, arrays(np.less), operands=2, types=COMPARED)
less_equal = twin("LessEqual", builtin.less_equal, arrays(np.less_equal), operands=2, types=COMPARED)

logical_and = twin("LogicalAnd", logic.logical_and, arrays(np.logical_and), operands=2, types=FLAGS)
logical_or = twin("LogicalOr", logic.logical_or, arrays(np.logical_or), operands=2, types=FLAGS)
logical_not = twin("LogicalNot", logic.logical_not, arrays(np.logical_not), types="bool -> bool")


def of_rows(condition: Array, x: Array, y: Array) -> Array:
    """Return elements of x or y by a condition; a condition of one axis selects rows."""
    if condition.ndim == 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


def places(condition: Array) -> Array:
    return np.argwhere(condition).astype(np.int64)


select = twin("Select", selection.select, arrays(of_rows), operands=3, types=CHOSEN, moves=True)
select_v2 = twin("SelectV2", selection.select_v2, arrays(np.where), operands=3, types=CHOSEN, moves=True)
where = twin("Where", indexing.where, arrays(places), types=f"{REAL} bool -> int64", moves=True)
