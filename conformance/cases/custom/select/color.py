"""TensorFlow's conversion and adjustment of colors."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "AdjustContrastv2",
    "AdjustHue",
    "AdjustSaturation",
    "HSVToRGB",
    "RGBToHSV",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
