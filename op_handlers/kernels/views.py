"""Tensors as rearranged elements of other tensors.

Elements are rearranged by RESHAPE, TRANSPOSE, BROADCAST_TO, and CONCATENATION of one tensor with itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor

Producers = Mapping[Tensor, Operator]


class View(NamedTuple):
    """A tensor that consists of elements of ``source`` times ``scale``.

    ``positions``: the position of each element in ``source``, in C order.
    """

    source: Tensor
    positions: Array
    scale: float = 1.0

    @property
    def is_unscaled(self) -> bool:
        """True if the elements equal elements of the source, in any order."""
        return self.scale == 1.0


def producers_of(operators: Sequence[Operator]) -> dict[Tensor, Operator]:
    """Return the operator that computes each tensor."""
    return {tensor: op for op in operators for tensor in op.outputs if tensor is not None}


def has_distinguishable_sizes(tensor: Tensor) -> bool:
    """True if each dimension is static, or has a size above 1 in the file."""
    return all(dim is not None or size > 1 for dim, size in zip(tensor.dims, tensor.shape, strict=True))


def positions(tensor: Tensor) -> Array:
    """Return the positions of a tensor's elements, in its shape."""
    return np.arange(prod(tensor.shape), dtype=np.int32).reshape(tensor.shape)


def view_of(tensor: Tensor, producers: Producers) -> View:
    """Return a tensor as a view of the nearest computed tensor upstream.

    The upstream tensor is the result of an operator that does more than rearrange elements. Dynamic dimensions have the
    sizes in the file, which must be above 1 to tell axes apart.
    """
    op = producers.get(tensor)
    view = None if op is None or not has_distinguishable_sizes(tensor) else _view_of_result(op, producers)
    if view is None or view.positions.shape != tensor.shape:
        return View(tensor, positions(tensor))
    return view


def _view_of_result(op: Operator, producers: Producers) -> View | None:
    """Return the result as a view if the operator rearranges or scales one tensor.

    Otherwise return None."""
    if op.code == "CONCATENATION":
        return _view_of_repetition(op, producers)
    if op.code == "MUL" and op.options.fused_activation_function == "NONE":
        for slot in (0, 1):
            factor = op[1 - slot]
            if factor.is_constant and factor.array.size == 1 and not op[slot].is_constant:
                source_view = view_of(op[slot], producers)
                return source_view._replace(scale=source_view.scale * float(factor.array.reshape(())))
        return None
    if op.code not in ("RESHAPE", "TRANSPOSE", "BROADCAST_TO"):
        return None
    source_view, result = view_of(op[0], producers), op.outputs[0]
    if result is None or (op.code != "RESHAPE" and not op[1].is_constant):
        return None
    if op.code == "TRANSPOSE":
        return source_view._replace(positions=source_view.positions.transpose([int(axis) for axis in op[1].array]))
    if op.code == "RESHAPE":
        return (
            source_view._replace(positions=source_view.positions.reshape(result.shape))
            if source_view.positions.size == prod(result.shape)
            else None
        )
    try:
        return source_view._replace(positions=np.broadcast_to(source_view.positions, result.shape))
    except ValueError:  # the file's sizes of dynamic dimensions contradict each other
        return None


def _view_of_repetition(op: Operator, producers: Producers) -> View | None:
    """Return the view of a concatenation of one tensor with itself."""
    first = op[0]
    if op.options.fused_activation_function != "NONE" or any(tensor is not first for tensor in op.inputs):
        return None
    source_view = view_of(first, producers)
    return source_view._replace(positions=np.concatenate([source_view.positions] * len(op.inputs), op.options.axis))
