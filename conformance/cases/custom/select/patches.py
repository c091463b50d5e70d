"""TensorFlow's operators that extract patches of images."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = ("ExtractImagePatches",)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
