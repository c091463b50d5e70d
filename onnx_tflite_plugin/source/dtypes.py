"""Element types: numbers in the schema, numpy names, sizes in bits."""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

# Indexed by the schema's enum TensorType, which has these names in capitals.
NAMES = (
    "float32",
    "float16",
    "int32",
    "uint8",
    "int64",
    "string",
    "bool",
    "int16",
    "complex64",
    "int8",
    "float64",
    "complex128",
    "uint64",
    "resource",
    "variant",
    "uint32",
    "uint16",
    "int4",
    "bfloat16",
    "int2",
    "uint4",
    "float8_e4m3fn",
    "float8_e5m2",
)
# Bits per element; several elements share a byte, the first in the lowest bits (``Unpack4Bit``, ``Unpack2Bit`` in LiteRT).
PACKED = {"int4": 4, "uint4": 4, "int2": 2}
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# QUANTIZED: dtypes that kernels treat as quantized. INTEGER_RANGE: the value ranges of these dtypes and of biases.
QUANTIZED = frozenset({"int8", "uint8", "int16", "int4", "uint4", "int2"})
INTEGER_RANGE = {
    "int2": (-2, 1),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
# Runtime handles: a file cannot store their value.
HANDLES = frozenset({"resource", "variant"})
_ML_DTYPES = frozenset({*PACKED, "bfloat16", "float8_e4m3fn", "float8_e5m2"})


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a constant of type ``name``; strings are ``object``."""
    if name == "string":
        return np.dtype(object)
    if name in _ML_DTYPES:
        # ml_dtypes is imported on demand, because this takes 10 ms and most models do not need it.
        dtype: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), name))
        return dtype
    return np.dtype(name).newbyteorder("<")


@cache
def bits(name: str) -> int:
    """Return the stored bits per element; 0 for strings and handles."""
    if name == "string" or name in HANDLES:
        return 0
    return PACKED.get(name) or 8 * numpy_dtype(name).itemsize


def size_in_file(name: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a dense constant in the file."""
    return (math.prod(shape) * bits(name) + 7) // 8


def size_in_memory(name: str, shape: tuple[int, ...], stored: int) -> int:
    """Return the bytes of a constant as an array; an estimate for strings."""
    if name == "string":
        return math.prod(shape) * 48 + stored
    return math.prod(shape) * numpy_dtype(name).itemsize
