"""TensorFlow's normalization."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.models import in_isolation, tensor
from conformance.tensorflow import node, select_options, tensorflow_cases

OPERATORS = (
    "FusedBatchNorm",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
    x, statistics = tensor(1, 5, 7, 3), [tensor(3)] * 4
    options = select_options("FusedBatchNormV3", node("FusedBatchNormV3"))  # is_training is True by default
    refusal = "normalizes each batch by its own mean and variance"
    yield in_isolation(
        "CUSTOM.FlexFusedBatchNormV3", "in training", [x, *statistics], x, custom_options=options, refusal=refusal
    )
