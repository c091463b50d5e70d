"""Inputs and outputs of an ONNX Runtime session, and checks of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnx_tflite_plugin.checked import describe, format_shape
from onnx_tflite_plugin.graph.ort_values import UNKNOWN_TO_NUMPY, dtype_of
from onnx_tflite_plugin.source.model import Array

RUNTIME_DTYPES = {"float": "float32", "double": "float64", "string": "object"}
"""NumPy's dtype name for each ONNX Runtime dtype name that differs."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a session. Dynamic dimensions are None or a name.

    ``scale``, ``zero_point``, ``axis``, ``mean`` and ``std`` are those of ``otp.GraphValue``: the quantization, and the
    normalization that the author declares. Absent parameters are empty.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    axis: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def quantization(self) -> tuple[float, int] | None:
        """Return a per-tensor scale and zero point; None if there are none or several."""
        return (self.scale[0], self.zero_point[0]) if len(self.scale) == len(self.zero_point) == 1 else None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype in numpy, or in ml_dtypes if numpy lacks it."""
        special_dtype = UNKNOWN_TO_NUMPY.get(self.type)
        return np.dtype(special_dtype[0] if special_dtype else RUNTIME_DTYPES.get(self.type, self.type))

    @property
    def static_shape(self) -> tuple[int, ...]:
        """Return the shape, dynamic dimensions as 1."""
        return tuple(size if isinstance(size, int) else 1 for size in self.shape)

    def __str__(self) -> str:
        return f"{'string' if self.type == 'string' else self.dtype.name} {format_shape(self.shape)}"


def port_of(info: Any) -> Port:
    """Return the port that an ``onnxruntime.NodeArg`` describes."""
    return Port(info.name, dtype_of(info), tuple(info.shape))


def _suggest_conversion(array: Array, port: Port) -> str:
    """Return advice on converting an array of the wrong dtype.

    For a quantized input, floats must be quantized. Between int8 and uint8, values must be shifted, because a cast would
    wrap them around.
    """
    quantization = port.quantization if port.dtype.kind in "iu" else None
    if quantization is not None and {array.dtype.name, port.dtype.name} == {"int8", "uint8"}:
        shift = "- 128" if port.dtype.name == "int8" else "+ 128"
        return (
            f"the input has quantized values of scale {quantization[0]:.9g} and zero point {quantization[1]}; if the array has the same "
            f"scale, shift it: (array.astype('int16') {shift}).astype({port.dtype.name!r})"
        )
    if array.dtype.kind != "f" or quantization is None:
        return f"convert the array if intended: array.astype({port.dtype.name!r})"
    quantized = quantize_expression(port.dtype.name, *quantization)
    if pixel := _pixel_expression(port):
        return f"pixels 0 to 255: {pixel}; normalized values: {quantized}"
    return f"quantize it: {quantized}"


def quantize_expression(dtype: str, scale: float, zero_point: int) -> str:
    """Return the NumPy expression that quantizes ``array``."""
    limits = np.iinfo(dtype)
    quantized = f"np.round(array / {scale:.9g}) + {zero_point}"
    return f"np.clip({quantized}, {limits.min}, {limits.max}).astype({dtype!r})"


_COMMON_NORMALIZATIONS = ((0.0, 255.0), (127.5, 127.5), (127.5, 128.0), (128.0, 128.0), (0.0, 1.0))
"""Common means and standard deviations of pixels, assumed if the author declares none: ranges 0 to 1, -1 to 1, 0 to 255."""


def _pixel_expression(port: Port) -> str:
    """Return the NumPy expression that converts pixels 0 to 255 to an image input.

    The expression is only known if quantization undoes the normalization; otherwise the text is empty.
    """
    if port.quantization is None or port.dtype.name not in ("int8", "uint8"):
        return ""
    scale, zero_point = port.quantization
    is_image = len(port.shape) == 4 and port.shape[-1] in (1, 3, 4)
    means, stds = set(port.mean), set(port.std)  # one of each if all channels are normalized alike
    declared = (means.pop(), stds.pop()) if len(means) == len(stds) == 1 else None
    dtype_min = int(np.iinfo(port.dtype).min)
    for mean, std in (declared,) if declared else _COMMON_NORMALIZATIONS if is_image else ():
        quantized_pixel_0 = zero_point - mean / (std * scale) if std else np.inf
        if abs(std * scale - 1) < 0.01 and abs(quantized_pixel_0 - dtype_min) <= 1:
            return "array.astype('uint8')" if not dtype_min else "(array - 128).astype('int8')"
    return ""


def check_array(value: Any, port: Port, kind: str = "input") -> Array:
    """Return the array if it matches the input. Raises ValueError otherwise."""
    subject = f"{kind} {port.name!r}"
    array = to_array(value, subject)
    if array.dtype == port.dtype and port.type != "string" and _fits_shape(array, port):
        return array  # return early, because formatting the texts below takes longer than a run of a small model
    array = match_dtype(array, port, f"{subject} is {port}", is_array=hasattr(value, "dtype"))
    if not _fits_shape(array, port):
        remedy = suggest_transposition(array.shape, port.shape)
        raise ValueError(f"{subject} is {port}; the array has shape {list(array.shape)}{remedy}")
    return array


_TRANSPOSITIONS = {"to the end": (0, 2, 3, 1), "to axis 1": (0, 3, 1, 2)}
"""Words for the new position of the channels -> permutation of an image."""


def suggest_transposition(shape: tuple[int, ...], expected: Sequence[int | str | None]) -> str:
    """Return the remedy for an image whose channels are on another axis than expected.

    Return an empty text if no transposition of the channels helps. The number of channels must be static, because otherwise
    any array fits.
    """
    if len(shape) != 4 or len(expected) != 4:
        return ""
    for position, permutation in _TRANSPOSITIONS.items():
        pairs = [*zip((shape[axis] for axis in permutation), expected, strict=True)]
        channels = expected[3] if permutation[3] == 1 else expected[1]
        if isinstance(channels, int) and all(not isinstance(size, int) or actual == size for actual, size in pairs):
            return f"; move its channels {position}: array.transpose({', '.join(map(str, permutation))})"
    return ""


def to_array(value: Any, subject: str) -> Array:
    """Return a value as array. Raises ValueError for lists of different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{subject}: its lists have different lengths, so they do not form an array") from None


