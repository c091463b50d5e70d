"""TensorFlow's matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Einsum",
    "MatMul",
    "MatrixDeterminant",
    "MatrixDiagPartV3",
)

STATIC_ONLY = tuple(f"MatrixDiagPartV3, {name}" for name in ("diagonal 0", "diagonal 2", "diagonal -1", "int32"))
"""Cases whose indices depend on the size of the matrix."""


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS, static_only=STATIC_ONLY)
