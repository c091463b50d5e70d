"""Values of onnx-ir: their dtypes, their types, and constants."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.source.model import Array, Dims

_DTYPES = {
    "float32": ir.DataType.FLOAT,
    "float64": ir.DataType.DOUBLE,
    "complex64": ir.DataType.FLOAT,
    "complex128": ir.DataType.DOUBLE,
    "float8_e4m3fn": ir.DataType.FLOAT8E4M3FN,
    "float8_e5m2": ir.DataType.FLOAT8E5M2,
}


def onnx_dtype(name: str) -> ir.DataType:
    """Return the ONNX dtype for a numpy or TFLite dtype name.

    Complex numbers are pairs of reals. Raises KeyError for an unknown name.
    """
    return _DTYPES.get(name) or ir.DataType[name.upper()]


def require_value(value: object) -> ir.Value:
    """Return the value; raise TypeError for an object that is not a value."""
    if not isinstance(value, ir.Value):
        raise TypeError(f"{describe(value)} is not a value of the model; make constants with ctx.constant_value")
    return value


def tensor_value(array: Array, name: str) -> ir.Value:
    """Return a constant value of an array; arrays of dtype object hold strings."""
    if array.dtype == object:
        tensor: Any = ir.StringTensor([bytes(s) for s in array.reshape(-1)], shape=ir.Shape(array.shape), name=name)
    else:
        tensor = ir.Tensor(array, name=name)
    return ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)


def set_type(value: ir.Value, dtype: str, dims: Dims | None) -> ir.Value:
    """Set the dtype and shape of a value, and return the value."""
    value.type = ir.TensorType(onnx_dtype(dtype))
    value.shape = None if dims is None else ir.Shape(dims)
    return value
