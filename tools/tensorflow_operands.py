"""Operands of the cases in ``tensorflow_rows``: random arrays and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Constant:
    """An operand that is a constant of the model."""

    array: Array


@dataclass(frozen=True, eq=False)
class Row:
    """One case.

    ``outputs``: the number of results to store, by default all.
    """

    op: str
    name: str
    operands: Sequence[Array | Constant]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int | None = None


RANDOM = np.random.default_rng(11)


def real(*shape: int, dtype: str = "float32", low: float = -4, high: float = 4) -> Array:
    """Return random multiples of 1/16, or integers; both compress well."""
    values = RANDOM.integers(int(low * 16), int(high * 16), shape, endpoint=True)
    return np.asarray(values / 16).astype(dtype) if "int" not in dtype else np.asarray(values // 16).astype(dtype)


def positive(*shape: int, dtype: str = "float32") -> Array:
    return real(*shape, dtype=dtype, low=1 / 16 if "float" in dtype else 1, high=6)


def flags(*shape: int) -> Array:
    return RANDOM.integers(0, 2, shape).astype(bool)


def complex_numbers(*shape: int) -> Array:
    return np.asarray(real(*shape) + 1j * real(*shape)).astype(np.complex64)


def numbers(*values: Any, dtype: str = "int32") -> Array:
    """Return an array that the model gets as an input."""
    return np.asarray(values, dtype)


def constant(*values: Any, dtype: str = "int32") -> Constant:
    """Return a vector that is stored in the model."""
    return Constant(np.asarray(values, dtype))


def scalar(value: Any, dtype: str = "int32") -> Constant:
    """Return a scalar that is stored in the model."""
    return Constant(np.asarray(value, dtype))
