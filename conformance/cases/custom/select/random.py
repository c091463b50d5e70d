"""Random number generators, checked only for bounds.

From the same seed, LiteRT and ONNX Runtime generate different numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Net, constant, net, tensor
from conformance.tensorflow import PREFIX, node, select_options
from onnx_tflite_plugin.source.model import Array

OPSETS = (None, 13, 17, 21)
BOUNDS = {"RandomStandardNormal": (-9.0, 9.0), "RandomUniform": (0.0, 1.0)}


def cases() -> Iterator[Case]:
    for op in BOUNDS:
        for seeds in ({}, {"seed": 7}, {"seed": 3, "seed2": 11}):
            yield bounds_case(op, f"seeds {list(seeds.values())}", seeds, opsets=OPSETS)
        yield bounds_case(op, "int64 shape", {"seed2": 3}, dtype="int64")
        yield bounds_case(op, "runtime shape", {"seed": 3}, constant_shape=False)


def bounds_case(
    op: str, name: str, seeds: dict[str, int], dtype: str = "int32", constant_shape: bool = True, **case_fields: Any
) -> Case:
    """Return a case with two boolean outputs for each random number.

    The first is True if the number is at least the lower bound, the second if it is below the upper bound.
    """
    input_arrays = {} if constant_shape else {"shape": np.asarray([2, 5, 7], dtype)}
    build = partial(build_bounds_check, op=op, seeds=seeds, dtype=dtype, constant_shape=constant_shape)
    return net(
        PREFIX + op,
        name,
        build,
        input_arrays=input_arrays,
        reference=expected_flags,
        dtype="float32",
        dynamic_sizes=(),
        **case_fields,
    )


def build_bounds_check(model: Net, op: str, seeds: dict[str, int], dtype: str, constant_shape: bool) -> None:
    shape = constant(np.asarray([2, 5, 7], dtype)) if constant_shape else tensor(3, dtype=dtype, name="shape")
    y = tensor(2, 5, 7) if constant_shape else tensor(None, None, None)
    options = select_options(op, node(op, {**seeds, "dtype": "float32", "T": dtype}))
    numbers = model.call(PREFIX + op, [shape], y, custom_options=options)
    flags = tensor(*y.shape, dtype="bool")
    low, high = BOUNDS[op]
    model.output(
        model.call("GREATER_EQUAL", [numbers, constant(low)], flags),
        model.call("LESS", [numbers, constant(high)], flags),
    )


def expected_flags(arrays: Sequence[Array]) -> list[Array]:
    return [np.ones((2, 5, 7), bool)] * 2
