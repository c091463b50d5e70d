"""Data-movement operators as copies of rows.

The rows of a tensor lie along its last axis, and are numbered in C order through all other axes.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.recurrent_cells import strided_slice_positions


class RowMovement(NamedTuple):
    """Copies of rows: result row ``i`` is row ``rows[i]`` of ``tensor``.

    ``columns``: the columns that are copied.
    """

    tensor: Tensor
    rows: Array
    columns: range
    has_all_columns: bool


def row_movement(op: Operator, result: Tensor) -> RowMovement | None:
    """Return the rows and columns that an operator copies; None if it copies no rows."""
    slot = 1 if op.code == "SPLIT" else 0
    data = op.tensor(slot) if op.code in _SELECTIONS else None
    if (
        data is None
        or data.is_constant
        or not data.is_static
        or not result.is_static
        or data.rank < 1
        or not result.shape
    ):
        return None
    row_numbers = np.arange(prod(data.shape[:-1])).reshape(data.shape[:-1])
    all_columns = range(data.shape[-1])
    selection = _SELECTIONS[op.code](op, result, row_numbers, all_columns)
    if selection is None:
        return None
    rows, columns = selection
    if rows.size != prod(result.shape[:-1]) or len(columns) != result.shape[-1]:
        return None
    return RowMovement(data, rows.reshape(-1), columns, columns == all_columns)


def _reshape_rows(op: Operator, result: Tensor, row_numbers: Array, all_columns: range) -> tuple[Array, range] | None:
    return (row_numbers, all_columns) if result.shape[-1] == len(all_columns) else None


def _transpose_rows(
    op: Operator, _result: Tensor, row_numbers: Array, all_columns: range
) -> tuple[Array, range] | None:
    perm = op.constant(1)
    if perm is None or perm.size != op[0].rank or perm[-1] != op[0].rank - 1:
        return None
    return row_numbers.transpose(perm[:-1].tolist()), all_columns


def _reverse_rows(op: Operator, _result: Tensor, row_numbers: Array, all_columns: range) -> tuple[Array, range] | None:
    axes = op.constant(1)
    if axes is None:
        return None
    reversed_axes = tuple(int(axis) % op[0].rank for axis in axes.reshape(-1))
    return None if op[0].rank - 1 in reversed_axes else (np.flip(row_numbers, reversed_axes), all_columns)


def _unpack_rows(op: Operator, result: Tensor, row_numbers: Array, all_columns: range) -> tuple[Array, range] | None:
    axis = op.options.axis % op[0].rank
    return None if axis == op[0].rank - 1 else (row_numbers.take(op.outputs.index(result), axis), all_columns)


def _split_rows(op: Operator, result: Tensor, row_numbers: Array, all_columns: range) -> tuple[Array, range] | None:
    split_axis = op.constant(0 if op.code == "SPLIT" else 2)
    if split_axis is None or any(output is None for output in op.outputs):
        return None
    data = op[1 if op.code == "SPLIT" else 0]
    axis = int(split_axis) % data.rank
    start = sum(op[~k].shape[axis] for k in range(op.outputs.index(result)))
    positions = range(start, start + result.shape[axis])
    return (row_numbers, positions) if axis == data.rank - 1 else (row_numbers.take(positions, axis), all_columns)


def _slice_rows(op: Operator, _result: Tensor, row_numbers: Array, all_columns: range) -> tuple[Array, range] | None:
    positions = strided_slice_positions(op) if op.code == "STRIDED_SLICE" else _slice_op_positions(op)
    if positions is None or not all(positions):
        return None
    *row_positions, column_positions = positions
    columns = range(column_positions[0], column_positions[-1] + 1)
    return (row_numbers[np.ix_(*row_positions)], columns) if column_positions == [*columns] else None


def _slice_op_positions(op: Operator) -> list[list[int]] | None:
    """Return the positions that a SLICE selects along each axis.

    Return ``None`` if begin or size is a runtime value.
    """
    begin, size = op.constant(1), op.constant(2)
    if begin is None or size is None or begin.size != op[0].rank:
        return None
    ends = [full_size if n < 0 else start + n for start, n, full_size in zip(begin, size, op[0].shape, strict=True)]
    return [[*range(int(start), int(end))] for start, end in zip(begin, ends, strict=True)]


_SELECTIONS = {
    "RESHAPE": _reshape_rows, "SLICE": _slice_rows, "STRIDED_SLICE": _slice_rows, "TRANSPOSE": _transpose_rows, "REVERSE_V2": _reverse_rows,
    "UNPACK": _unpack_rows, "SPLIT": _split_rows, "SPLIT_V": _split_rows,
}  # fmt: skip
