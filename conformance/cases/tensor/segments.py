"""Segment operators with sorted and unsorted ids.

Some ids are negative or have several axes, some segments are empty, and integers wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import constant, in_isolation, random_array, tensor

SUM = "SEGMENT_SUM"
EXTREMES = ("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
UNSORTED = ("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", *EXTREMES)


def cases() -> Iterator[Case]:
    yield from sorted_cases()
    for op in UNSORTED:
        yield from unsorted_cases(op)


def segment_sum_case(
    name: str,
    ids: Sequence[int],
    shape: Sequence[int],
    dtype: str = "float32",
    constant_ids: bool = True,
    **case_fields: Any,
) -> Case:
    id_array = np.asarray(ids, np.int32)
    operand = constant(id_array) if constant_ids else tensor(len(ids), dtype="int32", name="ids")
    y = tensor(max(ids, default=-1) + 1 if constant_ids else None, *shape[1:], dtype=dtype)
    input_arrays = None if constant_ids else {"ids": id_array}
    return in_isolation(
        SUM,
        name,
        [tensor(*shape, dtype=dtype), operand],
        y,
        **{"dtype": dtype, "input_arrays": input_arrays, **case_fields},
    )


def sorted_cases() -> Iterator[Case]:
    ids = [0, 0, 1, 2, 2, 2, 3]
    for dtype in ("float32", "int32"):
        for constant_ids in (True, False):
            name = f"{dtype}, {'constant' if constant_ids else 'runtime'} ids"
            yield segment_sum_case(name, ids, (7, 5), dtype, constant_ids, opsets=(None, 16, 21, 26))
            yield segment_sum_case(f"{name}, vector", ids, (7,), dtype, constant_ids)
            yield segment_sum_case(f"{name}, rank 4", ids, (7, 2, 3, 5), dtype, constant_ids)
    yield segment_sum_case("one row", [0], (1, 5))
    yield segment_sum_case("one segment", [0] * 7, (7, 5), constant_ids=False)
    yield segment_sum_case("empty rows", ids, (7, 0), constant_ids=False, kernel_refusal="Invalid tensor size")
    input_arrays = {"x0": np.full((7, 5), 2**30, np.int32)}
    yield segment_sum_case("int32 that wraps", ids, (7, 5), "int32", input_arrays=input_arrays)
    yield segment_sum_case("skipped id", [0, 2, 2], (3, 5), kernel_refusal="delta ==")


def unsorted_segment_case(
    op: str, name: str, ids: Any, shape: Sequence[int], count: int, dtype: str = "float32", constant_ids: bool = True,
    constant_count: bool = True, **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a case of an unsorted segment operator.

    The ids and ``count``, the number of segments, are constants or runtime values.
    """
    id_array = np.asarray(ids, np.int32)
    operands = [
        tensor(*shape, dtype=dtype),
        constant(id_array) if constant_ids else tensor(*id_array.shape, dtype="int32", name="ids"),
        constant(count) if constant_count else tensor(dtype="int32", name="count"),
    ]
    y = tensor(count if constant_count and constant_ids else None, *shape[id_array.ndim :], dtype=dtype)
    runtime_arrays = {
        **({} if constant_ids else {"ids": id_array}),
        **({} if constant_count else {"count": np.asarray(count, np.int32)}),
    }
    return in_isolation(
        op,
        name,
        operands,
        y,
        **{
            "dtype": dtype,
            **case_fields,
            "input_arrays": {**runtime_arrays, **case_fields.pop("input_arrays", {})} or None,
        },
    )


def unsorted_cases(op: str) -> Iterator[Case]:
    ids = [3, 0, 3, 1, 0, 0, 5]
    partly_negative_ids = [3, -1, 3, 1, -7, 0, 5]
    lowest_opset = 18 if op in EXTREMES else 16
    for dtype in ("float32", "int32"):
        for constant_ids in (True, False):
            name = f"{dtype}, {'constant' if constant_ids else 'runtime'} ids"
            yield unsorted_segment_case(
                op, name, ids, (7, 5), 6, dtype, constant_ids, opsets=(None, lowest_opset, 21, 26)
            )
            yield unsorted_segment_case(
                op, f"{name}, some negative", partly_negative_ids, (7, 5), 7, dtype, constant_ids
            )
            yield unsorted_segment_case(
                op, f"{name} of rank 2", np.reshape(partly_negative_ids[:6], (2, 3)), (2, 3, 5), 7, dtype, constant_ids
            )
        yield unsorted_segment_case(
            op, f"{dtype}, runtime number of segments", ids, (7, 5), 11, dtype, constant_count=False
        )
        yield unsorted_segment_case(
            op, f"{dtype}, runtime ids and number of segments", partly_negative_ids, (7, 5), 6, dtype, False, False
        )
    yield unsorted_segment_case(op, "ids of full rank", np.reshape(partly_negative_ids[:6], (2, 3)), (2, 3), 7)
    yield unsorted_segment_case(op, "vector", partly_negative_ids, (7,), 6, constant_ids=False)
    yield unsorted_segment_case(op, "all negative", [-1] * 7, (7, 5), 3)
    yield unsorted_segment_case(op, "one segment", [0] * 7, (7, 5), 1)
    yield unsorted_segment_case(op, "one row", [2], (1, 5), 3, constant_ids=False)
    operands = [tensor(7, 5), constant(ids), constant([6])]
    yield in_isolation(op, "number of segments of rank 1", operands, tensor(6, 5))
    full_range = {"x0": random_array(7, 5, dtype="int32", seed=op, low=-(2**31), high=2**31 - 1)}
    yield unsorted_segment_case(op, "int32 that wraps", ids, (7, 5), 6, "int32", input_arrays=full_range)
    if op in EXTREMES:
        nan_arrays = {"x0": np.array([[np.nan, 1], [2, np.nan], [np.nan, -np.inf], [np.nan, np.inf]], np.float32)}
        yield unsorted_segment_case(op, "NaN, which is skipped", [0, 0, 1, 2], (4, 2), 3, input_arrays=nan_arrays)
    bounds_check = "max_index < num_segments_"
    yield unsorted_segment_case(op, "id out of bounds", ids, (7, 5), 5, kernel_refusal=bounds_check)
