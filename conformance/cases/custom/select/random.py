"""Random numbers: only certain properties are compared, because sequences differ between generators."""

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
        yield bounds_case(op, "a shape at runtime", {"seed": 3}, fixed=False)


def bounds_case(
    op: str, name: str, seeds: dict[str, int], dtype: str = "int32", fixed: bool = True, **more: Any
) -> Case:
    """Return a case whose numbers must be within bounds."""
    given = {} if fixed else {"shape": np.asarray([2, 5, 7], dtype)}
    build = partial(build_bounds_check, op=op, seeds=seeds, dtype=dtype, fixed=fixed)
    return net(
        PREFIX + op,
        name,
        build,
        input_arrays=given,
        reference=certain_properties,
        dtype="float32",
        dynamic_sizes=(),
        **more,
    )


def build_bounds_check(model: Net, op: str, seeds: dict[str, int], dtype: str, fixed: bool) -> None:
    shape = constant(np.asarray([2, 5, 7], dtype)) if fixed else tensor(3, dtype=dtype, name="shape")
    y = tensor(2, 5, 7) if fixed else tensor(None, None, None)
    options = select_options(op, node(op, {**seeds, "dtype": "float32", "T": dtype}))
    numbers = model.call(PREFIX + op, [shape], y, custom_options=options)
    flags = tensor(*y.shape, dtype="bool")
    low, high = BOUNDS[op]
    model.output(
        model.call("GREATER_EQUAL", [numbers, constant(low)], flags),
        model.call("LESS", [numbers, constant(high)], flags),
    )


def certain_properties(arrays: Sequence[Array]) -> list[Array]:
    return [np.ones((2, 5, 7), bool)] * 2
