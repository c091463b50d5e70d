"""TensorFlow's operators on shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import Case
from conformance.models import constant, in_isolation, tensor
from conformance.tensorflow import node, select_options, tensorflow_cases

OPERATORS = (
    "BroadcastTo",
    "EnsureShape",
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
STATIC_ONLY = ("Squeeze, every axis",)
"""Cases that need static shapes, because ONNX or the equivalent built-in operator needs them."""


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS, static_only=STATIC_ONLY)
    x, y = tensor(3, 5, 7, dtype="int8"), tensor(7, 3, 5, dtype="int8")
    options = select_options("Transpose", node("Transpose"))
    perm = constant(np.asarray([2, 0, 1], np.int32))
    yield in_isolation(
        "CUSTOM.FlexTranspose", "quantized values copied unchanged", [x, perm], y, custom_options=options
    )
