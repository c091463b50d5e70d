"""DYNAMIC_UPDATE_SLICE: replaces a slice; a start out of bounds is clamped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    net,
    random_array,
    tensor,
)
from onnx_tflite_plugin.verify import Tolerance

OP = "DYNAMIC_UPDATE_SLICE"
IMAGE = (2, 5, 7, 3)
READ_BACK_TOLERANCE = Tolerance(of_range=1e-6)
READ_BACK_REASON = "the result is dequantized, because neither runtime can return int4"


def cases() -> Iterator[Case]:
    yield from constant_start_cases()
    yield from runtime_start_cases()
    yield from dtype_cases()
    yield from clamped_start_cases()
    yield from refusal_cases()


def update_case(
    name: str,
    x: Spec,
    update_shape: Sequence[int],
    start: Sequence[int],
    place: Placement = in_isolation,
    start_dtype: str = "int32",
    constant_start: bool = True,
    **case_fields: Any,
) -> Case:
    """Return an update of ``update_shape`` at ``start``.

    The start is a constant or a graph input.
    """
    start_values = np.asarray(start, start_dtype)
    start_operand = (
        constant(start_values) if constant_start else tensor(len(start), dtype=start_dtype, scale=0, name="start")
    )
    inputs = {} if constant_start else {"input_arrays": {"start": start_values}}
    operands = [x, replace(x, name="").with_shape(*update_shape), start_operand]
    return place(OP, name, operands, replace(x, name=""), **{"dtype": x.dtype, **inputs, **case_fields})


def constant_start_cases() -> Iterator[Case]:
    x = tensor(*IMAGE)
    for place in PLACEMENTS:
        yield update_case("one axis", x, (2, 5, 2, 3), (0, 0, 3, 0), place, opsets=EVERY_OPSET)
        yield update_case("every axis", x, (1, 3, 2, 1), (1, 1, 4, 2), place)
        yield update_case("channels", x, (2, 5, 7, 2), (0, 0, 0, 1), place)
        yield update_case("at the start", x, (2, 2, 7, 3), (0, 0, 0, 0), place)
    yield update_case("after the end", x, (2, 2, 3, 3), (0, 4, 6, 0))
    yield update_case("before the start", x, (2, 2, 3, 3), (0, -4, -1, 0))
    yield update_case("full update", x, IMAGE, (1, 2, 3, 1), between_convolutions)


def runtime_start_cases() -> Iterator[Case]:
    x = tensor(*IMAGE)
    for start_dtype in ("int32", "int64"):
        for place in PLACEMENTS:
            yield update_case(
                f"{start_dtype} runtime start", x, (1, 3, 2, 1), (1, 1, 4, 2), place, start_dtype, constant_start=False
            )
    yield update_case("runtime start after the end", x, (2, 2, 3, 3), (1, 4, 9, 0), constant_start=False)
    yield update_case(
        "runtime start before the start", x, (2, 2, 3, 3), (-1, -4, -1, 0), between_convolutions, constant_start=False
    )
    cache = tensor(1, 13, 2, 5)
    runs = [int32_arrays(start=[0, at, 0, 0]) for at in (0, 5, 12)]
    yield update_case(
        "cache row", cache, (1, 1, 2, 5), (0, 0, 0, 0), constant_start=False, input_arrays=runs, opsets=EVERY_OPSET
    )
    for place in PLACEMENTS:
        row_requirements: dict[str, Any] = {
            "input_arrays": [int32_arrays(start=[0, 0, at, 0]) for at in (3, 9, -2)],
            "nodes": {"ScatterND": 1},
        }
        yield update_case(
            "rows of an inner axis",
            tensor(*IMAGE),
            (2, 5, 2, 3),
            (0, 0, 0, 0),
            place,
            constant_start=False,
            **row_requirements,
        )
    column_runs = [int32_arrays(start=[0, 0, at]) for at in (6, 0, 8)]
    yield update_case(
        "cache column", tensor(2, 5, 7), (2, 5, 1), (0, 0, 0), constant_start=False, input_arrays=column_runs
    )
    many_rows: dict[str, Any] = {"input_arrays": int32_arrays(start=[0, 3, 0]), "nodes": {"ScatterND": 0}}
    yield update_case(
        "too many rows for ScatterND", tensor(1, 271, 2), (1, 257, 2), (0, 0, 0), constant_start=False, **many_rows
    )
    operands = [tensor(None, 7, 3), tensor(None, 2, 3), tensor(3, dtype="int32", name="start")]
    batch_runs = [
        {"x0": random_array(n, 7, 3), "x1": random_array(n, 2, 3), **int32_arrays(start=[0, 4, 0])} for n in (2, 5)
    ]
    yield in_isolation(OP, "dynamic batch", operands, tensor(None, 7, 3), input_arrays=batch_runs)


def dtype_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        for constant_start in (True, False):
            for place in PLACEMENTS:
                name = f"{dtype}, start {'constant' if constant_start else 'runtime'}"
                yield update_case(
                    name, tensor(*IMAGE, dtype=dtype), (1, 3, 2, 1), (1, 1, 4, 2), place, constant_start=constant_start
                )
        x = tensor(*IMAGE, dtype=dtype)
        operands = [x, x.with_shape(2, 2, 3, 3), constant([0, 3, 1, 0])]
        yield in_isolation(OP, f"{dtype} of different quantization parameters, which the kernel ignores",
                    [operands[0], operands[1].rescale(2.0), operands[2]], x.rescale(0.5), dtype=dtype)  # fmt: skip
    for dtype in ("float16", "int32", "int64", "bool", "uint32"):
        yield update_case(dtype, tensor(3, 5, dtype=dtype), (2, 2), (1, 2))
    for dtype in ("int8", "int16"):
        yield update_case(f"{dtype} without scale", tensor(3, 5, dtype=dtype, scale=0), (2, 2), (1, 2))
    yield net(
        OP,
        "int4",
        int4_rows,
        dtype="int4",
        opsets=(None, 26),
        tolerance=READ_BACK_TOLERANCE,
        tolerance_reason=READ_BACK_REASON,
    )


def int4_rows(model: Net) -> None:
    """Build rows of five 4-bit elements, which start within a byte."""
    x = constant(random_array(3, 5, dtype="int4", seed="x"), None, 0.2, 1)
    update = constant(random_array(2, 3, dtype="int4", seed="update"), None, 0.2, 1)
    y = model.call(OP, [x, update, constant([1, 1])], Spec((3, 5), "int4", 0.2, 1))
    model.output(model.call("DEQUANTIZE", [y], tensor(3, 5)))


def clamped_start_cases() -> Iterator[Case]:
    yield update_case("vector", tensor(7), (3,), (2,), constant_start=False)
    yield update_case("scalar", tensor(), (), ())
    yield update_case("update of one element", tensor(3, 5), (1, 1), (2, 4))
    yield update_case("empty update", tensor(3, 5), (0, 2), (2, 4))
    yield update_case("rank 6", tensor(2, 3, 2, 5, 3, 2), (1, 2, 1, 3, 2, 1), (1, 1, 1, 2, 1, 0), constant_start=False)


def refusal_cases() -> Iterator[Case]:
    operands = [tensor(3, 5), tensor(4, 5), constant([0, 0])]
    yield in_isolation(OP, "oversized update", operands, tensor(3, 5), kernel_refusal="SizeOfDimension(update, i) <=")
