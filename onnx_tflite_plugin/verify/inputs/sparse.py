"""Random coordinates and sizes of sparse tensors, for operators that read them.

Kernels do not check coordinates, and read beyond the end if coordinates are invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor
from onnx_tflite_plugin.verify.runtimes.structure import StoredConstant

_INTEGERS = ("int32", "int64")
_DEFAULT_SIZE = 5  # of an axis, if neither a constant nor the result gives its size
_MAX_ELEMENTS = 1 << 40  # of the dense tensor


def draw_sparse(
    generator: np.random.Generator, graph: Subgraph, tensor: Tensor, shape: tuple[int, ...]
) -> Array | None:
    """Return random coordinates or the sizes of a sparse tensor; None for others.

    Coordinates have the shape ``[count, rank]``, in row-major order; sizes have the shape ``[rank]``.
    """
    for operator in graph.operators:
        for coordinates, sizes in pairwise(operator.inputs):
            if coordinates is None or sizes is None or tensor.index not in (coordinates.index, sizes.index):
                continue
            if not _is_sparse(operator, coordinates, sizes):
                continue
            axis_sizes = _axis_sizes(operator, sizes)
            if min(axis_sizes) < 1 or prod(axis_sizes) > _MAX_ELEMENTS:
                return None
            if tensor.index == sizes.index:
                return np.asarray(axis_sizes, tensor.dtype)
            positions = np.sort(generator.integers(0, prod(axis_sizes), shape[0]))
            return np.stack(np.unravel_index(positions, axis_sizes), axis=1).astype(tensor.dtype)
    return None


def _is_sparse(operator: Operator, coordinates: Tensor, sizes: Tensor) -> bool:
    """True if operands may be the coordinates and sizes of a sparse tensor.

    Each row of coordinates then has one entry per size. The operator also reads values: one per row, or one for all rows.
    """
    if len(coordinates.shape) != 2 or not coordinates.shape[1] or sizes.shape != coordinates.shape[1:]:
        return False
    indices = (coordinates.index, sizes.index)
    other_operands = [operand for operand in operator.inputs if operand is not None and operand.index not in indices]
    values = [operand for operand in other_operands if operand.shape in (coordinates.shape[:1], ())]
    is_ambiguous = any(operand.shape == sizes.shape for operand in other_operands)
    return {coordinates.dtype, sizes.dtype} <= {*_INTEGERS} and len(values) > 1 and not is_ambiguous


def _axis_sizes(operator: Operator, sizes: Tensor) -> Sequence[int]:
    """Return the constant sizes, or the result's sizes with defaults for dynamic ones."""
    if isinstance(sizes.data, StoredConstant):
        numbers = [int(size) for size in sizes.data.numbers(sizes.dtype)[: sizes.shape[0]]]
        return numbers if len(numbers) == sizes.shape[0] else [0]
    result_dims = next((result.dims for result in operator.outputs if result is not None), ())
    result_sizes = [*result_dims, *[None] * sizes.shape[0]][: sizes.shape[0]]
    return [_DEFAULT_SIZE if size is None else size for size in result_sizes]
