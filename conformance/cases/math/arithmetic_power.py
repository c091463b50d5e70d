"""POW and ATAN2: exponents, quadrants, signed zeros and infinities."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    between_convolutions,
    binary,
    constant,
    in_bfloat16,
    opsets,
    random_array,
    tensor,
)
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from power_cases()
    yield from angle_cases()


def power_cases() -> Iterator[Case]:
    """Yield cases of POW of floats, and of int32, which wraps around."""
    positive: dict[str, Any] = {"input_range": (0.1, 3.0)}
    for place in PLACEMENTS:
        yield binary(
            "POW", "float32", tensor(*IMAGE), tensor(*IMAGE), place=place, opsets=opsets(place=place), **positive
        )
        for exponent in (2.0, 3.0, 0.5, -1.0, 0.0, 2.3):
            yield binary("POW", f"float32 to {exponent}", tensor(*IMAGE), constant(exponent), place=place, **positive)
        bases = constant([[0.5], [2.0], [3.0], [1.0], [0.1], [9.0], [0.3]])
        yield binary("POW", "a constant to float32", bases, tensor(*IMAGE), place=place)
    operands = [np.array(row, np.float32) for row in ([-2, -2, 0, 0, -8, np.inf], [3, 0.5, 0, -1, -3, -2])]
    arrays = dict(zip(("x0", "x1"), operands, strict=True))
    yield binary("POW", "float32 of negative numbers and zeros", tensor(6), tensor(6), input_arrays=arrays)
    arrays = {"x0": integers_between("int32", -9, 9, 7, 3), "x1": integers_between("int32", 0, 9, 7, 3)}
    x = tensor(7, 3, dtype="int32")
    yield binary("POW", "int32", x, x, input_arrays=arrays, opsets=EVERY_OPSET)
    for exponent in (0, 1, 2, 3, 7):
        exponent_operand = constant(np.asarray(exponent, np.int32))
        arrays = {"x0": integers_between("int32", -15, 15, 7, 3)}
        yield binary("POW", f"int32 to {exponent}", x, exponent_operand, input_arrays=arrays)
    arrays = {"x0": integers_between("int32", -(2**31), 2**31 - 1, 7, 3)}
    for exponent in (2, 11):
        exponent_operand = constant(np.asarray([exponent], np.int32))
        yield binary("POW", f"int32 to {exponent}, which wraps around", x, exponent_operand, input_arrays=arrays)
    x = tensor(7, dtype="int8")
    yield binary("POW", "int8", x, x, kernel_refusal="Unsupported data type")


def integers_between(dtype: str, low: int, high: int, *shape: int, seed: str = "") -> Array:
    """Return random integers; both bounds are included."""
    return random_array(*shape, dtype=dtype, low=low, high=high, seed=seed)


def angle_cases() -> Iterator[Case]:
    """Yield cases of ATAN2 in every quadrant, of both zeros, infinities and NaN."""
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -1e-3, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan]
    grid = np.array(list(product(values, values))).T
    for dtype in ("float32", "float64", "float16"):
        pair = tensor(len(grid[0]), dtype=dtype)
        with np.errstate(over="ignore"):
            arrays = {"x0": grid[0].astype(dtype), "x1": grid[1].astype(dtype)}
        yield binary("ATAN2", f"{dtype} edges", pair, pair, input_arrays=arrays, opsets=EVERY_OPSET)
        yield binary("ATAN2", dtype, tensor(*IMAGE, dtype=dtype), tensor(*IMAGE, dtype=dtype))
    has_no_nan = ~np.isnan(grid).any(axis=0)
    arrays = {f"x{k}": row[has_no_nan].astype(np.float32) for k, row in enumerate(grid)}
    x = tensor(int(has_no_nan.sum()))
    yield in_bfloat16("ATAN2", [x, x], x, name="bfloat16 edges", input_arrays=arrays)
    yield in_bfloat16("ATAN2", [tensor(*IMAGE), tensor(*IMAGE)], tensor(*IMAGE))
    yield binary("ATAN2", "float32", tensor(*IMAGE), tensor(*IMAGE), place=between_convolutions)
    yield binary("ATAN2", "float32 scalars", tensor(), tensor())
    yield binary("ATAN2", "float32, empty", tensor(0, 3), tensor(0, 3))
    yield binary("ATAN2", "shapes that do not match", tensor(2, 3), tensor(1, 3), refusal="does not broadcast")
