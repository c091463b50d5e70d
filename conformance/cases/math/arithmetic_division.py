"""DIV, FLOOR_DIV and FLOOR_MOD: rounding, signs, divisors close to zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Spec,
    between_convolutions,
    binary,
    constant,
    opsets,
    random_array,
    tensor,
)
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")
DIVISOR_SHAPES = ((), (3,), (7, 1), (5, 1, 3))
DIVISOR = constant(random_array(*IMAGE, low=0.3, high=2.0))


def cases() -> Iterator[Case]:
    yield from division_cases()
    yield from quotient_cases()
    yield from floor_division_cases()


def division_cases() -> Iterator[Case]:
    """Yield cases of DIV on floats and on int32, which is truncated toward zero."""
    positive: dict[str, Any] = {"input_range": (0.5, 3.0)}
    for place in PLACEMENTS:
        yield binary(
            "DIV", "float32", tensor(*IMAGE), tensor(*IMAGE), place=place, opsets=opsets(place=place), **positive
        )
        for activation in CLAMPS:
            options = {"fused_activation_function": activation}
            yield binary("DIV", f"float32 with {activation}", tensor(*IMAGE), DIVISOR, place=place, options=options)
    for activation in ("TANH", "SIGN_BIT"):
        name, options = (
            f"float32 with {activation}, which the kernel ignores",
            {"fused_activation_function": activation},
        )
        yield binary("DIV", name, tensor(*IMAGE), DIVISOR, options=options)
    for shape in ((3,), (7, 1), (5, 1, 3), ()):
        operand = constant(random_array(*shape, low=0.3, high=2.0))
        yield binary("DIV", f"float32 by a constant {shape}", tensor(*IMAGE), operand, place=between_convolutions)
        yield binary(
            "DIV", f"a constant {shape} by float32", operand, tensor(*IMAGE), place=between_convolutions, **positive
        )
    arrays = {"x0": np.array([1, -1, 0, 2, np.inf], np.float32), "x1": np.array([0, 0, 0, -0.0, np.inf], np.float32)}
    yield binary("DIV", "float32 by zero", tensor(5), tensor(5), input_arrays=arrays)
    arrays = {"x0": np.array([7, -7, 7, -7, 0, 46341], np.int32), "x1": np.array([2, 2, -2, -2, -3, 1], np.int32)}
    yield binary(
        "DIV", "int32", tensor(6, dtype="int32"), tensor(6, dtype="int32"), input_arrays=arrays, opsets=EVERY_OPSET
    )
    divisor = constant(np.array([[3], [-4], [7], [1], [2], [-9], [5]], np.int32))
    options = {"fused_activation_function": "RELU6"}
    yield binary("DIV", "int32 by a constant, with RELU6", tensor(*IMAGE, dtype="int32"), divisor, options=options)


def quotient_cases() -> Iterator[Case]:
    """Yield cases of quantized DIV.

    Operands are not close to 0, because the kernel is inaccurate for quotients below one step.
    """
    parameters = {"int8": (0.021, -5, 0.09), "uint8": (0.021, 12, 0.09), "int16": (1e-4, 0, 8e-4)}
    for dtype, (divisor_scale, divisor_zero_point, result_scale) in parameters.items():
        x = tensor(*IMAGE, dtype=dtype)
        y = tensor(*IMAGE, dtype=dtype, scale=divisor_scale, zero_point=divisor_zero_point)
        z = tensor(*IMAGE, dtype=dtype, scale=result_scale)
        divisor = replace(y.with_shape(7, 3), value=away_from_zero_point(y.with_shape(7, 3)))
        for place in PLACEMENTS:
            graph_input = x.with_shape(2, 5, 7, 5) if place is between_convolutions else x
            arrays = {"x0": away_from_zero_point(graph_input)}
            yield binary(
                "DIV", f"{dtype} by a constant", x, divisor, z, place, input_arrays=arrays, opsets=opsets(dtype, place)
            )
        arrays = {"x0": away_from_zero_point(x), "x1": away_from_zero_point(y)}
        yield binary("DIV", dtype, x, y, z, input_arrays=arrays, opsets=opsets(dtype))
        yield binary("DIV", f"{dtype} out of range", x, y, z.rescale(0.01), input_arrays=arrays)
        for activation in CLAMPS:
            options = {"fused_activation_function": activation}
            yield binary(
                "DIV", f"{dtype} with {activation}", x, y, z.rescale(0.3), options=options, input_arrays=arrays
            )
        for activation in ("TANH", "SIGN_BIT"):
            name, options = (
                f"{dtype} with {activation}, which the kernel ignores",
                {"fused_activation_function": activation},
            )
            yield binary("DIV", name, x, y, z, options=options, input_arrays=arrays)
    x = tensor(3, dtype="int8", scale=0.05, zero_point=0)
    arrays = {"x0": np.array([1, -1, 2], np.int8), "x1": np.array([120, 121, 122], np.int8)}
    reason = "the kernel shifts quotients below about 0.3 steps by more than 31 bits (reference/div.h)"
    yield binary("DIV", "int8 quotients near 0", x, x, x.rescale(2.0), input_arrays=arrays, known_failure=reason)


def away_from_zero_point(x: Spec) -> Array:
    """Return random values at least 20 steps from the zero point (2000 for int16)."""
    shape, zero_point = tuple(size or 1 for size in x.shape), int(np.asarray(x.zero_point))
    values = random_array(*shape, dtype=x.dtype, seed="away").astype(np.int32)
    is_close = np.abs(values - zero_point) < (2000 if x.dtype == "int16" else 20)
    return np.where(is_close, values + (4000 if x.dtype == "int16" else 40), values).astype(x.dtype)


def floor_division_cases() -> Iterator[Case]:
    """Yield cases of FLOOR_DIV and FLOOR_MOD.

    Results of FLOOR_MOD have the sign of the divisor. The kernels refuse division by 0.
    """
    dtypes_by_op = {"FLOOR_DIV": ["float32", "int32", "int16", "int8"]}
    dtypes_by_op["FLOOR_MOD"] = [*dtypes_by_op["FLOOR_DIV"], "int64"]
    for op, dtypes in dtypes_by_op.items():
        for dtype in dtypes:
            x, tested_opsets = unscaled_image(dtype), (None, 26) if dtype == "int16" else EVERY_OPSET
            arrays = {"x1": nonzero_divisors(IMAGE, dtype)}
            yield binary(op, dtype, x, x, opsets=tested_opsets, input_arrays=arrays)
            for shape in DIVISOR_SHAPES:
                yield binary(op, f"{dtype} by a constant {list(shape)}", x, constant(nonzero_divisors(shape, dtype)))
            arrays = signed_operands(dtype)
            size = len(arrays["x0"])
            pair = tensor(size, dtype=dtype, scale=0)
            yield binary(op, f"{dtype}, every sign", pair, pair, input_arrays=arrays, opsets=tested_opsets)
            scalars = {"x0": np.array(-7, dtype), "x1": np.array(2, dtype)}
            scalar = tensor(dtype=dtype, scale=0)
            yield binary(op, f"{dtype} scalars", scalar, scalar, input_arrays=scalars)
            empty = tensor(0, 3, dtype=dtype, scale=0)
            yield binary(op, f"{dtype}, empty", empty, constant(nonzero_divisors((3,), dtype)))
        yield binary(
            op, "float32", tensor(*IMAGE), constant(nonzero_divisors((3,), "float32")), place=between_convolutions
        )
        for dtype in ("int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            y = Spec((3,), dtype, 0.3, 0, value=nonzero_divisors((3,), dtype))
            yield binary(op, f"{dtype} with scales, which the kernel ignores", x, y, place=between_convolutions)
    arrays = {
        "x0": np.array([2**31 - 1, -(2**31), -(2**31), 2**31 - 1], np.int32),
        "x1": np.array([3, 7, 1, -2], np.int32),
    }
    pair = tensor(4, dtype="int32")
    for op in dtypes_by_op:
        yield binary(op, "int32 beyond float32", pair, pair, input_arrays=arrays)
    arrays = {"x0": np.array([6.0, 0.3, 1e20, 1.0], np.float32), "x1": np.array([0.1, 0.1, 3.0, 0.1], np.float32)}
    yield binary("FLOOR_DIV", "float32 quotients that need float64", tensor(4), tensor(4), input_arrays=arrays)
    values = [5.0, -5.0, np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0]
    grid = np.array(list(product(values, values)), np.float32).T
    yield binary("FLOOR_MOD", "float32 edges", tensor(81), tensor(81), input_arrays={"x0": grid[0], "x1": grid[1]})
    pairs = grid[:, grid[1] != 0]  # without division by 0
    size = pairs.shape[1]
    yield binary(
        "FLOOR_DIV", "float32 edges", tensor(size), tensor(size), input_arrays={"x0": pairs[0], "x1": pairs[1]}
    )
    arrays = {"x1": np.zeros(3, np.int32)}
    for op in dtypes_by_op:
        row = tensor(3, dtype="int32")
        yield binary(op, "int32 by zero", row, row, input_arrays=arrays, kernel_refusal="Division by 0")


def nonzero_divisors(shape: tuple[int, ...], dtype: str) -> Array:
    """Return divisors without 0, which the kernels refuse."""
    integers = random_array(*shape, dtype="int32", low=-9, high=9, seed="divisor")
    nonzero = np.where(integers == 0, 4, integers)
    return (nonzero / 4).astype(dtype) if "float" in dtype else nonzero.astype(dtype)


def unscaled_image(dtype: str, scale: float | None = 0) -> Spec:
    return tensor(*IMAGE, dtype=dtype, scale=scale)


def signed_operands(dtype: str) -> dict[str, Array]:
    """Return all pairs of some dividends and divisors of either sign."""
    dividends, divisors = (-7, -6, -1, 0, 1, 6, 7, 100), (-7, -4, -3, -1, 1, 2, 3, 7)
    grid = np.array(list(product(dividends, divisors))).T.astype(dtype)
    return {"x0": grid[0], "x1": grid[1]}
