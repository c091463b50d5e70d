"""Sparse tensors among the inputs: places in order and within the sizes beside them, where kernels read beyond the end by others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor
from onnx_tflite_plugin.verify.runtimes.structure import Stored

_WHOLE = ("int32", "int64")
_SIZE = 5  # of an axis that neither a constant nor the result tells
_MANY = 1 << 40  # more places than are drawn from


def sparse(generator: np.random.Generator, graph: Subgraph, tensor: Tensor, shape: tuple[int, ...]) -> Array | None:
    """Return coordinates of a sparse tensor, ``[number, axes]`` in the order of a dense one, or its sizes, ``[axes]``.

    ``None`` for a tensor that is neither.
    """
    for operator in graph.operators:
        for places, sizes in pairwise(operator.inputs):
            if places is None or sizes is None or tensor.index not in (places.index, sizes.index):
                continue
            if not _belong(operator, places, sizes):
                continue
            limits = _limits(operator, sizes)
            if min(limits) < 1 or prod(limits) > _MANY:
                return None
            if tensor.index == sizes.index:
                return np.asarray(limits, tensor.dtype)
            flat = np.sort(generator.integers(0, prod(limits), shape[0]))
            return np.stack(np.unravel_index(flat, limits), axis=1).astype(tensor.dtype)
    return None


def _belong(operator: Operator, places: Tensor, sizes: Tensor) -> bool:
    """True if rows have as many numbers as there are sizes, and values are one per row or one for all."""
    if len(places.shape) != 2 or not places.shape[1] or sizes.shape != places.shape[1:]:
        return False
    others = [slot for slot in operator.inputs if slot is not None and slot.index not in (places.index, sizes.index)]
    values = [slot for slot in others if slot.shape in (places.shape[:1], ())]
    alike = any(slot.shape == sizes.shape for slot in others)
    return {places.dtype, sizes.dtype} <= {*_WHOLE} and len(values) > 1 and not alike


def _limits(operator: Operator, sizes: Tensor) -> Sequence[int]:
    """Return the sizes if they are constant, else those of the result as far as they are known."""
    if isinstance(sizes.data, Stored):
        numbers = [int(size) for size in sizes.data.numbers(sizes.dtype)[: sizes.shape[0]]]
        return numbers if len(numbers) == sizes.shape[0] else [0]
    result = next((slot.dims for slot in operator.outputs if slot is not None), ())
    known = [*result, *[None] * sizes.shape[0]][: sizes.shape[0]]
    return [_SIZE if size is None else size for size in known]
