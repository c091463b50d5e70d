"""Source rows of data-movement operators. Rows are numbered through all axes but the last."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.recurrent_cells import slice_positions


class RowMovement(NamedTuple):
    """Source row of each result row, and the columns that are kept."""

    tensor: Tensor
    places: Array
    columns: range
    all_columns: bool


def row_movement(op: Operator, result: Tensor) -> RowMovement | None:
    """Return the rows and columns that an operator copies from its operand; ``None`` if it does anything else."""
    slot = 1 if op.code == "SPLIT" else 0
    data = op.tensor(slot) if op.code in _READERS else None
    if (
        data is None
        or data.is_constant
        or not data.is_static
        or not result.is_static
        or data.rank < 1
        or not result.shape
    ):
        return None
    numbers = np.arange(prod(data.shape[:-1])).reshape(data.shape[:-1])
    every = range(data.shape[-1])
    taken = _READERS[op.code](op, result, numbers, every)
    if taken is None:
        return None
    places, columns = taken
    if places.size != prod(result.shape[:-1]) or len(columns) != result.shape[-1]:
        return None
    return RowMovement(data, places.reshape(-1), columns, columns == every)


def _reshape_rows(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    return (numbers, every) if result.shape[-1] == len(every) else None


def _transpose_rows(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    perm = op.constant(1)
    if perm is None or perm.size != op[0].rank or perm[-1] != op[0].rank - 1:
        return None
    return numbers.transpose(perm[:-1].tolist()), every


def _reverse_rows(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    axes = op.constant(1)
    if axes is None:
        return None
    reversed_axes = tuple(int(axis) % op[0].rank for axis in axes.reshape(-1))
    return None if op[0].rank - 1 in reversed_axes else (np.flip(numbers, reversed_axes), every)


def _unpack_rows(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    axis = op.options.axis % op[0].rank
    return None if axis == op[0].rank - 1 else (numbers.take(op.outputs.index(result), axis), every)


def _split_rows(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    along = op.constant(0 if op.code == "SPLIT" else 2)
    if along is None or any(part is None for part in op.outputs):
        return None
    data = op[1 if op.code == "SPLIT" else 0]
    axis = int(along) % data.rank
    before = sum(op[~k].shape[axis] for k in range(op.outputs.index(result)))
    part = range(before, before + result.shape[axis])
    return (numbers, part) if axis == data.rank - 1 else (numbers.take(part, axis), every)


def _slice_rows(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    taken = slice_positions(op) if op.code == "STRIDED_SLICE" else _slice_positions(op)
    if taken is None or not all(taken) or [*taken[-1]] != [*range(taken[-1][0], taken[-1][-1] + 1)]:
        return None
    return numbers[np.ix_(*taken[:-1])], range(taken[-1][0], taken[-1][-1] + 1)


def _slice_positions(op: Operator) -> list[list[int]] | None:
    """Return the positions along each axis that a SLICE with constant operands selects."""
    begin, size = op.constant(1), op.constant(2)
    if begin is None or size is None or begin.size != op[0].rank:
        return None
    ends = [whole if n < 0 else at + n for at, n, whole in zip(begin, size, op[0].shape, strict=True)]
    return [[*range(int(at), int(end))] for at, end in zip(begin, ends, strict=True)]


_READERS = {
    "RESHAPE": _reshape_rows, "SLICE": _slice_rows, "STRIDED_SLICE": _slice_rows, "TRANSPOSE": _transpose_rows, "REVERSE_V2": _reverse_rows,
    "UNPACK": _unpack_rows, "SPLIT": _split_rows, "SPLIT_V": _split_rows,
}  # fmt: skip
