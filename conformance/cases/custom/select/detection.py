"""TensorFlow's non-maximum suppression."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "NonMaxSuppression",
    "NonMaxSuppressionV2",
    "NonMaxSuppressionV3",
    "NonMaxSuppressionV4",
    "NonMaxSuppressionV5",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
    # The number of classes, on the axes 2 and 3, is static.
    yield from tensorflow_cases("CombinedNonMaxSuppression", static_axes=(2, 3))
