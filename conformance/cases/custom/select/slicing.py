"""TensorFlow's operators that slice, pad and fill."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

OPERATORS = (
    "DepthToSpace",
    "Fill",
    "GatherNd",
    "GatherV2",
    "MirrorPad",
    "OneHot",
    "Pad",
    "PadV2",
    "Range",
    "ReverseV2",
    "Slice",
    "SpaceToDepth",
    "StridedSlice",
    "ZerosLike",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
