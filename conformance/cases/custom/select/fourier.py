"""TensorFlow's Fourier transforms and operators on complex numbers."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "Angle",
    "Complex",
    "ComplexAbs",
    "Conj",
    "FFT",
    "IFFT",
    "IRFFT",
    "Imag",
    "RFFT",
    "Real",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
