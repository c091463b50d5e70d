"""Reductions of bool, ARG_MIN and ARG_MAX, CUMSUM."""

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
    for keep in (True, False):
        for over in ([0], [3], [1, 2], [-1, 1], [1, 1, -3], [0, 1, 2, 3], []):
            yield logic_case(op, f"axes {over}", over, keep)
        yield logic_case(op, "every opset", [1, 2], keep, opsets=EVERY_OPSET)
        yield logic_case(op, "a scalar axis", 2, keep)
        yield logic_case(op, "no elements", [1], keep, (2, 0, 3))
        yield logic_case(op, "no results", [1], keep, (0, 5, 3))
        yield logic_case(op, "a scalar", [], keep, ())
        yield logic_case(op, "an axis of one element", [1], keep, (2, 1, 3))
        yield logic_case(op, "axes of one element and of several", [1, 2], keep, (2, 1, 3))
    given = {"axes": np.array([1, -1], np.int32)}
    operands, options = [tensor(*IMAGE, dtype="bool"), tensor(2, dtype="int32", name="axes")], {"keep_dims": True}
    yield in_isolation(
        op, "axes known at runtime", operands, tensor(2, 1, 7, 1, dtype="bool"), options=options, input_arrays=given
    )


def logic_case(op: str, name: str, over: Any, keep: bool, shape: Sequence[int] = IMAGE, **case: Any) -> Case:
    """Return a case whose results include both True and False."""
    rare = random_array(*shape, dtype="int32", low=0, high=9, seed=op) == 0
    given = {"x0": rare if op == "REDUCE_ANY" else ~rare}
    y = tensor(*shape_after_reduction(shape, np.ravel(np.asarray(over, np.int32)).tolist(), keep), dtype="bool")
    operands = [tensor(*shape, dtype="bool"), constant(np.asarray(over, np.int32))]
    text = f"{name} {'kept' if keep else 'dropped'}"
    return in_isolation(op, text, operands, y, options={"keep_dims": keep}, **{"input_arrays": given, **case})


# --- places -----------------------------------------------------------------------------------


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
        yield arg_case("ARG_MIN", f"{dtype} to int64", 3, dtype, output="int64", opsets=EVERY_OPSET)
    yield arg_case("ARG_MIN", "bool", 3, "bool")
    yield arg_case("ARG_MIN", "one axis", 0, shape=(7,))
    yield arg_case("ARG_MIN", "an axis of one element", 1, shape=(2, 1, 3))
    for op in ("ARG_MIN", "ARG_MAX"):
        yield arg_case(op, "no results", 1, shape=(0, 5, 3))
        yield arg_case(op, "uint8 without results", -1, "uint8", shape=(5, 0, 2))
    ties = np.array([[2, 1, 7, 1], [0, 0, 0, 0], [9, -1, -5, -5]], np.float32)
    yield arg_case("ARG_MIN", "first of equal values", 1, shape=(3, 4), input_arrays={"x0": ties})
    nan = np.array([[np.nan, 1, 2], [1, np.nan, 0]], np.float32)
    nan_known = "ONNX does not define the result for NaN, and ONNX Runtime returns the first NaN"
    yield arg_case("ARG_MIN", "not a number", 1, shape=(2, 3), input_arrays={"x0": nan}, known_failure=nan_known)
    for kind in (np.array(1), np.array([1])):
        operands, options = [tensor(*IMAGE), constant(kind)], {"output_type": "INT32"}
        yield in_isolation(
            "ARG_MIN", f"an int64 axis {kind}", operands, tensor(2, 7, 3, dtype="int32"), options=options
        )


def runtime_axis_cases(op: str) -> Iterator[Case]:
    for axis in (0, 1, -1):
        y = tensor(None, None, None, dtype="int32")
        options, operands = {"output_type": "INT32"}, [tensor(*IMAGE), tensor(dtype="int32", name="axis")]
        yield in_isolation(
            op, f"axis {axis} known at runtime", operands, y, options=options, input_arrays=int32_arrays(axis=axis)
        )
    operands = [tensor(*IMAGE, dtype="int8"), tensor(1, dtype="int64", name="axis")]
    y, given = tensor(None, None, None, dtype="int64"), {"axis": np.array([2])}
    options = {"output_type": "INT64"}
    yield in_isolation(op, "int8, an int64 axis known at runtime", operands, y, options=options, input_arrays=given)


# --- running sums -----------------------------------------------------------------------------


def cumsum_cases() -> Iterator[Case]:
    for axis in (0, 1, 2, 3, -1, -3):
        for exclusive in (False, True):
            for reverse in (False, True):
                yield cumsum_case(f"axis {axis}", axis, exclusive, reverse)
    for dtype in ("float32", "int32", "int64"):
        yield cumsum_case(f"{dtype} every opset", 1, False, True, dtype, opsets=EVERY_OPSET)
        yield cumsum_case(f"{dtype} of one axis", 0, True, False, dtype, shape=(7,))
        yield cumsum_case(f"{dtype} of one element", 1, False, False, dtype, shape=(2, 1, 3))
        yield cumsum_case(f"{dtype}, empty", 1, False, False, dtype, shape=(2, 0, 3))
    edge: Array = np.array([2**31 - 1, 1, 5, -(2**31)], np.int32)
    yield cumsum_case("int32 that wraps around", 0, False, False, "int32", shape=(4,), input_arrays={"x0": edge})
    for axis in (0, 1, 3, -2):
        yield cumsum_case(f"axis {axis}", axis, False, True, place=between_convolutions)
    for name, value in (("a list", [1]), ("negative", -3)):
        yield in_isolation("CUMSUM", f"axis known at runtime, {name}", [tensor(*IMAGE), tensor(
            *np.shape(value), dtype="int32", name="axis")], tensor(*IMAGE), input_arrays=int32_arrays(axis=value))  # fmt: skip
    yield in_isolation("CUMSUM", "axis of rank 1", [tensor(*IMAGE), constant([1])], tensor(*IMAGE))
    given = [{"x0": random_array(n, 3)} for n in (1, 5)]
    yield in_isolation(
        "CUMSUM", "dynamic batch", [tensor(None, 3), constant(0)], tensor(None, 3), input_arrays=given, runs=2
    )


def cumsum_case(
    name: str,
    axis: int,
    exclusive: bool,
    reverse: bool,
    dtype: str = "float32",
    place: Placement = in_isolation,
    shape: Sequence[int] = IMAGE,
    **case: Any,
) -> Case:
    x, options = tensor(*shape, dtype=dtype), {"exclusive": exclusive, "reverse": reverse}
    text = f"{name}{' exclusive' if exclusive else ''}{' reverse' if reverse else ''}"
    return place("CUMSUM", text, [x, constant(axis)], tensor(*shape, dtype=dtype), options=options, **case)
