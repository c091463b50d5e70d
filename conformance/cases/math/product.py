"""REDUCE_PROD: axes, integers that wrap, quantized values.

Quantized values are rounded after each product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.reduction import shape_after_reduction
from conformance.models import PLACEMENTS, Placement, constant, in_isolation, random_array, tensor
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
# For each case, the axes in each run.
AXES_OF_RUNS: list[list[list[int]]] = [[[1, -1], [3, -2], [0, 2]], [[1], [2], [-4]], [[0, 1, 2, 3]], [[-1, 3, 0]], [[]]]
PARAMETERS: dict[str, tuple[float, int]] = {"int8": (0.047, -5), "int16": (0.0003, 0)}


def cases() -> Iterator[Case]:
    for keep_dims in (True, False):
        for axes in ([0], [3], [1, 2], [-1, 1], [1, 1, -3], [0, 1, 2, 3], []):
            for place in PLACEMENTS:
                yield product_case(f"axes {axes}", axes, keep_dims, place=place)
        for dtype in ("int32", "int64", "int8", "int16", "uint8", "bool"):
            yield product_case(f"{dtype}, which wraps around", [1, 2], keep_dims, dtype, scale=0)
            yield product_case(f"{dtype} of no elements", [1], keep_dims, dtype, scale=0, shape=(2, 0, 3))
        yield product_case("no elements", [1], keep_dims, shape=(2, 0, 3))
        yield product_case("no results", [1], keep_dims, shape=(0, 5, 3))
        yield product_case("a scalar", [], keep_dims, shape=())
        for dtype in PARAMETERS:
            yield from quantized_cases(dtype, keep_dims)
    yield product_case("every opset", [1, 2], True, opsets=EVERY_OPSET)
    yield product_case("a scalar axis", 2, True)
    runtime_axes = {"axes": np.array([1, -1], np.int32)}
    axes_operand, options = tensor(2, dtype="int32", name="axes"), {"keep_dims": True}
    for dtype in ("float32", "int32", "int64", "bool"):
        operands, y = [tensor(*IMAGE, dtype=dtype), axes_operand], tensor(2, 1, 7, 1, dtype=dtype)
        yield in_isolation(
            "REDUCE_PROD", f"{dtype}, axes known at runtime", operands, y, options=options, input_arrays=runtime_axes
        )
    for dtype in ("int32", "int64"):
        arrays = [
            {"x0": nonzero_values(dtype, *IMAGE), "axes": np.array(axes, np.int32)}
            for axes in ([1, -1], [3, -2], [0, 2])
        ]
        operands, y = [tensor(*IMAGE, dtype=dtype), axes_operand], tensor(None, None, dtype=dtype)
        name = f"{dtype}, axes known at runtime and dropped"
        yield in_isolation(
            "REDUCE_PROD", name, operands, y, options={"keep_dims": False}, input_arrays=arrays, opsets=(None, 13)
        )
    for dtype in PARAMETERS:
        yield from runtime_axes_cases(dtype)
    repeated_axis = [{"axes": np.array([1, -3], np.int32)}]
    operands, y = [tensor(*IMAGE, dtype="int32"), axes_operand], tensor(None, None, None, dtype="int32")
    yield in_isolation(
        "REDUCE_PROD",
        "repeated axis known at runtime",
        operands,
        y,
        options={"keep_dims": False},
        input_arrays=repeated_axis,
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
    axes: Any,
    keep_dims: bool,
    dtype: str = "float32",
    place: Placement = in_isolation,
    *,
    shape: Sequence[int] = IMAGE,
    scale: float | None = None,
    **case_fields: Any,
) -> Case:
    """Return a product over constant axes.

    Integers have values whose product is never 0.
    """
    x = tensor(*shape, dtype=dtype, scale=scale)
    if dtype in ("int32", "int64", "int8", "int16", "uint8") and scale == 0 and 0 not in shape:
        case_fields = {"input_arrays": {"x0": nonzero_values(dtype, *shape)}, **case_fields}
    y = x.with_shape(*shape_after_reduction(shape, np.ravel(np.asarray(axes, np.int32)).tolist(), keep_dims))
    operands = [x, constant(np.asarray(axes, np.int32))]
    full_name = f"{name} {'kept' if keep_dims else 'dropped'}"
    return place("REDUCE_PROD", full_name, operands, y, options={"keep_dims": keep_dims}, **case_fields)


def nonzero_values(dtype: str, *shape: int) -> Array:
    """Return numbers from the whole range of the dtype whose product is never 0."""
    limits = np.iinfo(dtype)
    numbers = np.random.default_rng(7).integers(limits.min, limits.max, shape, dtype)
    return np.asarray(numbers | np.asarray(1, dtype))


def quantized_cases(dtype: str, keep_dims: bool) -> Iterator[Case]:
    """Yield cases of factors around 1, so that products stay in the dtype's range."""
    for axes, shape in (
        ([1], (5, 3)),
        ([0], (5, 3)),
        ([0, 2], (2, 5, 3)),
        ([0, 1], (2, 7)),
        ([1, 2], IMAGE),
        ([], (5, 3)),
    ):
        for factor in (1.0, 0.37, 4.1):
            if axes or factor == 1:
                yield quantized_product_case(
                    f"{dtype} axes {axes} of {list(shape)} at {factor:g}",
                    dtype,
                    axes,
                    keep_dims,
                    shape,
                    factor,
                )
    yield quantized_product_case(f"{dtype} of one element", dtype, [1], keep_dims, (5, 1, 3), 2.3)
    yield quantized_product_case(f"{dtype} at its own scale, one element", dtype, [1], keep_dims, (5, 1, 3), 1.0)
    yield quantized_product_case(f"{dtype} that saturates", dtype, [1], keep_dims, (5, 3), 0.01)


