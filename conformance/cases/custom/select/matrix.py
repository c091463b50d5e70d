"""TensorFlow's matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "MatMul",
    "MatrixDeterminant",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
