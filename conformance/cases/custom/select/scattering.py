"""TensorFlow's scattering of updates and sums of segments."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.tensorflow import tensorflow_cases

SEGMENTS = (
    "SegmentSum",
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
    "UnsortedSegmentProd",
    "UnsortedSegmentSum",
)
INDEXED = (
    "ScatterNd",
    "TensorScatterAdd",
    "TensorScatterMax",
    "TensorScatterMin",
    "TensorScatterSub",
    "TensorScatterUpdate",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*SEGMENTS)
    # The number of coordinates, on the last axis of the indices, is static.
    yield from tensorflow_cases(*INDEXED, static_axes=(-1,))
