"""Activations, as TensorFlow computes them."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case, Tolerance
from conformance.tensorflow import of_tensorflow

OPERATORS = (
    "Elu",
    "LeakyRelu",
    "LogSoftmax",
    "Relu",
    "Relu6",
    "Selu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
)
HALF = Tolerance(of_range=2e-3)
ROUNDED = "TensorFlow rounds to float16 after each of several steps"


def cases() -> Iterator[Case]:
    yield from of_tensorflow(*OPERATORS, dtypes=("float32", "float64"))
    yield from of_tensorflow(*OPERATORS, dtypes=("float16",), tolerance=HALF, why=ROUNDED)
