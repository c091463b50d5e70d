"""REDUCE_ANY, REDUCE_ALL, ARG_MIN, ARG_MAX with runtime axes, and CUMSUM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.reduction import arg_case, shape_after_reduction
from conformance.models import (
    PLACEMENTS,
    Placement,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    random_array,
    tensor,
)
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        yield from logic_cases(op)
    yield from arg_min_cases()
    for op in ("ARG_MIN", "ARG_MAX"):
        yield from runtime_axis_cases(op)
    yield from cumsum_cases()


# --- bool -------------------------------------------------------------------------------------


def logic_cases(op: str) -> Iterator[Case]:
    for keep_dims in (True, False):
        for axes in ([0], [3], [1, 2], [-1, 1], [1, 1, -3], [0, 1, 2, 3], []):
            yield logic_case(op, f"axes {axes}", axes, keep_dims)
        yield logic_case(op, "every opset", [1, 2], keep_dims, opsets=EVERY_OPSET)
        yield logic_case(op, "a scalar axis", 2, keep_dims)
        yield logic_case(op, "no elements", [1], keep_dims, (2, 0, 3))
        yield logic_case(op, "no results", [1], keep_dims, (0, 5, 3))
        yield logic_case(op, "a scalar", [], keep_dims, ())
        yield logic_case(op, "an axis of one element", [1], keep_dims, (2, 1, 3))
        yield logic_case(op, "axes of one element and of several", [1, 2], keep_dims, (2, 1, 3))
    arrays = {"axes": np.array([1, -1], np.int32)}
    operands, options = [tensor(*IMAGE, dtype="bool"), tensor(2, dtype="int32", name="axes")], {"keep_dims": True}
    yield in_isolation(
        op, "axes known at runtime", operands, tensor(2, 1, 7, 1, dtype="bool"), options=options, input_arrays=arrays
    )


def logic_case(
    op: str, name: str, axes: Any, keep_dims: bool, shape: Sequence[int] = IMAGE, **case_fields: Any
) -> Case:
    """Return a case whose results include both True and False."""
    mostly_false = random_array(*shape, dtype="int32", low=0, high=9, seed=op) == 0
    arrays = {"x0": mostly_false if op == "REDUCE_ANY" else ~mostly_false}
    y = tensor(*shape_after_reduction(shape, np.ravel(np.asarray(axes, np.int32)).tolist(), keep_dims), dtype="bool")
    operands = [tensor(*shape, dtype="bool"), constant(np.asarray(axes, np.int32))]
    full_name = f"{name} {'kept' if keep_dims else 'dropped'}"
    return in_isolation(
        op, full_name, operands, y, options={"keep_dims": keep_dims}, **{"input_arrays": arrays, **case_fields}
    )


# --- positions of extremes --------------------------------------------------------------------


def arg_min_cases() -> Iterator[Case]:
    for axis in (0, 1, 2, 3, -1, -2):
        for place in PLACEMENTS:
            yield arg_case("ARG_MIN", f"axis {axis}", axis, place=place)
    for dtype in ("int8", "uint8", "int32"):
        for axis in (1, 3):
            yield arg_case("ARG_MIN", f"{dtype} axis {axis}", axis, dtype)
        if dtype != "int32":
            yield arg_case("ARG_MIN", f"{dtype} axis -1", -1, dtype, between_convolutions)
    for dtype in ("float32", "int8", "bool"):
        yield arg_case("ARG_MIN", f"{dtype} to int64", 3, dtype, output_dtype="int64", opsets=EVERY_OPSET)
    yield arg_case("ARG_MIN", "bool", 3, "bool")
    yield arg_case("ARG_MIN", "rank 1", 0, shape=(7,))
    yield arg_case("ARG_MIN", "an axis of one element", 1, shape=(2, 1, 3))
    for op in ("ARG_MIN", "ARG_MAX"):
        yield arg_case(op, "no results", 1, shape=(0, 5, 3))
        yield arg_case(op, "uint8 without results", -1, "uint8", shape=(5, 0, 2))
    ties = np.array([[2, 1, 7, 1], [0, 0, 0, 0], [9, -1, -5, -5]], np.float32)
    yield arg_case("ARG_MIN", "first of equal values", 1, shape=(3, 4), input_arrays={"x0": ties})
    nan = np.array([[np.nan, 1, 2], [1, np.nan, 0]], np.float32)
    reason = "ONNX does not define the result for NaN, and ONNX Runtime returns the first NaN"
    yield arg_case("ARG_MIN", "NaN", 1, shape=(2, 3), input_arrays={"x0": nan}, known_failure=reason)
    for axis_array in (np.array(1), np.array([1])):
        operands, options = [tensor(*IMAGE), constant(axis_array)], {"output_type": "INT32"}
        yield in_isolation(
            "ARG_MIN", f"an int64 axis {axis_array}", operands, tensor(2, 7, 3, dtype="int32"), options=options
        )


def runtime_axis_cases(op: str) -> Iterator[Case]:
    for axis in (0, 1, -1):
        y = tensor(None, None, None, dtype="int32")
        options, operands = {"output_type": "INT32"}, [tensor(*IMAGE), tensor(dtype="int32", name="axis")]
        yield in_isolation(
            op, f"axis {axis} known at runtime", operands, y, options=options, input_arrays=int32_arrays(axis=axis)
        )
    operands = [tensor(*IMAGE, dtype="int8"), tensor(1, dtype="int64", name="axis")]
    y, arrays = tensor(None, None, None, dtype="int64"), {"axis": np.array([2])}
    options = {"output_type": "INT64"}
    yield in_isolation(op, "int8, an int64 axis known at runtime", operands, y, options=options, input_arrays=arrays)


# --- running sums -----------------------------------------------------------------------------


def cumsum_cases() -> Iterator[Case]:
    """Yield cases of running sums along every axis, exclusive and in reverse."""
    for axis in (0, 1, 2, 3, -1, -3):
        for exclusive in (False, True):
            for reverse in (False, True):
                yield cumsum_case(f"axis {axis}", axis, exclusive, reverse)
    for dtype in ("float32", "int32", "int64"):
        yield cumsum_case(f"{dtype} every opset", 1, False, True, dtype, opsets=EVERY_OPSET)
        yield cumsum_case(f"{dtype} of rank 1", 0, True, False, dtype, shape=(7,))
        yield cumsum_case(f"{dtype} of one element", 1, False, False, dtype, shape=(2, 1, 3))
        yield cumsum_case(f"{dtype}, empty", 1, False, False, dtype, shape=(2, 0, 3))
    wrapping: Array = np.array([2**31 - 1, 1, 5, -(2**31)], np.int32)
    yield cumsum_case("int32 that wraps around", 0, False, False, "int32", shape=(4,), input_arrays={"x0": wrapping})
    for axis in (0, 1, 3, -2):
        yield cumsum_case(f"axis {axis}", axis, False, True, place=between_convolutions)
    for name, value in (("a list", [1]), ("negative", -3)):
        yield in_isolation("CUMSUM", f"axis known at runtime, {name}", [tensor(*IMAGE), tensor(
            *np.shape(value), dtype="int32", name="axis")], tensor(*IMAGE), input_arrays=int32_arrays(axis=value))  # fmt: skip
    yield in_isolation("CUMSUM", "an axis of rank 1", [tensor(*IMAGE), constant([1])], tensor(*IMAGE))
    arrays = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield in_isolation(
        "CUMSUM", "dynamic batch", [tensor(None, 3), constant(0)], tensor(None, 3), input_arrays=arrays, runs=2
    )


def cumsum_case(
    name: str,
    axis: int,
    exclusive: bool,
    reverse: bool,
    dtype: str = "float32",
    place: Placement = in_isolation,
    shape: Sequence[int] = IMAGE,
    **case_fields: Any,
) -> Case:
    x, options = tensor(*shape, dtype=dtype), {"exclusive": exclusive, "reverse": reverse}
    full_name = f"{name}{' exclusive' if exclusive else ''}{' reverse' if reverse else ''}"
    return place("CUMSUM", full_name, [x, constant(axis)], tensor(*shape, dtype=dtype), options=options, **case_fields)
