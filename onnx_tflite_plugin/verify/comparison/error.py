"""Error between two arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_tflite_plugin.source.model import Array

NIBBLES = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
"""Integers smaller than a byte, and the dtype in which NumPy compares them."""


@dataclass(frozen=True, slots=True)
class ErrorStatistics:
    """Error between two arrays.

    ``worst``: maximum absolute difference; it is 1 for unequal texts or booleans. ``total``: sum of the differences.
    ``differing``: number of elements that differ. ``problem``: the reason why the arrays cannot be compared, which is a
    difference in shape, dtype, or positions of NaN or infinity.
    """

    worst: float = 0.0
    differing: int = 0
    elements: int = 0
    problem: str = ""
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.elements if self.elements else 0.0

    def __or__(self, other: ErrorStatistics) -> ErrorStatistics:
        return ErrorStatistics(
            max(self.worst, other.worst),
            self.differing + other.differing,
            self.elements + other.elements,
            self.problem or other.problem,
            self.total + other.total,
        )


AT_DIFFERENT_POSITIONS = "at different positions"
"""Words of a problem about NaN or infinity in only one of two arrays."""

_BLOCK = 1 << 18  # elements per block: 2 MiB in float64
_NEGLIGIBLE = 2.0**-100  # below this magnitude some runtimes return 0 for an exponential


def measure_error(actual: Array, expected: Array) -> ErrorStatistics:
    """Return the error between two arrays.

    A complex array may be compared with pairs of real and imaginary parts along a last axis.
    """
    actual, expected = comparable(actual), comparable(expected)
    if actual.dtype != expected.dtype:
        return ErrorStatistics(problem=f"dtype {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        return ErrorStatistics(problem=f"shape {list(actual.shape)}, expected {list(expected.shape)}")
    if expected.dtype.kind == "f":
        return _measure_floats(actual, expected)
    differs = actual != expected
    count = int(np.count_nonzero(differs))
    if not count or expected.dtype.kind not in "iu":
        return ErrorStatistics(float(count > 0), count, expected.size, total=count)
    difference = np.abs(actual[differs].astype(np.float64) - expected[differs].astype(np.float64))
    return ErrorStatistics(max(1.0, float(difference.max())), count, expected.size, total=float(difference.sum()))


def _measure_floats(actual: Array, expected: Array) -> ErrorStatistics:
    """Return the error of floats. Blocks take a third of the time for large arrays."""
    total, flat_actual, flat_expected = ErrorStatistics(), actual.reshape(-1), expected.reshape(-1)
    for start in range(0, expected.size, _BLOCK):
        results, references = flat_actual[start : start + _BLOCK], flat_expected[start : start + _BLOCK]
        if not (np.isfinite(results).all() and np.isfinite(references).all()):
            return _measure_infinite(actual, expected)
        total |= _measure_finite(results, references)
    return total


def _measure_infinite(actual: Array, expected: Array) -> ErrorStatistics:
    """Return the error of floats with NaN or infinite elements."""
    for value, test in (("NaN", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        differs = test(actual) != test(expected)
        if count := int(np.count_nonzero(differs)):
            index = tuple(int(i) for i in np.argwhere(differs)[0])
            example = f"at {list(index)}: {actual[index]}, expected {expected[index]}"
            problem = f"{value} {AT_DIFFERENT_POSITIONS} ({count} elements, first {example})"
            return ErrorStatistics(math.inf, count, expected.size, problem)
    finite = np.isfinite(expected)
    return replace(_measure_finite(actual[finite], expected[finite]), elements=expected.size)


def _measure_finite(actual: Array, expected: Array) -> ErrorStatistics:
    difference = np.subtract(actual, expected, dtype=np.float64)
    np.abs(difference, out=difference)
    difference[difference < _NEGLIGIBLE] = 0
    worst = float(difference.max(initial=0.0))
    return ErrorStatistics(worst, int(np.count_nonzero(difference)), expected.size, total=float(difference.sum()))


def comparable(array: Array) -> Array:
    """Return the array in a dtype that NumPy can compare.

    Complex numbers become pairs, int4 and int2 become int8, small floats become float32, and texts become bytes.
    """
    array = np.asarray(array)
    name = array.dtype.name
    if array.dtype.kind == "c":
        return as_pairs(array)
    if array.dtype.kind in "OSU":
        items = [item if isinstance(item, bytes) else str(item).encode(errors="surrogateescape") for item in array.flat]
        texts = np.empty(len(items), object)
        texts[:] = items
        return texts.reshape(array.shape)
    if name in NIBBLES:
        return array.astype(NIBBLES[name])
    if "float" in name and array.dtype.kind != "f":  # bfloat16 and the 8-bit floats
        return array.astype(np.float32)
    return array


def as_pairs(array: Array) -> Array:
    """Return a complex array as real and imaginary parts along a last axis of size 2."""
    return np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)


def measure_runs(actual: Sequence[Array], expected: Sequence[Array]) -> ErrorStatistics:
    """Return the error of one output over all runs."""
    total = ErrorStatistics()
    for result, reference in zip(actual, expected, strict=True):
        total |= measure_error(result, reference)
    return total
