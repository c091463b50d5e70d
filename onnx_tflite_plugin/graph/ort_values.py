"""Conversion of arrays to and from OrtValues, for dtypes that numpy lacks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from onnx_tflite_plugin.source.model import Array

# ONNX Runtime's name -> (dtype, number in TensorProto.DataType)
UNKNOWN_TO_NUMPY: Mapping[str, tuple[Any, int]] = {
    "bfloat16": (ml_dtypes.bfloat16, 16),
    "float8e4m3fn": (ml_dtypes.float8_e4m3fn, 17),
    "float8e5m2": (ml_dtypes.float8_e5m2, 19),
    "uint4": (ml_dtypes.uint4, 21),
    "int4": (ml_dtypes.int4, 22),
    "uint2": (ml_dtypes.uint2, 25),
    "int2": (ml_dtypes.int2, 26),
}
_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


def dtype_of(info: Any) -> str:
    """Return the dtype of an input or output in ONNX Runtime, for example ``float``."""
    return str(info.type).removeprefix("tensor(").removesuffix(")")


def to_value(array: Array, dtype: str) -> Any:
    """Return an array as an OrtValue. ``dtype``: ONNX Runtime's name."""
    from onnxruntime import OrtValue

    special_dtype = UNKNOWN_TO_NUMPY.get(dtype)
    if special_dtype is None:
        return OrtValue.ortvalue_from_numpy(array)
    stored: Array = np.asarray(array, order="C").view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    if bits := _BITS.get(dtype):
        stored = _pack_bits(stored, bits)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(stored, special_dtype[1])


def from_value(value: Any, dtype: str) -> Array:
    """Return the array of an OrtValue. Read the memory for dtypes that NumPy lacks."""
    if dtype not in UNKNOWN_TO_NUMPY:
        return np.asarray(value.numpy())
    dtype_in_numpy = np.dtype(UNKNOWN_TO_NUMPY[dtype][0])
    size = _size_in_bytes(value, dtype)
    stored = np.frombuffer(ctypes.string_at(value.data_ptr(), size) if size else b"", np.uint8)
    if bits := _BITS.get(dtype):
        elements = (stored[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & (1 << bits) - 1
        flat: Array = elements.reshape(-1)[: int(np.prod(value.shape()))]
        if dtype.startswith("int"):
            sign = np.uint8(1 << bits - 1)
            flat = (flat ^ sign).astype(np.int8) - np.int8(sign)
        return np.asarray(flat.astype(dtype_in_numpy).reshape(value.shape()))
    return np.array(stored.view(dtype_in_numpy).reshape(value.shape()))


def _size_in_bytes(value: Any, dtype: str) -> int:
    """Return the size of a value in bytes; ONNX Runtime reports it since 1.23."""
    if hasattr(value, "tensor_size_in_bytes"):
        return int(value.tensor_size_in_bytes())
    bits = _BITS.get(dtype) or 8 * np.dtype(UNKNOWN_TO_NUMPY[dtype][0]).itemsize
    return -(-int(np.prod(value.shape())) * bits // 8)


def _pack_bits(array: Array, bits: int) -> Array:
    """Pack several elements per byte, the first in the lowest bits.

    The result has the shape of the array; its first bytes hold the packed elements.
    """
    flat, per_byte = np.bitwise_and(array.reshape(-1), (1 << bits) - 1), 8 // bits
    packed = np.zeros_like(flat)
    for k in range(per_byte):
        elements = flat[k::per_byte]
        packed[: elements.size] |= elements << k * bits
    return packed.reshape(array.shape)
