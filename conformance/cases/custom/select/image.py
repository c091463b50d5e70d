"""Images, as TensorFlow computes them."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import of_tensorflow

OPERATORS = (
    "AvgPool",
    "BiasAdd",
    "Conv2D",
    "Conv3D",
    "DepthwiseConv2dNative",
    "MaxPool",
    "ResizeBilinear",
    "ResizeNearestNeighbor",
)
FIXED = (
    "Conv2D, SAME, strides [2, 3]",
    "Conv2D, filters at runtime",
    "Conv2D, groups",
    "DepthwiseConv2dNative, VALID, filters at runtime",
)
"""Cases that ONNX, or the built-in operator, needs the sizes of."""


def cases() -> Iterator[Case]:
    yield from of_tensorflow(*OPERATORS, fixed_alone=FIXED)
