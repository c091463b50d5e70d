"""STABLEHLO_PAD and DILATE: padding at the edges, between elements, negative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import (
    PLACEMENTS,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    opsets,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)
DTYPES = (
    "float32",
    "float16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
ZEROS = (0, 0, 0, 0)


def cases() -> Iterator[Case]:
    yield from pad_cases()
    yield from dilation_cases()


def padding_value(x: Spec, value: float = 1, *shape: int) -> Spec:
    """Return a scalar constant with the tensor's dtype and parameters."""
    return replace(constant(np.full(shape, value), x.dtype), scale=x.scale, zero_point=x.zero_point)


def pad_case(
    name: str,
    x: Spec,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
    value: Spec | None = None,
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    axes = zip(x.shape, low, high, interior, strict=True)
    result = [max((n or 0) - 1, 0) * inner + (n or 0) + first + last for n, first, last, inner in axes]
    options = {"edge_padding_low": list(low), "edge_padding_high": list(high), "interior_padding": list(interior)}
    operands = [x, value or padding_value(x, 17 if x.dtype != "bool" else 1)]
    return place("STABLEHLO_PAD", name, operands, x.with_shape(*result), options=options, **case_fields)


def pad_cases() -> Iterator[Case]:
    all_kinds = ((1, -1, 2, 0), (0, 2, -3, 1), (1, 0, 2, 3))
    for dtype in DTYPES:
        x = tensor(*IMAGE, dtype=dtype, scale=0)
        yield pad_case(dtype, x, *all_kinds, opsets=opsets() if dtype in ("float32", "int8") else (None,))
        yield pad_case(f"{dtype}, edge padding only", x, (1, 0, 2, 0), (0, 3, 1, 2), ZEROS)
    for dtype in ("float32", "int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        yield pad_case(
            f"{dtype} image, height and width", x, (0, 1, 2, 0), (0, 2, 0, 0), ZEROS, place=between_convolutions
        )
        yield pad_case(
            f"{dtype} image, interior padding",
            x,
            (0, 1, -1, 0),
            (0, -2, 1, 0),
            (0, 2, 1, 0),
            place=between_convolutions,
        )
        yield pad_case(f"{dtype} image, cropped", x, (0, -1, -2, 0), (0, -2, 0, -1), ZEROS, place=between_convolutions)
    x = tensor(*IMAGE)
    for place in PLACEMENTS:
        yield pad_case("no padding", x, ZEROS, ZEROS, ZEROS, place=place)
        yield pad_case("runtime pad value", x, *all_kinds, value=tensor(name="value"), place=place)
    yield pad_case("pad value of rank 1", x, *all_kinds, value=padding_value(x, 17, 1))
    yield pad_case("cropped into the interior padding", tensor(5), (-2,), (-1,), (3,))
    yield pad_case("cropped to padding only", tensor(5), (-1,), (-13,), (3,))
    yield pad_case("one element", tensor(1, 3), (2, 0), (0, 1), (5, 1))
    yield pad_case("no elements", tensor(0, 3), (2, 0), (1, 1), (5, 1))
    for interior in (1, 2, 3):
        for edge in (interior, interior + 1, 2 * interior + 2, 3 * interior + 4):
            inner_text = f"{interior} between elements"
            yield pad_case(f"{edge} after, {inner_text}", tensor(3, 5), (0, 0), (0, edge), (0, interior))
            yield pad_case(f"{edge} before, {inner_text}", tensor(3, 5), (0, edge), (0, 0), (0, interior))
    yield pad_case("empty result", tensor(2, 3), (-2, 0), (0, 1), (0, 0), refusal="no elements")
    yield pad_case("rank 5", tensor(2, 3, 5, 2, 3), (0, 1, 0, -1, 2), (1, 0, -2, 0, 0), (0, 1, 1, 2, 0))


def dilation_case(
    name: str,
    x: Spec,
    dilations: Sequence[int],
    place: Placement = in_isolation,
    value: Spec | None = None,
    **case_fields: Any,
) -> Case:
    result = [((n or 1) - 1) * d + 1 for n, d in zip(x.shape, dilations, strict=True)]
    factors = constant(np.asarray(dilations, np.int32))
    return place("DILATE", name, [x, factors, value or padding_value(x)], x.with_shape(*result), **case_fields)


def dilation_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        x = tensor(*IMAGE, dtype=dtype, scale=0)
        yield dilation_case(dtype, x, (2, 1, 3, 5), opsets=opsets() if dtype in ("float32", "int8") else (None,))
    for dtype in ("float32", "int8", "uint8"):
        yield dilation_case(f"{dtype} image", tensor(*IMAGE, dtype=dtype), (1, 2, 3, 1), between_convolutions)
    x = tensor(*IMAGE)
    yield dilation_case("by one", x, (1, 1, 1, 1), between_convolutions)
    yield dilation_case("last axis only", x, (1, 1, 1, 3), between_convolutions)
    yield dilation_case("runtime pad value", x, (1, 2, 3, 1), between_convolutions, tensor(name="value"))
    yield dilation_case("one element", tensor(1), (7,))
    yield dilation_case("rank 5", tensor(2, 3, 1, 2, 3), (1, 2, 3, 1, 2))
    steps = tensor(4, dtype="int32", name="steps")
    for place in PLACEMENTS:
        step_arrays = int32_arrays(steps=[1, 2, 3, 2])
        y = tensor(2, 9, 19, 5)
        yield place("DILATE", "runtime dilations", [x, steps, padding_value(x)], y, input_arrays=step_arrays)
    input_runs = [{"x0": random_array(n, 5, m, 3)} for n, m in ((2, 7), (1, 4))]
    operands = [tensor(None, 5, None, 3), constant(np.array([1, 2, 3, 1], np.int32)), padding_value(x)]
    yield in_isolation("DILATE", "dynamic shape", operands, tensor(None, None, None, 3), input_arrays=input_runs)
    runs = [int32_arrays(steps=dilations) for dilations in ([1, 2, 3, 2], [2, 1, 1, 5])]
    yield in_isolation(
        "DILATE",
        "dynamic result shape",
        [x, steps, padding_value(x)],
        tensor(None, None, None, None),
        input_arrays=runs,
    )
