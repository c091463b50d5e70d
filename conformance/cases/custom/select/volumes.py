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
    for one in stored_cases():
        if one.op in OPERATORS:
            given = {"ksize": (1, 1, 2, 3, 2), "strides": (1, 1, 1, 2, 2), "padding": one.name, "data_format": "NCDHW"}
            moved = [np.ascontiguousarray(np.moveaxis(array, -1, 1)) for array in (*one.operands, *one.results)]
            first = replace(one, node=node(one.op, given), operands=(moved[0],), results=(moved[1],))
            yield case(first, f"{one.name}, channels first", static=True, nodes={"Transpose": 0})