def runtime_axes_cases(dtype: str) -> Iterator[Case]:
    """Yield cases with runtime axes.

    The kernel's multiplier depends on the number of factors, and a single factor is copied.
    """
    scale, zero_point = PARAMETERS[dtype]
    shape = (2, 5, 1, 3)
    x = tensor(*shape, dtype=dtype, scale=scale, zero_point=zero_point)
    limits = np.iinfo(dtype)
    values: Array = random_array(*shape, low=-1.6, high=1.6, seed=dtype) / np.float32(scale) + np.float32(zero_point)
    numbers = np.clip(values, limits.min, limits.max).astype(dtype)
    for keep_dims in (True, False):
        for axes_of_runs in AXES_OF_RUNS:
            arrays = [{"x0": numbers, "axes": np.array(axes, np.int32)} for axes in axes_of_runs]
            axes_operand = tensor(len(axes_of_runs[0]), dtype="int32", name="axes")
            for factor in (1.0, 0.37, 4.1):
                y = x.with_shape(*[None] * len(shape_after_reduction(shape, axes_of_runs[0], keep_dims)))
                y = y.rescale(factor, zero_point + (0 if dtype == "int16" or factor == 1 else 9))
                name = (
                    f"{dtype}, axes {axes_of_runs} known at runtime at {factor:g} {'kept' if keep_dims else 'dropped'}"
                )
                options = {"keep_dims": keep_dims}
                yield in_isolation(
                    "REDUCE_PROD", name, [x, axes_operand], y, options=options, input_arrays=arrays, runs=len(arrays)
                )
    if dtype == "int8":
        axes_operand, options = tensor(1, dtype="int32", name="axes"), {"keep_dims": True}
        empty, y = x.with_shape(2, 0, 3), x.with_shape(None, None, None)
        runtime_axes = {"axes": np.array([0], np.int32)}
        name = "int8 of no elements, axes known at runtime"
        refusal = "must be static and above 0"
        yield in_isolation(
            "REDUCE_PROD", name, [empty, axes_operand], y, options=options, input_arrays=runtime_axes, refusal=refusal
        )


def quantized_product_case(
    name: str, dtype: str, axes: Sequence[int], keep_dims: bool, shape: Sequence[int], factor: float, **case_fields: Any
) -> Case:
    """Return a product of values around 1; ``factor``: output scale over input scale."""
    scale, zero_point = PARAMETERS[dtype]
    x = tensor(*shape, dtype=dtype, scale=scale, zero_point=zero_point)
    y = x.with_shape(*shape_after_reduction(shape, axes, keep_dims)).rescale(
        factor, zero_point + (0 if dtype == "int16" or factor == 1 else 9)
    )
    values: Array = random_array(*shape, low=-1.6, high=1.6, seed=name) / np.float32(scale) + np.float32(zero_point)
    limits = np.iinfo(dtype)
    arrays = {"x0": np.clip(values, limits.min, limits.max).astype(dtype)}
    operands, options = [x, constant(np.asarray(axes, np.int32))], {"keep_dims": keep_dims}
    full_name = f"{name} {'kept' if keep_dims else 'dropped'}"
    return in_isolation(
        "REDUCE_PROD", full_name, operands, y, options=options, **{"input_arrays": arrays, **case_fields}
    )
