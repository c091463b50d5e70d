"""Between a quantized tensor and the real numbers that a model converted with ``--quantization float`` has in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..source.model import Array, Quantization, Tensor

if TYPE_CHECKING:
    from onnx import ValueInfoProto

_FLOAT = 1  # onnx.TensorProto.FLOAT


def is_real(info: ValueInfoProto) -> bool:
    """Whether an ONNX value is float32, whatever the file's tensor is."""
    return bool(info.type.tensor_type.elem_type == _FLOAT)


def as_real(tensor: Tensor, array: Array) -> Array:
    """What stored integers stand for, as float32; any other tensor's array as it is."""
    known = tensor.quantization
    if not isinstance(known, Quantization) or array.dtype.kind not in "iu":
        return array
    scale, zero_point = _parameters(known, tensor)
    return np.asarray((array.astype(np.int32) - zero_point) * scale, np.float32)


def as_stored(tensor: Tensor, array: Array) -> Array:
    """Real numbers rounded to the integers of a quantized tensor, and cut to their range; any other array as it is."""
    known = tensor.quantization
    if not isinstance(known, Quantization) or array.dtype.kind != "f" or not tensor.dtype.lstrip("u").startswith("int"):
        return array
    scale, zero_point = _parameters(known, tensor)
    ends = np.iinfo(tensor.dtype)
    steps = np.nan_to_num(np.rint(array / scale)) + zero_point
    return np.asarray(np.clip(steps, ends.min, ends.max).astype(tensor.dtype))


def _parameters(known: Quantization, tensor: Tensor) -> tuple[Array, Array]:
    along = [-1 if axis == known.axis else 1 for axis in range(tensor.rank)] if known.per_axis else []
    return np.asarray(known.scale, np.float32).reshape(along), np.asarray(known.zero_point, np.int32).reshape(along)
