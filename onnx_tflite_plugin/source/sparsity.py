"""Sparse constants, stored as a tree of coordinates with one level per dimension.

The format is described at ``SparsityParameters`` in the schema (a variant of TACO's). The decoding agrees with
LiteRT's ``FormatConverter::SparseToDense``, the checks with ``VerifyAndCountSparseElements``. A tensor of rank n
with k blocked dimensions has n + k levels. ``traversal_order[level]`` is the dimension d of a level: an axis if d < n,
otherwise the position inside a block of axis ``block_map[d - n]``. A dense level has all coordinates. A CSR level has
only the listed ones: entry p of the level above has the coordinates ``indices[segments[p] : segments[p + 1]]``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.source.flatbuffer import DAMAGED, Table
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.source.schema import DENSE, DIMENSION, INDEX_VECTORS, SPARSE_CSR


class Level(NamedTuple):
    """One dimension of the tree of coordinates.

    ``size``: the number of coordinates of a dense level. ``segments`` and ``indices``: set only for a CSR level.
    """

    size: int
    segments: Array | None = None
    indices: Array | None = None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Positions of ``count`` stored values in a dense tensor."""

    table: Table
    order: tuple[int, ...]
    block_map: tuple[int, ...]
    levels: tuple[Level, ...]
    count: int

    @property
    def index_bytes(self) -> int:
        arrays = (array for level in self.levels for array in (level.segments, level.indices))
        return sum(array.nbytes for array in arrays if array is not None)

    def dense(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Return a dense array of ``shape`` with the stored values at their positions.

        Raises InvalidModel for invalid coordinates.
        """
        result = np.zeros(math.prod(shape), values.dtype)
        if self.count and result.size:
            flat_indices = self._flat_indices(shape)
            result[flat_indices] = values
        return result.reshape(shape)

    def _flat_indices(self, shape: tuple[int, ...]) -> Array:
        """Return the flat index of each stored value, in stored order."""
        rank = len(shape)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(rank)]
        sizes = {dimension: level.size for dimension, level in zip(self.order, self.levels, strict=True)}
        # The stride of a blocked axis goes from block to block; within a block, the stride is unchanged.
        stride = dict(enumerate(strides))  # by dimension: axes, then blocks
        limit = dict(enumerate(shape))
        for block, axis in enumerate(self.block_map):
            stride[rank + block] = strides[axis]
            limit[rank + block] = sizes[rank + block]
            stride[axis] *= sizes[rank + block]
            limit[axis] //= sizes[rank + block]
        flat_indices = np.zeros(1, np.int64)
        for depth, (dimension, level) in enumerate(zip(self.order, self.levels, strict=True)):
            if level.segments is None or level.indices is None:
                if level.size > limit[dimension]:
                    reason = f"{level.size} coordinates, but the dimension has {limit[dimension]}"
                    raise self.table.invalid(f"dim_metadata[{depth}].dense_size", reason, DAMAGED)
                coordinates = np.arange(level.size, dtype=np.int64) * stride[dimension]
                flat_indices = (flat_indices[:, None] + coordinates).reshape(-1)
                continue
            lengths: Array = np.diff(level.segments.astype(np.int64))
            if level.segments[0] != 0 or (lengths < 0).any() or level.segments[-1] != len(level.indices):
                reason = f"segments must increase from 0 to {len(level.indices)}, the number of indices"
                raise self.table.invalid(f"dim_metadata[{depth}].array_segments", reason, DAMAGED)
            indices = level.indices.astype(np.int64)
            if indices.size and not 0 <= indices.min() <= indices.max() < limit[dimension]:
                reason = f"indices must be in 0..{limit[dimension] - 1}"
                raise self.table.invalid(f"dim_metadata[{depth}].array_indices", reason, DAMAGED)
            flat_indices = np.repeat(flat_indices, lengths) + indices * stride[dimension]
        return flat_indices


def read_sparsity(table: Table, shape: tuple[int, ...]) -> Sparsity:
    """Return the sparsity parameters; all except the coordinates are checked.

    Raises InvalidModel for inconsistent parameters, such as a level with too few entries for the level above.
    The checks guarantee that no intermediate array of ``dense`` is larger than the stored values.
    """
    order, block_map = table.numbers("traversal_order"), table.numbers("block_map")
    rank, level_count = len(shape), len(order)
    if len(block_map) > rank or {*block_map} - {*range(rank)} or len({*block_map}) != len(block_map):
        raise table.invalid("block_map", f"{block_map} must list axes of a tensor of rank {rank}, each once", DAMAGED)
    if level_count != rank + len(block_map):
        reason = f"{level_count} dimensions for rank {rank} and {len(block_map)} blocks"
        raise table.invalid("traversal_order", reason, DAMAGED)
    if sorted(order[:rank]) != list(range(rank)) or sorted(order[rank:]) != list(range(rank, level_count)):
        raise table.invalid("traversal_order", f"{order} must list the axes, then the blocks, each once", DAMAGED)
    if (entries := table.length("dim_metadata")) != level_count:
        raise table.invalid("dim_metadata", f"{entries} entries for {level_count} dimensions", DAMAGED)
    levels = []
    count = 1
    for depth, metadata in enumerate(table.tables("dim_metadata", DIMENSION)):
        level = _read_level(metadata)
        if level.indices is None or level.segments is None:
            count *= level.size
        elif len(level.segments) != count + 1:
            reason = f"{len(level.segments)} segments, but the previous dimensions need {count + 1}"
            raise metadata.invalid("array_segments", reason, DAMAGED)
        else:
            # If a level has no entries, the levels below it have none either.
            count = len(level.indices) if count else 0
        if depth >= rank and not level.size:
            raise metadata.invalid("dense_size", "a block must be dense and have a size", DAMAGED)
        levels.append(level)
    return Sparsity(table, order, block_map, tuple(levels), count)


def _read_level(metadata: Table) -> Level:
    format_number = metadata.number("format")
    if format_number == DENSE:
        size = metadata.number("dense_size")
        if size < 0:
            raise metadata.invalid("dense_size", f"{size} is negative", DAMAGED)
        return Level(size)
    if format_number != SPARSE_CSR:
        raise metadata.invalid("format", f"{format_number} is neither dense (0) nor CSR (1)", DAMAGED)
    return Level(0, _read_indices(metadata, "array_segments"), _read_indices(metadata, "array_indices"))


def _read_indices(metadata: Table, name: str) -> Array:
    layout = INDEX_VECTORS.get(metadata.number(name + "_type"))
    table = metadata.table(name, layout) if layout else None
    if table is None:
        raise metadata.invalid(name, "missing, but required for a CSR dimension", DAMAGED)
    return table.array("values")
