"""TensorFlow's counts of values, and the largest values."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "DenseBincount",
    "InTopKV2",
    "TopKV2",
    "UniqueWithCounts",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
