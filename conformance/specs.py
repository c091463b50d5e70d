"""Descriptions of tensors in small models, and random values for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import ml_dtypes
import numpy as np

from conformance.builder import quant
from conformance.schema import Table
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.renamed import SPEC, renamed_attributes
from onnx_tflite_plugin.source.dtypes import NAMES
from onnx_tflite_plugin.source.model import Array

# Zero points are near the middle, but not 0 or 128, so that a handler that ignores them fails.
QUANTIZED: Mapping[str, tuple[float, int]] = {"int8": (0.047, -5), "uint8": (0.047, 122), "int16": (0.0003, 0)}

_SUB_BYTE_BOUNDS = {"int4": (-8, 7), "int2": (-2, 1), "uint4": (0, 15)}


@dataclass(frozen=True, eq=False)
class Spec:
    """Description of a tensor to create: a graph input, a result or a constant.

    The tensor is a constant if ``value`` is not None, and quantized if ``scale`` is not None. ``axis``: the axis of several
    scales. ``name``: name of the tensor, or "" for a generated name.
    """

    shape: tuple[int | None, ...]
    dtype: str = "float32"
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    value: Array | None = None
    name: str = ""

    @property
    def quantization(self) -> Table | None:
        return None if self.scale is None else quant(self.scale, self.zero_point, self.axis)

    def rescale(self, factor: float, zero_point: int | None = None) -> Spec:
        """Return the spec with its scale multiplied by ``factor``, if it is quantized.

        ``zero_point`` replaces the zero point.
        """
        if self.scale is None:
            return self
        new_zero_point = self.zero_point if zero_point is None else zero_point
        return replace(self, scale=float(np.asarray(self.scale)) * factor, zero_point=new_zero_point)

    def with_shape(self, *shape: int | None) -> Spec:
        return replace(self, shape=shape)

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(SPEC)


def tensor(
    *shape: int | None,
    dtype: str = "float32",
    scale: float | None = None,
    zero_point: int | None = None,
    name: str = "",
) -> Spec:
    """Return the spec of a graph input or a result.

    8-bit and 16-bit integers are quantized with a default scale and zero point. Pass ``scale=0`` for integers without
    quantization.
    """
    if dtype not in NAMES:
        raise TypeError(f"tensor(dtype={dtype!r}): it is not a dtype{did_you_mean(dtype, NAMES)}")
    if isinstance(scale, str):
        raise TypeError(f"tensor(scale={scale!r}): the scale is a number, such as 0.1")
    default_quantization = QUANTIZED.get(dtype)
    if (default_quantization is None and scale is None) or scale == 0:
        return Spec(shape, dtype, name=name)
    default_scale, default_zero_point = default_quantization or (1.0, 0)
    return Spec(
        shape, dtype, scale or default_scale, default_zero_point if zero_point is None else zero_point, name=name
    )


def constant(
    value: Any,
    dtype: str | None = None,
    scale: float | Sequence[float] | None = None,
    zero_point: int | Sequence[int] = 0,
    axis: int = 0,
) -> Spec:
    """Return the spec of a constant operand.

    Without ``dtype``, arrays keep their dtype, and Python numbers become float32 or int32.
    """
    array = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray):
        dtype = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
    array = array.astype(_numpy(dtype)) if dtype else array
    return Spec(array.shape, array.dtype.name, scale, zero_point, axis, array)


def random_array(
    *shape: int, dtype: str = "float32", seed: str = "", low: float | None = None, high: float | None = None
) -> Array:
    """Return random values that depend only on the arguments.

    Floats are normally distributed, or uniform from ``low`` to ``high`` if both are given. Integers are uniform from ``low``
    to ``high``, both included. By default the bounds are the limits of the dtype, or -100 and 100 for 32 and 64 bits.
    """
    generator = np.random.default_rng(crc32(f"{seed}{shape}{dtype}".encode()))
    numpy_dtype = _numpy(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if "float" in dtype:
        values = (
            generator.standard_normal(shape) if low is None or high is None else generator.uniform(low, high, shape)
        )
        return values.astype(numpy_dtype)
    smallest, largest = _SUB_BYTE_BOUNDS.get(dtype) or (
        (-100, 100) if numpy_dtype.itemsize > 2 else (np.iinfo(numpy_dtype).min, np.iinfo(numpy_dtype).max)
    )
    bounds = (smallest if low is None else int(low), largest if high is None else int(high))
    return generator.integers(*bounds, shape, endpoint=True).astype(numpy_dtype)


def random_constant(like: Spec, seed: str = "") -> Spec:
    """Return the spec as a constant with random values."""
    return replace(like, value=random_array(*(size or 1 for size in like.shape), dtype=like.dtype, seed=seed))


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))
