"""TensorFlow's reductions."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "All",
    "Any",
    "ArgMax",
    "ArgMin",
    "Cumprod",
    "Cumsum",
    "CumulativeLogsumexp",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Sum",
)
STATIC_ONLY = (
    "Prod, int32",
    "Prod, int64",
)
"""Cases that need static sizes, because ONNX or the equivalent built-in operator needs them."""


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS, static_only=STATIC_ONLY)
