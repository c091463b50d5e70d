"""Conversion between quantized tensors and float32.

A model that was converted with ``--quantization float`` has float32 in place of quantized tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.source.model import Array, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.error import as_pairs

if TYPE_CHECKING:
    from onnx import ValueInfoProto

_FLOAT = 1  # onnx.TensorProto.FLOAT
_INTEGERS = frozenset({2, 3, 5, 6})  # UINT8, INT8, INT16, INT32


def is_float(info: ValueInfoProto) -> bool:
    """True if an ONNX value is float32."""
    return bool(info.type.tensor_type.elem_type == _FLOAT)


def is_integer(info: ValueInfoProto) -> bool:
    """True if an ONNX value is int8, uint8, int16 or int32."""
    return int(info.type.tensor_type.elem_type) in _INTEGERS


def is_quantized(tensor: Tensor) -> bool:
    """True if a tensor has an integer dtype and a scale."""
    return isinstance(tensor.quantization, Quantization) and "int" in tensor.dtype


def as_float(tensor: Tensor, array: Array) -> Array:
    """Dequantize the array of a quantized tensor to float32; return others unchanged."""
    quantization = tensor.quantization
    if not isinstance(quantization, Quantization) or array.dtype.kind not in "iu":
        return array
    scale, zero_point = _parameters(quantization, tensor)
    return np.asarray((array.astype(np.int32) - zero_point) * scale, np.float32)


def onnx_operand(tensor: Tensor, array: Array, *, is_float: bool) -> Array:
    """Return a tensor's array as an input of the ONNX model, in TFLite's layout.

    Complex numbers become pairs. ``is_float``: the ONNX value is float32, even if the tensor is quantized.
    """
    array = as_pairs(array) if array.dtype.kind == "c" else array
    return as_float(tensor, array) if is_float else array


def as_stored(tensor: Tensor, array: Array) -> Array:
    """Quantize floats with the parameters of a tensor, and saturate them.

    Return other arrays unchanged.
    """
    quantization = tensor.quantization
    if (
        not isinstance(quantization, Quantization)
        or array.dtype.kind != "f"
        or not tensor.dtype.lstrip("u").startswith("int")
    ):
        return array
    return np.asarray(np.rint(as_steps(tensor, array)).astype(tensor.dtype))


def as_steps(tensor: Tensor, array: Array) -> Array:
    """Return floats in quantization steps of a tensor, saturated but not rounded."""
    assert isinstance(tensor.quantization, Quantization)
    scale, zero_point = _parameters(tensor.quantization, tensor)
    limits = np.iinfo(tensor.dtype)
    return np.asarray(np.clip(np.nan_to_num(array / scale) + zero_point, limits.min, limits.max))


def _parameters(quantization: Quantization, tensor: Tensor) -> tuple[Array, Array]:
    """Return scale and zero point in a shape that broadcasts to the tensor."""
    shape = [-1 if axis == quantization.axis else 1 for axis in range(tensor.rank)] if quantization.per_axis else []
    scale = np.asarray(quantization.scale, np.float32).reshape(shape)
    return scale, np.asarray(quantization.zero_point, np.int32).reshape(shape)
