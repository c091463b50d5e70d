"""REDUCE_PROD: axes, integers that wrap, and quantized values that are rounded after each product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.reduction import shape_after_reduction
from conformance.models import PLACEMENTS, Placement, constant, in_isolation, random_array, tensor
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
SETS: list[list[list[int]]] = [[[1, -1], [3, -2], [0, 2]], [[1], [2], [-4]], [[0, 1, 2, 3]], [[-1, 3, 0]], [[]]]
PARAMETERS: dict[str, tuple[float, int]] = {"int8": (0.047, -5), "int16": (0.0003, 0)}


def cases() -> Iterator[Case]:
    for keep in (True, False):
        for over in ([0], [3], [1, 2], [-1, 1], [1, 1, -3], [0, 1, 2, 3], []):
            for place in PLACEMENTS:
                yield product_case(f"axes {over}", over, keep, place=place)
        for dtype in ("int32", "int64", "int8", "int16", "uint8", "bool"):
            yield product_case(f"{dtype}, which wraps around", [1, 2], keep, dtype, scale=0)
            yield product_case(f"{dtype} of no elements", [1], keep, dtype, scale=0, shape=(2, 0, 3))
        yield product_case("no elements", [1], keep, shape=(2, 0, 3))
        yield product_case("no results", [1], keep, shape=(0, 5, 3))
        yield product_case("a scalar", [], keep, shape=())
        for dtype in PARAMETERS:
            yield from quantized_cases(dtype, keep)
    yield product_case("every opset", [1, 2], True, opsets=EVERY_OPSET)
    yield product_case("a scalar axis", 2, True)
    given = {"axes": np.array([1, -1], np.int32)}
    axes, options = tensor(2, dtype="int32", name="axes"), {"keep_dims": True}
    for dtype in ("float32", "int32", "int64", "bool"):
        operands, y = [tensor(*IMAGE, dtype=dtype), axes], tensor(2, 1, 7, 1, dtype=dtype)
        yield in_isolation(
            "REDUCE_PROD", f"{dtype}, axes known at runtime", operands, y, options=options, input_arrays=given
        )
    for dtype in ("int32", "int64"):
        arrays = [
            {"x0": nonzero_values(dtype, *IMAGE), "axes": np.array(over, np.int32)}
            for over in ([1, -1], [3, -2], [0, 2])
        ]
        operands, y = [tensor(*IMAGE, dtype=dtype), axes], tensor(None, None, dtype=dtype)
        name = f"{dtype}, axes known at runtime, dropped"
        yield in_isolation(
            "REDUCE_PROD", name, operands, y, options={"keep_dims": False}, input_arrays=arrays, opsets=(None, 13)
        )
    for dtype in PARAMETERS:
        yield from runtime_size_cases(dtype)
    twice = [{"axes": np.array([1, -3], np.int32)}]
    operands, y = [tensor(*IMAGE, dtype="int32"), axes], tensor(None, None, None, dtype="int32")
    yield in_isolation(
        "REDUCE_PROD",
        "repeated axis known at runtime",
        operands,
        y,
        options={"keep_dims": False},
        input_arrays=twice,
        runs=1,
    )
    for dtype in ("int32", "int64"):
        x, y = tensor(3, None, dtype=dtype), tensor(3, dtype=dtype)
        arrays = [{"x0": nonzero_values(dtype, 3, n)} for n in (1, 5)]
        yield in_isolation(
            "REDUCE_PROD", f"{dtype} of dynamic shape", [x, constant([1])], y, input_arrays=arrays, runs=2
        )
    x, y = tensor(3, 7, dtype="uint8"), tensor(3, dtype="uint8")
    operands = [x, constant([1])]
    yield in_isolation("REDUCE_PROD", "quantized uint8", operands, y, kernel_refusal="Unsupported quantized data type")


def product_case(
    name: str,
    over: Any,
    keep: bool,
    dtype: str = "float32",
    place: Placement = in_isolation,
    *,
    shape: Sequence[int] = IMAGE,
    scale: float | None = None,
    **case: Any,
) -> Case:
    x = tensor(*shape, dtype=dtype, scale=scale)
    if dtype in ("int32", "int64", "int8", "int16", "uint8") and scale == 0 and 0 not in shape:
        case = {"input_arrays": {"x0": nonzero_values(dtype, *shape)}, **case}
    y = x.with_shape(*shape_after_reduction(shape, np.ravel(np.asarray(over, np.int32)).tolist(), keep))
    operands = [x, constant(np.asarray(over, np.int32))]
    text = f"{name} {'kept' if keep else 'dropped'}"
    return place("REDUCE_PROD", text, operands, y, options={"keep_dims": keep}, **case)


def nonzero_values(dtype: str, *shape: int) -> Array:
    """Return numbers from the whole range of the dtype whose product is never 0."""
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(7).integers(limits.min, limits.max, shape, dtype)
    return np.asarray(numbers | np.asarray(1, dtype))


def quantized_cases(dtype: str, keep: bool) -> Iterator[Case]:
    """Yield numbers around 1, so that products neither vanish nor exceed the range."""
    for over, shape in (
        ([1], (5, 3)),
        ([0], (5, 3)),
        ([0, 2], (2, 5, 3)),
        ([0, 1], (2, 7)),
        ([1, 2], IMAGE),
        ([], (5, 3)),
    ):
        for factor in (1.0, 0.37, 4.1):
            if over or factor == 1:
                yield quantized_product_case(
                    f"{dtype} axes {over} of {list(shape)} at {factor:g}", dtype, over, keep, shape, factor
                )
    yield quantized_product_case(f"{dtype} of one element", dtype, [1], keep, (5, 1, 3), 2.3)
    yield quantized_product_case(f"{dtype} at its own scale, one element", dtype, [1], keep, (5, 1, 3), 1.0)
    yield quantized_product_case(f"{dtype} that saturates", dtype, [1], keep, (5, 3), 0.01)


def runtime_size_cases(dtype: str) -> Iterator[Case]:
    """Yield runtime sizes: the multiplier depends on the number of factors; a single factor is copied."""
    scale, point = PARAMETERS[dtype]
    shape = (2, 5, 1, 3)
    x = tensor(*shape, dtype=dtype, scale=scale, zero_point=point)
    limits = np.iinfo(dtype)
    near_one: Array = random_array(*shape, low=-1.6, high=1.6, seed=dtype) / np.float32(scale) + np.float32(point)
    numbers = np.clip(near_one, limits.min, limits.max).astype(dtype)
    for keep in (True, False):
        for sets in SETS:
            given = [{"x0": numbers, "axes": np.array(over, np.int32)} for over in sets]
            axes = tensor(len(sets[0]), dtype="int32", name="axes")
            for factor in (1.0, 0.37, 4.1):
                y = x.with_shape(*[None] * len(shape_after_reduction(shape, sets[0], keep)))
                y = y.rescale(factor, point + (0 if dtype == "int16" or factor == 1 else 9))
                name = f"{dtype}, axes {sets} known at runtime at {factor:g} {'kept' if keep else 'dropped'}"
                options = {"keep_dims": keep}
                yield in_isolation(
                    "REDUCE_PROD", name, [x, axes], y, options=options, input_arrays=given, runs=len(given)
                )
    if dtype == "int8":
        over, options = tensor(1, dtype="int32", name="axes"), {"keep_dims": True}
        empty, y = x.with_shape(2, 0, 3), x.with_shape(None, None, None)
        given_axes = {"axes": np.array([0], np.int32)}
        name = "int8 of no elements, axes known at runtime"
        refused = "must be static and above 0"
        yield in_isolation(
            "REDUCE_PROD", name, [empty, over], y, options=options, input_arrays=given_axes, refusal=refused
        )


def quantized_product_case(
    name: str, dtype: str, over: Sequence[int], keep: bool, shape: Sequence[int], factor: float, **case: Any
) -> Case:
    scale, point = PARAMETERS[dtype]
    x = tensor(*shape, dtype=dtype, scale=scale, zero_point=point)
    y = x.with_shape(*shape_after_reduction(shape, over, keep)).rescale(
        factor, point + (0 if dtype == "int16" or factor == 1 else 9)
    )
    near_one: Array = random_array(*shape, low=-1.6, high=1.6, seed=name) / np.float32(scale) + np.float32(point)
    limits = np.iinfo(dtype)
    given = {"x0": np.clip(near_one, limits.min, limits.max).astype(dtype)}
    operands, options = [x, constant(np.asarray(over, np.int32))], {"keep_dims": keep}
    text = f"{name} {'kept' if keep else 'dropped'}"
    return in_isolation("REDUCE_PROD", text, operands, y, options=options, **{"input_arrays": given, **case})
