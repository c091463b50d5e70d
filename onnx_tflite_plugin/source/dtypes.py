"""Element types: the schema's numbers, numpy's names, sizes in bits."""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

# By number in the schema's enum TensorType. The enum's own name is the same word in capitals.
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
# Several elements share a byte, the first in the lowest bits (``Unpack4Bit``, ``Unpack2Bit`` in LiteRT).
PACKED = {"int4": 4, "uint4": 4, "int2": 2}
FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# The dtypes that kernels take as quantized, and the least and largest number of those and of biases.
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
# Run-time handles: a file cannot hold their value.
HANDLES = frozenset({"resource", "variant"})
_ML_DTYPES = frozenset({*PACKED, "bfloat16", "float8_e4m3fn", "float8_e5m2"})


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a constant of type ``name``; strings are objects (``bytes``)."""
    if name == "string":
        return np.dtype(object)
    if name in _ML_DTYPES:
        # 10 ms that most models do not need.
        packed: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), name))
        return packed
    return np.dtype(name).newbyteorder("<")


@cache
def bits(name: str) -> int:
    """Stored bits of one element; 0 for strings and handles, whose size the shape does not tell."""
    if name == "string" or name in HANDLES:
        return 0
    return PACKED.get(name) or 8 * numpy_dtype(name).itemsize


def stored_bytes(name: str, shape: tuple[int, ...]) -> int:
    """Bytes that a dense constant takes in the file."""
    return (math.prod(shape) * bits(name) + 7) // 8


def decoded_bytes(name: str, shape: tuple[int, ...], stored: int) -> int:
    """Bytes that a constant takes as an array; of strings, as Python objects, about that many."""
    if name == "string":
        return math.prod(shape) * 48 + stored
    return math.prod(shape) * numpy_dtype(name).itemsize
