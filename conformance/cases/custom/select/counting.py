"""TensorFlow's scattering with a maximum or minimum, and counts of values."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "DenseBincount",
    "InTopKV2",
    "TensorScatterMax",
    "TensorScatterMin",
    "UniqueWithCounts",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
