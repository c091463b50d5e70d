"""TensorFlow's bicubic resizing, crops, and pooling with positions."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import stored_cases, tensorflow_cases

OPERATORS = (
    "CropAndResize",
    "MaxPoolWithArgmax",
    "ResizeBicubic",
)

STATIC_ONLY = ("ResizeBicubic", "MaxPoolWithArgmax")
"""Operators whose coefficients or positions depend on the size of the image."""


def cases() -> Iterator[Case]:
    static_only = [f"{stored.op}, {stored.name}" for stored in stored_cases() if stored.op in STATIC_ONLY]
    yield from tensorflow_cases(*OPERATORS, static_only=static_only)
