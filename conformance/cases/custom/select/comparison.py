"""TensorFlow's comparisons, logic and selection."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "Equal",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalNot",
    "LogicalOr",
    "NotEqual",
    "Select",
    "SelectV2",
    "Where",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
