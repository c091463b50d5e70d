"""Rows that operators move without computing anything, by their numbers through all axes but the last."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.spelled_cells import sliced


class Moved(NamedTuple):
    """Where each row of a result comes from, and which columns it has of that."""

    tensor: Tensor
    places: Array
    columns: range
    all_columns: bool


def moved(op: Operator, result: Tensor) -> Moved | None:
    """What an operator takes of its operand without computing anything; ``None`` where it does anything else."""
    slot = 1 if op.code == "SPLIT" else 0
    data = op.tensor(slot) if op.code in _MOVES else None
    if data is None or data.constant or not data.static or not result.static or data.rank < 1 or not result.shape:
        return None
    numbers = np.arange(prod(data.shape[:-1])).reshape(data.shape[:-1])
    every = range(data.shape[-1])
    taken = _MOVES[op.code](op, result, numbers, every)
    if taken is None:
        return None
    places, columns = taken
    if places.size != prod(result.shape[:-1]) or len(columns) != result.shape[-1]:
        return None
    return Moved(data, places.reshape(-1), columns, columns == every)


def _reshaped(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    return (numbers, every) if result.shape[-1] == len(every) else None


def _transposed(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    perm = op.constant(1)
    if perm is None or perm.size != op[0].rank or perm[-1] != op[0].rank - 1:
        return None
    return numbers.transpose(perm[:-1].tolist()), every


def _reversed(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    axes = op.constant(1)
    if axes is None:
        return None
    turned = tuple(int(axis) % op[0].rank for axis in axes.reshape(-1))
    return None if op[0].rank - 1 in turned else (np.flip(numbers, turned), every)


def _unpacked(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    axis = op.options.axis % op[0].rank
    return None if axis == op[0].rank - 1 else (numbers.take(op.outputs.index(result), axis), every)


def _split(op: Operator, result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    along = op.constant(0 if op.code == "SPLIT" else 2)
    if along is None or any(part is None for part in op.outputs):
        return None
    data = op[1 if op.code == "SPLIT" else 0]
    axis = int(along) % data.rank
    before = sum(op[~k].shape[axis] for k in range(op.outputs.index(result)))
    part = range(before, before + result.shape[axis])
    return (numbers, part) if axis == data.rank - 1 else (numbers.take(part, axis), every)


def _sliced(op: Operator, _result: Tensor, numbers: Array, every: range) -> tuple[Array, range] | None:
    taken = sliced(op) if op.code == "STRIDED_SLICE" else _begun_at(op)
    if taken is None or not all(taken) or [*taken[-1]] != [*range(taken[-1][0], taken[-1][-1] + 1)]:
        return None
    return numbers[np.ix_(*taken[:-1])], range(taken[-1][0], taken[-1][-1] + 1)


def _begun_at(op: Operator) -> list[list[int]] | None:
    """The positions along each axis that a SLICE with constant operands takes."""
    begin, size = op.constant(1), op.constant(2)
    if begin is None or size is None or begin.size != op[0].rank:
        return None
    ends = [whole if n < 0 else at + n for at, n, whole in zip(begin, size, op[0].shape, strict=True)]
    return [[*range(int(at), int(end))] for at, end in zip(begin, ends, strict=True)]


_MOVES = {
    "RESHAPE": _reshaped, "SLICE": _sliced, "STRIDED_SLICE": _sliced, "TRANSPOSE": _transposed, "REVERSE_V2": _reversed,
    "UNPACK": _unpacked, "SPLIT": _split, "SPLIT_V": _split,
}  # fmt: skip
