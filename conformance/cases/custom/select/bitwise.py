"""TensorFlow's bitwise operators."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Invert",
    "LeftShift",
    "RightShift",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
