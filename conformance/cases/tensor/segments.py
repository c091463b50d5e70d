"""Segment operators with sorted and unsorted ids: negative ids, empty segments, ids of several axes, integers that wrap."""

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
    name: str, ids: Sequence[int], shape: Sequence[int], dtype: str = "float32", fixed: bool = True, **case: Any
) -> Case:
    numbers = np.asarray(ids, np.int32)
    operand = constant(numbers) if fixed else tensor(len(ids), dtype="int32", name="ids")
    y = tensor(max(ids, default=-1) + 1 if fixed else None, *shape[1:], dtype=dtype)
    given = None if fixed else {"ids": numbers}
    return in_isolation(
        SUM, name, [tensor(*shape, dtype=dtype), operand], y, **{"dtype": dtype, "input_arrays": given, **case}
    )


def sorted_cases() -> Iterator[Case]:
    ids = [0, 0, 1, 2, 2, 2, 3]
    for dtype in ("float32", "int32"):
        for fixed in (True, False):
            text = f"{dtype}, {'constant' if fixed else 'runtime'} ids"
            yield segment_sum_case(text, ids, (7, 5), dtype, fixed, opsets=(None, 16, 21, 26))
            yield segment_sum_case(f"{text}, vector", ids, (7,), dtype, fixed)
            yield segment_sum_case(f"{text}, rank 4", ids, (7, 2, 3, 5), dtype, fixed)
    yield segment_sum_case("one row", [0], (1, 5))
    yield segment_sum_case("one segment", [0] * 7, (7, 5), fixed=False)
    yield segment_sum_case("empty rows", ids, (7, 0), fixed=False, kernel_refusal="Invalid tensor size")
    most = {"x0": np.full((7, 5), 2**30, np.int32)}
    yield segment_sum_case("int32 that wraps", ids, (7, 5), "int32", input_arrays=most)
    yield segment_sum_case("skipped id", [0, 2, 2], (3, 5), kernel_refusal="delta ==")


def unsorted_segment_case(
    op: str, name: str, ids: Any, shape: Sequence[int], count: int, dtype: str = "float32", fixed: bool = True,
    counted: bool = True, **case: Any,
) -> Case:  # fmt: skip
    """Return a case. ``fixed``: ids are constant; ``counted``: the number of segments is constant."""
    numbers = np.asarray(ids, np.int32)
    operands = [
        tensor(*shape, dtype=dtype),
        constant(numbers) if fixed else tensor(*numbers.shape, dtype="int32", name="ids"),
        constant(count) if counted else tensor(dtype="int32", name="count"),
    ]
    y = tensor(count if counted and fixed else None, *shape[numbers.ndim :], dtype=dtype)
    given = {**({} if fixed else {"ids": numbers}), **({} if counted else {"count": np.asarray(count, np.int32)})}
    return in_isolation(
        op,
        name,
        operands,
        y,
        **{"dtype": dtype, **case, "input_arrays": {**given, **case.pop("input_arrays", {})} or None},
    )


def unsorted_cases(op: str) -> Iterator[Case]:
    ids = [3, 0, 3, 1, 0, 0, 5]
    some = [3, -1, 3, 1, -7, 0, 5]
    first = 18 if op in EXTREMES else 16
    for dtype in ("float32", "int32"):
        for fixed in (True, False):
            text = f"{dtype}, {'constant' if fixed else 'runtime'} ids"
            yield unsorted_segment_case(op, text, ids, (7, 5), 6, dtype, fixed, opsets=(None, first, 21, 26))
            yield unsorted_segment_case(op, f"{text}, some negative", some, (7, 5), 7, dtype, fixed)
            yield unsorted_segment_case(
                op, f"{text} of rank 2", np.reshape(some[:6], (2, 3)), (2, 3, 5), 7, dtype, fixed
            )
        yield unsorted_segment_case(
            op, f"{dtype}, number of segments at runtime", ids, (7, 5), 11, dtype, counted=False
        )
        yield unsorted_segment_case(op, f"{dtype}, ids and number at runtime", some, (7, 5), 6, dtype, False, False)
    yield unsorted_segment_case(op, "ids of full rank", np.reshape(some[:6], (2, 3)), (2, 3), 7)
    yield unsorted_segment_case(op, "vector", some, (7,), 6, fixed=False)
    yield unsorted_segment_case(op, "all negative", [-1] * 7, (7, 5), 3)
    yield unsorted_segment_case(op, "one segment", [0] * 7, (7, 5), 1)
    yield unsorted_segment_case(op, "one row", [2], (1, 5), 3, fixed=False)
    operands = [tensor(7, 5), constant(ids), constant([6])]
    yield in_isolation(op, "number of rank 1", operands, tensor(6, 5))
    wide = {"x0": random_array(7, 5, dtype="int32", seed=op, low=-(2**31), high=2**31 - 1)}
    yield unsorted_segment_case(op, "int32 that wraps", ids, (7, 5), 6, "int32", input_arrays=wide)
    if op in EXTREMES:
        odd = {"x0": np.array([[np.nan, 1], [2, np.nan], [np.nan, -np.inf], [np.nan, np.inf]], np.float32)}
        yield unsorted_segment_case(op, "NaN, which is skipped", [0, 0, 1, 2], (4, 2), 3, input_arrays=odd)
    outside = "max_index < num_segments_"
    yield unsorted_segment_case(op, "id out of bounds", ids, (7, 5), 5, kernel_refusal=outside)
