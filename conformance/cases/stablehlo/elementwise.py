"""STABLEHLO_ADD, AND, MAXIMUM, MINIMUM, MULTIPLY and SHIFT_LEFT.

The operands have every dtype of the kernels, and integers at their limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import (
    PLACEMENTS,
    between_convolutions,
    in_isolation,
    opsets,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)
BITS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float16", "float64")
ARITHMETIC = ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")


def cases() -> Iterator[Case]:
    for op in ARITHMETIC:
        for dtype in (*FLOATS, *BITS, "bool"):
            yield elementwise_case(
                op, dtype, dtype, opsets=opsets() if dtype in ("float32", "int8", "bool") else (None,)
            )
            if dtype not in (*FLOATS, "bool"):
                yield limits_case(op, dtype)
        for dtype in ("int8", "uint8"):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS:
                yield place(
                    op,
                    f"{dtype} with scales, which the kernel ignores",
                    [x, x.rescale(0.5, 7)],
                    x.rescale(2, -3 if dtype == "int8" else 9),
                )
        yield between_convolutions(op, "float32", [tensor(*IMAGE)] * 2, tensor(*IMAGE))
        for shape in ((), (0, 3), (1,)):
            yield in_isolation(op, f"shape {list(shape)}", [tensor(*shape)] * 2, tensor(*shape))
        x = tensor(2, 3)
        yield in_isolation(op, "different shapes", [x, tensor(3)], x, kernel_refusal="dims->size")
    for op in ("STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM"):
        values = np.array([np.nan, 1, np.nan, -0.0, 0.0, np.inf, -np.inf], np.float32)
        input_arrays = {"x0": values, "x1": np.array([1, np.nan, np.nan, 0.0, -0.0, np.nan, np.nan], np.float32)}
        yield in_isolation(
            op, "NaN, infinities and zeros of both signs", [tensor(7)] * 2, tensor(7), input_arrays=input_arrays
        )
    for dtype in (*BITS, "bool"):
        yield elementwise_case("STABLEHLO_AND", dtype, dtype)
    yield elementwise_case("STABLEHLO_AND", "bool at opset 13", "bool", opsets=(13,))
    yield elementwise_case("STABLEHLO_AND", "int32 at opset 17", "int32", opsets=(17,), refusal="needs opset 18")
    yield elementwise_case("STABLEHLO_AND", "float32", "float32", kernel_refusal="not supported for bitwise")
    for dtype, bits in (("int8", 8), ("int16", 16), ("int32", 32)):
        x = tensor(5, 7, dtype=dtype, scale=0)
        counts = (np.arange(35).reshape(5, 7) % bits).astype(dtype)
        arrays = {
            "x0": random_array(5, 7, dtype=dtype, low=np.iinfo(dtype).min, high=np.iinfo(dtype).max),
            "x1": counts,
        }
        yield in_isolation("STABLEHLO_SHIFT_LEFT", dtype, [x, x], x, input_arrays=arrays, opsets=opsets())
    image = tensor(*IMAGE, dtype="int8")
    shift_arrays = {"x1": (np.arange(210).reshape(IMAGE) % 8).astype(np.int8)}
    yield in_isolation("STABLEHLO_SHIFT_LEFT", "int8 with a scale", [image, image], image, input_arrays=shift_arrays)


def elementwise_case(op: str, name: str, dtype: str, **case_fields: Any) -> Case:
    x = tensor(*IMAGE, dtype=dtype, scale=0)
    return in_isolation(op, name, [x, x], x, **case_fields)


def limits_case(op: str, dtype: str) -> Case:
    """Return a case with all pairs of the dtype's limits and their neighbors.

    Sums and products wrap.
    """
    limits = np.iinfo(dtype)
    values_beyond_32_bits = (
        [2**32 - 65536, -(2**33) - 1] if limits.bits == 64 and limits.min else []
    )  # the order of their lower 32 bits differs
    values = np.array([limits.min, limits.min + 1, 1, 3, *values_beyond_32_bits, limits.max - 1, limits.max], dtype)
    x, y = np.meshgrid(values, values)
    operand = tensor(*x.shape, dtype=dtype, scale=0)
    return in_isolation(op, f"{dtype} limits", [operand, operand], operand, input_arrays={"x0": x, "x1": y})
