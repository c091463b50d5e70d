"""TILE and BROADCAST_TO along each axis and at every rank.

Operands are constants or runtime values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    opsets,
    tensor,
)

IMAGE = (2, 5, 7, 3)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")
TEXT = {"x0": np.array([[b"a", b"bc", b""], [b"d", b"e", b"fgh"]], object)}


def cases() -> Iterator[Case]:
    yield from tile_cases()
    yield from broadcast_cases()


# --- TILE -------------------------------------------------------------------------------------


def tile_case(
    name: str,
    x: Spec,
    multiples: Sequence[int],
    place: Placement = in_isolation,
    multiple_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    shape = [(size or 0) * multiple for size, multiple in zip(x.shape, multiples, strict=True)]
    return place(
        "TILE",
        name,
        [x, constant(np.asarray(multiples, multiple_dtype))],
        replace(x, name="").with_shape(*shape),
        **{"dtype": x.dtype, **case_fields},
    )


def tile_cases() -> Iterator[Case]:
    for dtype in FLOAT_OR_QUANTIZED:
        for place in PLACEMENTS:
            yield tile_case(dtype, tensor(*IMAGE, dtype=dtype), (1, 2, 3, 4), place, opsets=opsets(dtype))
    for axis in range(4):
        yield tile_case(f"axis {axis}", tensor(*IMAGE), [3 if k == axis else 1 for k in range(4)], between_convolutions)
    for dtype in ("int32", "int64", "bool"):
        yield tile_case(dtype, tensor(5, 3, dtype=dtype), (2, 3))
    yield tile_case("string", tensor(2, 3, dtype="string"), (2, 1), input_arrays=TEXT)
    yield tile_case("int64 multiples", tensor(*IMAGE), (2, 1, 2, 1), between_convolutions, multiple_dtype="int64")
    yield tile_case("multiples of 1", tensor(*IMAGE), (1, 1, 1, 1), between_convolutions)
    yield tile_case("multiples of 0", tensor(5, 3), (2, 0))
    for shape in ((3,), (3, 1, 5), (2, 3, 1, 5, 2), (2, 1, 3, 1, 2, 1)):
        yield tile_case(f"rank {len(shape)}", tensor(*shape), [1 + k % 3 for k in range(len(shape))])
    x, y = tensor(*IMAGE, dtype="int8"), tensor(2, 10, 7, 3, dtype="int8")
    for place in PLACEMENTS:
        yield place(
            "TILE",
            "int8 to different quantization parameters, which the kernel ignores",
            [x, constant([1, 2, 1, 1])],
            y.rescale(2, 7),
        )
    multiples_operand = tensor(4, dtype="int32", name="multiples")
    for dtype in ("float32", "int8"):
        for place in PLACEMENTS:
            x, y = tensor(*IMAGE, dtype=dtype), tensor(2, 10, 21, 12, dtype=dtype)
            yield place(
                "TILE",
                f"{dtype}, runtime multiples",
                [x, multiples_operand],
                y,
                input_arrays=int32_arrays(multiples=(1, 2, 3, 4)),
            )
    runs = [int32_arrays(multiples=multiples) for multiples in ((1, 2, 3, 4), (2, 1, 1, 3))]
    yield in_isolation(
        "TILE",
        "dynamic result shape",
        [tensor(*IMAGE), multiples_operand],
        tensor(None, None, None, None),
        input_arrays=runs,
    )


# --- BROADCAST_TO -----------------------------------------------------------------------------


def broadcast_to_case(
    name: str,
    input_shape: Sequence[int],
    result_shape: Sequence[int],
    dtype: str = "float32",
    shape_dtype: str = "int32",
    **case_fields: Any,
) -> Case:
    place: Placement = case_fields.pop("place", in_isolation)
    constant_shape: bool = case_fields.pop("constant_shape", True)
    x = tensor(*input_shape, dtype=dtype)
    shape_values = np.asarray(result_shape, shape_dtype)
    shape = (
        constant(shape_values)
        if constant_shape
        else tensor(len(result_shape), dtype=shape_dtype, scale=0, name="shape")
    )
    inputs = {} if constant_shape else {"input_arrays": {"shape": shape_values}}
    y = replace(x, name="").with_shape(*(result_shape if constant_shape else [None] * len(result_shape)))
    return place("BROADCAST_TO", name, [x, shape], y, **{"dtype": dtype, **inputs, **case_fields})


def broadcast_cases() -> Iterator[Case]:
    for input_shape in ((3,), (7, 1), (5, 1, 3), (1, 5, 1, 1), IMAGE, (1, 1, 7, 3)):
        shape_text = "x".join(map(str, input_shape))
        yield broadcast_to_case(f"{shape_text} to an image", input_shape, IMAGE, opsets=EVERY_OPSET)
    for place in PLACEMENTS:
        yield broadcast_to_case("height and width of an image", (2, 1, 1, 3), IMAGE, place=place)
    yield broadcast_to_case("batches of an image between convolutions", (1, 5, 7, 3), IMAGE, place=between_convolutions)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool"):
        yield broadcast_to_case(dtype, (5, 1, 3), IMAGE, dtype=dtype)
    yield broadcast_to_case("int64 shape", (5, 1, 3), IMAGE, shape_dtype="int64")
    yield broadcast_to_case("one element", (), (5, 7))
    yield broadcast_to_case("one element to a scalar", (), ())
    yield broadcast_to_case("runtime shape", (5, 1, 3), IMAGE, constant_shape=False)