def match_dtype(array: Array, port: Port, fact: str, *, is_array: bool) -> Array:
    """Return the array in the port's dtype. Raises ValueError if that is impossible.

    ``is_array``: True if the caller passed an array, which must have the port's dtype already. Lists and numbers are
    converted, except fractional numbers to integers. ``fact``: the beginning of the error message.
    """
    if port.type == "string":
        if array.dtype.kind not in "OSU":
            raise ValueError(f"{fact}, not {array.dtype.name}")
        texts = [
            item.decode(errors="surrogateescape") if isinstance(item, bytes) else item
            for item in array.reshape(-1).tolist()
        ]
        return np.array(texts, object).reshape(array.shape)
    if array.dtype == port.dtype:
        return array
    if array.dtype.kind in "OSU":
        raise ValueError(f"{fact}, not {_describe_objects(array)}")
    limits = _integer_limits(port.dtype)
    is_fractional = array.dtype.kind == "f" and (limits is not None or port.dtype.kind == "b")
    if is_array or is_fractional or (array.dtype.kind == "c" and port.dtype.kind != "c"):
        raise ValueError(f"{fact}, not {array.dtype.name}; {_suggest_conversion(array, port)}")
    if limits is not None and array.size and not limits[0] <= array.min() <= array.max() <= limits[1]:
        wrong = array.min() if array.min() < limits[0] else array.max()
        raise ValueError(f"{fact}; {wrong} is outside its range, {limits[0]} to {limits[1]}")
    return np.asarray(array.astype(port.dtype))


def _integer_limits(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the range of an integer dtype of NumPy or ml_dtypes; else None."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype.name in ("int4", "uint4", "int2", "uint2"):
        limits: Any = ml_dtypes
        return int(limits.iinfo(dtype).min), int(limits.iinfo(dtype).max)
    return None


def _describe_objects(array: Array) -> str:
    """Return a description of texts or objects that were passed in place of numbers."""
    if array.dtype.kind in "SU":
        return "text"
    first = next(iter(array.reshape(-1).tolist()), None)
    return f"{describe(first)}; give numbers" if array.ndim == 0 else f"objects such as {describe(first)}; give numbers"


def _fits_shape(array: Array, port: Port) -> bool:
    """True if the array has the port's static sizes.

    In ONNX Runtime [] is a scalar or an unknown rank.
    """
    return not port.shape or (
        array.ndim == len(port.shape)
        and all(
            array_size == size
            for array_size, size in zip(array.shape, port.shape, strict=True)
            if isinstance(size, int)
        )
    )
