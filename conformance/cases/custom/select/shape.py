"""Shapes, as TensorFlow computes them."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import of_tensorflow

OPERATORS = (
    "BroadcastTo",
    "ExpandDims",
    "Identity",
    "PreventGradient",
    "Rank",
    "Reshape",
    "Roll",
    "Shape",
    "Size",
    "Snapshot",
    "Squeeze",
    "StopGradient",
    "Tile",
    "Transpose",
)
FIXED = ("Squeeze, every axis",)
"""Cases that ONNX, or the built-in operator, needs the sizes of."""


def cases() -> Iterator[Case]:
    yield from of_tensorflow(*OPERATORS, fixed_alone=FIXED)
