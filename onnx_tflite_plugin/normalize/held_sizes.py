"""Sizes in constants of the file: of axis 0, the batch, and of other axes that become dynamic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.binding.evaluation import Evaluated
from onnx_tflite_plugin.source.model import Array, Dims, Operator


def replace_batch(op: Operator, handler: Handler, carried: Collection[int]) -> Operator:
    """Return the operator with a dynamic batch where a constant or option holds one of these sizes first."""

    def entry(sizes: Array) -> int | None:
        return 0 if sizes.ndim == 1 and len(sizes) and int(sizes[0]) in carried else None

    return _replace(op, handler, entry)


def replace_axis(op: Operator, handler: Handler, dims: Dims, named: Collection[int]) -> Operator:
    """Return the operator with a dynamic size where a constant or option holds the one axis of operand 0 that ``dims`` changes.

    ``named``: stored sizes that become dynamic; the axis may be such a size times others.
    """
    stored = op[0].dims
    changed = [axis for axis, (own, new) in enumerate(zip(stored, dims, strict=False)) if own != new]
    if len(changed) != 1 or len(dims) != len(stored) or None in stored or 0 in stored:
        return op
    known = [size or 0 for size in stored]
    return _replace(op, handler, lambda sizes: entry_of_axis(sizes.reshape(-1).tolist(), known, changed[0], named))


def entry_of_axis(sizes: Sequence[int], dims: Sequence[int], axis: int, named: Collection[int] = ()) -> int | None:
    """Return the entry of ``sizes`` that holds an axis of a tensor; None if there is none.

    Sizes of as many elements regroup the tensor: one of them has the axis in whole, or is the only part of it that is ``named``.
    Other sizes are of the same axes, the last aligned.
    """
    if prod(sizes) != prod(dims):
        k = axis + len(sizes) - len(dims)
        return k if 0 <= k < len(sizes) and sizes[k] == dims[axis] else None
    inner, outer = prod(dims[axis + 1 :]), prod(dims[axis:])
    spans = [(prod(sizes[k + 1 :]), prod(sizes[k:])) for k in range(len(sizes))]
    whole = [k for k, (low, high) in enumerate(spans) if inner % low == 0 and high % outer == 0]
    parts = [k for k, (low, high) in enumerate(spans) if sizes[k] in named and low % inner == 0 and outer % high == 0]
    found = whole[:1] or parts
    return found[0] if len(found) == 1 else None


def _replace(op: Operator, handler: Handler, entry: Callable[[Array], int | None]) -> Operator:
    inputs, options = list(op.inputs), dict(op.options)
    for held, number in handler.holds_batch.items():
        if isinstance(held, str):
            sizes = np.asarray(options.get(held, ()), np.int64)
            if (k := entry(sizes)) is not None:
                options[held] = tuple(_with_number(sizes, k, op, number).tolist())
        elif (tensor := op.tensor(held)) is not None and tensor.is_constant and (k := entry(tensor.array)) is not None:
            inputs[held] = replace(tensor, data=Evaluated(_with_number(tensor.array, k, op, number)))
    if inputs == [*op.inputs] and options == op.options:
        return op
    return replace(op, inputs=tuple(inputs), options=op.options.with_fields(options))


def _with_number(sizes: Array, k: int, op: Operator, number: int) -> Array:
    """Return the sizes with ``number`` as entry ``k``; other entries equal to it are replaced by the result's stored size."""
    if len(sizes) == op[~0].rank:
        sizes = np.where(sizes == number, np.asarray(op[~0].shape, sizes.dtype), sizes)
    return np.concatenate([sizes[:k], np.asarray([number], sizes.dtype), sizes[k + 1 :]])


def fill_declared(inferred: Dims, declared: Dims | None) -> Dims:
    """Return the inferred shape, with declared sizes where none is inferred."""
    if declared is None or len(declared) != len(inferred):
        return inferred
    return tuple(given if size is None else size for size, given in zip(inferred, declared, strict=True))
