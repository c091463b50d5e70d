"""How a converted model takes and gives what the TFLite model does: other converters may change order and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.source.model import Array, Tensor
from onnx_tflite_plugin.verify.compare import as_pairs
from onnx_tflite_plugin.verify.dequantized import as_float, as_stored

if TYPE_CHECKING:
    from onnx import ValueInfoProto


@dataclass(frozen=True)
class Port:
    """An input or output of the ONNX model: the tensor with its axes in ``order``, ``is_float``: dequantized.

    Channels first is told by the shape, so a tensor that looks the same either way is taken to be as it was.
    """

    tensor: Tensor
    order: tuple[int, ...] | None = None
    is_float: bool = False

    @classmethod
    def of(cls, tensor: Tensor, info: ValueInfoProto) -> Port:
        from onnx import TensorProto

        type_ = info.type.tensor_type
        sizes = tuple(size.dim_value for size in type_.shape.dim)
        order = (0, tensor.rank - 1, *range(1, tensor.rank - 1))
        moved = tensor.rank > 2 and sizes != tensor.shape and sizes == tuple(tensor.shape[axis] for axis in order)
        return cls(tensor, order if moved else None, type_.elem_type == TensorProto.FLOAT)

    def given(self, array: Array) -> Array:
        """What to feed for the tensor's array."""
        if array.dtype.kind == "c":
            array = as_pairs(array)
        if self.is_float:
            array = as_float(self.tensor, array)
        return array if self.order is None else np.ascontiguousarray(array.transpose(self.order))

    def taken(self, array: Array) -> Array:
        """The tensor's array from what came out; what has another rank than was declared stays as it is."""
        if self.order is not None and array.ndim == len(self.order):
            array = array.transpose(np.argsort(self.order))
        return as_stored(self.tensor, array)
