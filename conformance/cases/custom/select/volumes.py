"""TensorFlow's operators on volumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.tensorflow import case, node, stored_cases, tensorflow_cases

OPERATORS = (
    "AvgPool3D",
    "MaxPool3D",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
    for stored in stored_cases():
        if stored.op in OPERATORS:
            attributes = {
                "ksize": (1, 1, 2, 3, 2),
                "strides": (1, 1, 1, 2, 2),
                "padding": stored.name,
                "data_format": "NCDHW",
            }
            transposed = [
                np.ascontiguousarray(np.moveaxis(array, -1, 1)) for array in (*stored.operands, *stored.results)
            ]
            channels_first = replace(
                stored, node=node(stored.op, attributes), operands=(transposed[0],), results=(transposed[1],)
            )
            yield case(channels_first, f"{stored.name}, channels first", static=True, nodes={"Transpose": 0})
