"""Tensors as rearranged elements of others, through RESHAPE, TRANSPOSE, BROADCAST_TO and CONCATENATION of one tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor

Producers = Mapping[Tensor, Operator]


class View(NamedTuple):
    """A tensor of elements of ``source``, times ``scale``; ``ids``: their positions in C order."""

    source: Tensor
    ids: Array
    scale: float = 1.0

    @property
    def is_plain(self) -> bool:
        """True if the elements are unchanged."""
        return self.scale == 1.0


def producers_of(operators: Sequence[Operator]) -> dict[Tensor, Operator]:
    """Return the operator that computes each tensor."""
    return {tensor: op for op in operators for tensor in op.outputs if tensor is not None}


def has_sizes(tensor: Tensor) -> bool:
    """True if each size is static, or stored as more than 1."""
    return all(dim is not None or size > 1 for dim, size in zip(tensor.dims, tensor.shape, strict=True))


def positions(tensor: Tensor) -> Array:
    """Return the positions of a tensor's elements, in its shape."""
    return np.arange(prod(tensor.shape), dtype=np.int32).reshape(tensor.shape)


def view_of(tensor: Tensor, producers: Producers) -> View:
    """Return the tensor as a view of the first tensor upstream that is computed otherwise.

    Dynamic dimensions have their stored sizes, of which only those above 1 tell axes apart.
    """
    op = producers.get(tensor)
    found = None if op is None or not has_sizes(tensor) else _step(op, producers)
    if found is None or found.ids.shape != tensor.shape:
        return View(tensor, positions(tensor))
    return found


def _step(op: Operator, producers: Producers) -> View | None:
    """Return the result of an operator that rearranges or scales one tensor; None for others."""
    if op.code == "CONCATENATION":
        return _view_of_repetition(op, producers)
    if op.code == "MUL" and op.options.fused_activation_function == "NONE":
        for slot in (0, 1):
            factor = op[1 - slot]
            if factor.is_constant and factor.array.size == 1 and not op[slot].is_constant:
                below = view_of(op[slot], producers)
                return below._replace(scale=below.scale * float(factor.array.reshape(())))
        return None
    if op.code not in ("RESHAPE", "TRANSPOSE", "BROADCAST_TO"):
        return None
    below, shape = view_of(op[0], producers), op.outputs[0]
    if shape is None or (op.code != "RESHAPE" and not op[1].is_constant):
        return None
    if op.code == "TRANSPOSE":
        return below._replace(ids=below.ids.transpose([int(axis) for axis in op[1].array]))
    if op.code == "RESHAPE":
        return below._replace(ids=below.ids.reshape(shape.shape)) if below.ids.size == prod(shape.shape) else None
    try:
        return below._replace(ids=np.broadcast_to(below.ids, shape.shape))
    except ValueError:  # the stored sizes of dynamic dimensions do not belong together
        return None


def _view_of_repetition(op: Operator, producers: Producers) -> View | None:
    """Return the view that joins one tensor with itself."""
    first = op[0]
    if op.options.fused_activation_function != "NONE" or any(tensor is not first for tensor in op.inputs):
        return None
    below = view_of(first, producers)
    return below._replace(ids=np.concatenate([below.ids] * len(op.inputs), op.options.axis))
