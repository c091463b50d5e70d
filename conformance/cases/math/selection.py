"""SELECT and SELECT_V2: conditions per element and per row, broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.math.comparison import opsets
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    constant,
    in_isolation,
    net,
    random_array,
    random_constant,
    tensor,
)

IMAGE = (2, 5, 7, 3)
EIGHT_BIT_DTYPES = ("int8", "uint8")
OPERAND_SHAPES = ((), (3,), (7, 1), (5, 1, 3))
UNQUANTIZED = ("float32", "float16", "int32", "int64", "bool", "complex64")


def cases() -> Iterator[Case]:
    yield from select_cases()
    yield from row_condition_cases()
    yield from single_element_cases()


def selection_case(
    op: str, name: str, condition: Spec, x: Spec, y: Spec, z: Spec | None = None, place: Placement = in_isolation, **case_fields: Any
) -> Case:  # fmt: skip
    sizes = (tuple(size or 1 for size in spec.shape) for spec in (condition, x, y))
    shape = x.shape if op == "SELECT" else np.broadcast_shapes(*sizes)
    result = z or replace(x, value=None).with_shape(*shape)
    return place(op, name, [condition, x, y], result, dtype=x.dtype, **{"opsets": opsets(place, x), **case_fields})


def select_cases() -> Iterator[Case]:
    """Yield cases with conditions per element.

    The kernels copy quantized values regardless of their scales.
    """
    flags = Spec(IMAGE, "bool")
    for op in ("SELECT", "SELECT_V2"):
        for dtype in (*UNQUANTIZED, *EIGHT_BIT_DTYPES, "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS if dtype in ("float32", *EIGHT_BIT_DTYPES, "int16") else (in_isolation,):
                yield selection_case(op, f"{dtype}", flags, x, x, place=place)
                if x.scale is not None:
                    name = f"{dtype} with different scales, which the kernel ignores"
                    yield selection_case(op, name, flags, x, x.rescale(0.6, 0), x.rescale(1.5, 0), place)
        for dtype in (*EIGHT_BIT_DTYPES, "int16"):
            unscaled = tensor(*IMAGE, dtype=dtype, scale=0)
            yield selection_case(op, f"{dtype} without scale", flags, unscaled, unscaled)
    for dtype in ("float32", "int8", "complex64"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS if dtype != "complex64" else (in_isolation,):
            for shape in OPERAND_SHAPES:
                operand, condition = x.with_shape(*shape), flags.with_shape(*shape)
                if dtype != "complex64":
                    operand = random_constant(operand)
                yield selection_case("SELECT_V2", f"{dtype} or {shape}", flags, x, operand, place=place, opsets=(None,))
                yield selection_case("SELECT_V2", f"{shape} or {dtype}", flags, operand, x, place=place, opsets=(None,))
                yield selection_case(
                    "SELECT_V2", f"{dtype} by a condition {shape}", condition, x, x, place=place, opsets=(None,)
                )
                yield selection_case(
                    "SELECT_V2",
                    f"{dtype} by a constant {shape}",
                    random_constant(condition),
                    x,
                    x,
                    place=place,
                    opsets=(None,),
                )
    yield selection_case(
        "SELECT_V2", "float32, all broadcast", flags.with_shape(5, 1, 1), tensor(7, 1), tensor(3), opsets=(None,)
    )
    yield selection_case(
        "SELECT_V2", "float32 of rank 5", flags.with_shape(3, 1), tensor(2, 3, 5, 1, 7), tensor(5, 1, 1), opsets=(None,)
    )


def row_condition_cases() -> Iterator[Case]:
    """Yield cases of conditions of rank 1, which SELECT applies to axis 0."""
    flags = Spec((), "bool")
    for dtype in ("float32", "int8", "int16", "bool", "complex64"):
        for shape in ((3, 5, 3), (5, 7), (2, 5, 7, 3), (7,), (3, 3)):
            x = tensor(*shape, dtype=dtype)
            for place in PLACEMENTS if len(shape) == 4 and dtype in ("float32", "int8") else (in_isolation,):
                condition = flags.with_shape(shape[0])
                yield selection_case("SELECT", f"{dtype} {shape} by rows", condition, x, x, place=place)
                yield selection_case(
                    "SELECT",
                    f"{dtype} {shape} by constant rows",
                    random_constant(condition),
                    x,
                    x,
                    place=place,
                    opsets=(None,),
                )
                yield selection_case(
                    "SELECT", f"{dtype} {shape} by one condition", flags, x, x, place=place, opsets=(None,)
                )
    x = tensor(None, 5, 3)
    arrays = [
        {"x0": random_array(n, dtype="bool"), "x1": random_array(n, 5, 3, seed="x"), "x2": random_array(n, 5, 3, seed="y")} for n in (3, 4)
    ]  # fmt: skip
    yield in_isolation(
        "SELECT",
        "float32, dynamic number of rows",
        [flags.with_shape(None), x, x],
        x,
        input_arrays=arrays,
        dtype="float32",
    )
    for dtype in ("float32", "int8"):
        yield net(
            "SELECT",
            f"{dtype} transposed rows, between convolutions",
            select_rows_of_images(dtype),
            dtype=dtype,
            max_transposes=3,
        )


def select_rows_of_images(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a selection of rows from two images.

    The images have no batch axis and are between convolutions.

    The case fails if the condition applies to axis 0 of the channels-first images, which holds the channels.
    """

    def build(model: Net) -> None:
        image = tensor(1, 5, 7, 3, dtype=dtype)
        x, y = (
            model.call("SQUEEZE", [model.input_through_conv(image)], image.with_shape(5, 7, 3), squeeze_dims=[0])
            for _ in range(2)
        )
        selected = model.call("SELECT", [Spec((5,), "bool"), x, y], image.with_shape(5, 7, 3))
        model.output(model.output_through_conv(model.call("EXPAND_DIMS", [selected, constant(0)], image)))

    return build


def single_element_cases() -> Iterator[Case]:
    """Yield cases with operands of one element.

    The result has the rank that the file stores, whatever the ranks of the operands.
    """
    flags = Spec((), "bool")
    for op in ("SELECT", "SELECT_V2"):
        for shapes in (((1, 1, 1), (), (), (1,)), ((1,), (1, 1), (1,), (1,)), ((), (1,), (1, 1), (1, 1, 1, 1))):
            condition, x, y, z = shapes
            name = "float32 elements of shape " + ", ".join(map(str, shapes))
            yield selection_case(op, name, flags.with_shape(*condition), tensor(*x), tensor(*y), tensor(*z))
