"""TensorFlow's operators that concatenate and split tensors."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "ConcatV2",
    "Pack",
    "Split",
    "SplitV",
    "Unpack",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
