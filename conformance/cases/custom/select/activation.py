"""TensorFlow's activations."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

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


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
