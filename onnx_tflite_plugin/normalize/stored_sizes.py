"""Replacement of sizes in constants and options whose dimension becomes dynamic.

The dimension is the batch (axis 0) or a named axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from onnx_tflite_plugin.api.declarations import Handler
from onnx_tflite_plugin.source.model import Array, ArrayData, Dims, Operator


def replace_batch(op: Operator, handler: Handler, batch_sizes: Collection[int]) -> Operator:
    """Return the operator with a dynamic batch in its constants and options.

    The first entry of a list of sizes is the batch if it is one of ``batch_sizes``.
    """

    def find_entry(sizes: Array) -> int | None:
        return 0 if sizes.ndim == 1 and len(sizes) and int(sizes[0]) in batch_sizes else None

    return _replace_entries(op, handler, find_entry)


def replace_axis(op: Operator, handler: Handler, dims: Dims, named_sizes: Collection[int]) -> Operator:
    """Return the operator with a dynamic size for the resized axis of operand 0.

    ``dims``: the new shape of operand 0. The operator is replaced only if this shape differs from the stored shape along
    exactly one axis. ``named_sizes``: stored sizes that become dynamic. The axis may be a product of such a size and
    other sizes.
    """
    stored = op[0].dims
    changed = [axis for axis, (stored_size, size) in enumerate(zip(stored, dims, strict=False)) if stored_size != size]
    if len(changed) != 1 or len(dims) != len(stored) or None in stored or 0 in stored:
        return op
    stored_sizes = [size or 0 for size in stored]
    return _replace_entries(
        op, handler, lambda sizes: entry_of_axis(sizes.reshape(-1).tolist(), stored_sizes, changed[0], named_sizes)
    )


def entry_of_axis(
    sizes: Sequence[int], dims: Sequence[int], axis: int, named_sizes: Collection[int] = ()
) -> int | None:
    """Return the index of the entry of ``sizes`` for an axis; None if there is none.

    If ``sizes`` are the target of a reshape, they have as many elements as ``dims``. The entry then includes the whole axis, as
    6 does for both axes of [2, 3], or is the only factor of the axis in ``named_sizes``, as 2 in [2, 3] may be for the axis of
    [6]. Otherwise, ``sizes`` are the sizes of the last axes.
    """
    if prod(sizes) != prod(dims):
        k = axis + len(sizes) - len(dims)
        return k if 0 <= k < len(sizes) and sizes[k] == dims[axis] else None
    inner, outer = prod(dims[axis + 1 :]), prod(dims[axis:])
    spans = [(prod(sizes[k + 1 :]), prod(sizes[k:])) for k in range(len(sizes))]
    containing = [k for k, (low, high) in enumerate(spans) if inner % low == 0 and high % outer == 0]
    named_spans = [(k, low, high) for k, (low, high) in enumerate(spans) if sizes[k] in named_sizes]
    factors = [k for k, low, high in named_spans if low % inner == 0 and outer % high == 0]
    entries = containing[:1] or factors
    return entries[0] if len(entries) == 1 else None


def _replace_entries(op: Operator, handler: Handler, find_entry: Callable[[Array], int | None]) -> Operator:
    inputs, options = list(op.inputs), dict(op.options)
    for key, any_size in handler.dynamic_batch_values.items():
        if isinstance(key, str):
            sizes = np.asarray(options.get(key, ()), np.int64)
            if (k := find_entry(sizes)) is not None:
                options[key] = tuple(_with_entry(sizes, k, op, any_size).tolist())
            continue
        tensor = op.tensor(key)
        if tensor is not None and tensor.is_constant and (k := find_entry(tensor.array)) is not None:
            inputs[key] = replace(tensor, data=ArrayData(_with_entry(tensor.array, k, op, any_size)))
    if inputs == [*op.inputs] and options == op.options:
        return op
    return replace(op, inputs=tuple(inputs), options=op.options.with_fields(options))


def _with_entry(sizes: Array, k: int, op: Operator, any_size: int) -> Array:
    """Return the sizes with ``any_size`` as entry ``k`` only.

    Other entries equal to ``any_size`` are replaced by the result's stored sizes.
    """
    if len(sizes) == op[~0].rank:
        sizes = np.where(sizes == any_size, np.asarray(op[~0].shape, sizes.dtype), sizes)
    return np.concatenate([sizes[:k], np.asarray([any_size], sizes.dtype), sizes[k + 1 :]])


def fill_declared(inferred: Dims, declared: Dims | None) -> Dims:
    """Return the inferred shape, with declared sizes where none is inferred."""
    if declared is None or len(declared) != len(inferred):
        return inferred
    pairs = zip(inferred, declared, strict=True)
    return tuple(declared_size if size is None else size for size, declared_size in pairs)
