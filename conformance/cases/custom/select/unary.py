"""TensorFlow's functions of one operand."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cast",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Floor",
    "Inv",
    "IsFinite",
    "IsInf",
    "IsNan",
    "Log",
    "Log1p",
    "Neg",
    "Reciprocal",
    "Rint",
    "Round",
    "Rsqrt",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Tan",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
