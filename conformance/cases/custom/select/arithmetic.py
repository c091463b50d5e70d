"""Arithmetic, as TensorFlow computes them."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import of_tensorflow

OPERATORS = (
    "Add",
    "AddN",
    "AddV2",
    "Atan2",
    "Div",
    "DivNoNan",
    "FloorDiv",
    "FloorMod",
    "Maximum",
    "Minimum",
    "Mul",
    "Pow",
    "RealDiv",
    "SquaredDifference",
    "Sub",
    "Xdivy",
    "Xlogy",
)


def cases() -> Iterator[Case]:
    yield from of_tensorflow(*OPERATORS)
