"""Binary arithmetic: floor division and remainders, bits, angles, sums of many operands, integers without a scale."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Spec,
    between_convolutions,
    binary,
    constant,
    in_bfloat16,
    in_isolation,
    net,
    opsets,
    random_array,
    tensor,
)
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
DIVISORS = ((), (3,), (7, 1), (5, 1, 3))


def cases() -> Iterator[Case]:
    yield from floor_division_cases()
    yield from angle_cases()
    yield from shift_cases()
    yield from xor_cases()
    yield from add_n_cases()
    yield from unscaled_int16_cases()


def unscaled_int16_cases() -> Iterator[Case]:
    """Yield int16 without a scale, which wraps; SUB's kernel crashes on it, and others treat it as quantized."""
    for op in ("ADD", "MUL"):
        x = tensor(4, 3, dtype="int16", scale=0)
        yield binary(op, "int16 without scale", x, x)
        yield binary(op, "int16 without scale, broadcast", x, x.with_shape(3))
        for activation in ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            yield binary(op, f"int16 without scale with {activation}", x, x, options=options, opsets=(None, 13))
    for op, dtype in (("ADD", "int8"), ("SUB", "uint8"), ("MUL", "int8"), ("DIV", "int16")):
        x = tensor(4, 3, dtype=dtype, scale=0)
        refused = f"the {dtype} operand has no scale"
        yield in_isolation(op, f"{dtype} without scale", [x, x], x, refusal=refused)
    for op, dtype in (("ADD", "int32"), ("ADD", "int64"), ("SUB", "int32"), ("MUL", "int64"), ("DIV", "int32")):
        x = tensor(4, 3, dtype=dtype)
        for activation in ("TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            below = constant(nonzero_integers(dtype))
            yield binary(op, f"{dtype} with {activation}, which the kernel ignores", x, below, options=options)
    half = tensor(4, 3, dtype="float16")
    for op, refuses in (("SUB", "requires float|uint8|int32 types"), ("DIV", "Div only supports")):
        for activation in ("TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            both: dict[str, Any] = {"refusal": f"LiteRT refuses a fused {activation}", "kernel_refusal": refuses}
            yield in_isolation(op, f"float16 with {activation}", [half, half], half, options=options, **both)


def nonzero_integers(dtype: str) -> Array:
    """Return nonzero integers; DIV's kernel rejects division by 0."""
    return np.array([[-7, 3, 5], [2, -1, 9], [11, -4, 6], [1, 8, -2]], dtype)


def nonzero_divisors(shape: tuple[int, ...], dtype: str) -> Array:
    """Return divisors without 0, which the kernels refuse."""
    drawn_numbers = random_array(*shape, dtype="int32", low=-9, high=9, seed="divisor")
    whole = np.where(drawn_numbers == 0, 4, drawn_numbers)
    return (whole / 4).astype(dtype) if "float" in dtype else whole.astype(dtype)


def unscaled_image(dtype: str, scale: float | None = 0) -> Spec:
    return tensor(*IMAGE, dtype=dtype, scale=scale)


def floor_division_cases() -> Iterator[Case]:
    """Yield floor division; the remainder has the sign of the divisor."""
    dtypes = {"FLOOR_DIV": ["float32", "int32", "int16", "int8"]}
    dtypes["FLOOR_MOD"] = [*dtypes["FLOOR_DIV"], "int64"]
    for op, kinds in dtypes.items():
        for dtype in kinds:
            x, everything = unscaled_image(dtype), (None, 26) if dtype == "int16" else EVERY_OPSET
            given = {"x1": nonzero_divisors(IMAGE, dtype)}
            yield binary(op, dtype, x, x, opsets=everything, input_arrays=given)
            for shape in DIVISORS:
                yield binary(op, f"{dtype} by a constant {list(shape)}", x, constant(nonzero_divisors(shape, dtype)))
            signs = signed_operands(dtype)
            size = len(signs["x0"])
            pair = tensor(size, dtype=dtype, scale=0)
            yield binary(op, f"{dtype}, every sign", pair, pair, input_arrays=signs, opsets=everything)
            scalars = {"x0": np.array(-7, dtype), "x1": np.array(2, dtype)}
            scalar = tensor(dtype=dtype, scale=0)
            yield binary(op, f"{dtype} scalars", scalar, scalar, input_arrays=scalars)
            nothing = tensor(0, 3, dtype=dtype, scale=0)
            yield binary(op, f"{dtype}, empty", nothing, constant(nonzero_divisors((3,), dtype)))
        yield binary(
            op, "float32", tensor(*IMAGE), constant(nonzero_divisors((3,), "float32")), place=between_convolutions
        )
        for dtype in ("int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            y = Spec((3,), dtype, 0.3, 0, value=nonzero_divisors((3,), dtype))
            yield binary(op, f"{dtype} of scales, which the kernel ignores", x, y, place=between_convolutions)
    huge = {
        "x0": np.array([2**31 - 1, -(2**31), -(2**31), 2**31 - 1], np.int32),
        "x1": np.array([3, 7, 1, -2], np.int32),
    }
    pair = tensor(4, dtype="int32")
    for op in dtypes:
        yield binary(op, "int32 beyond float32", pair, pair, input_arrays=huge)
    exact = {"x0": np.array([6.0, 0.3, 1e20, 1.0], np.float32), "x1": np.array([0.1, 0.1, 3.0, 0.1], np.float32)}
    yield binary("FLOOR_DIV", "float32 in float64", tensor(4), tensor(4), input_arrays=exact)
    ends = [5.0, -5.0, np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0]
    grid = np.array(list(product(ends, ends)), np.float32).T
    yield binary("FLOOR_MOD", "float32 edges", tensor(81), tensor(81), input_arrays={"x0": grid[0], "x1": grid[1]})
    pairs = grid[:, grid[1] != 0]
    size = pairs.shape[1]
    yield binary(
        "FLOOR_DIV", "float32 edges", tensor(size), tensor(size), input_arrays={"x0": pairs[0], "x1": pairs[1]}
    )
    zero = {"x1": np.zeros(3, np.int32)}
    for op in dtypes:
        row = tensor(3, dtype="int32")
        yield binary(op, "int32 by zero", row, row, input_arrays=zero, kernel_refusal="Division by 0")


def signed_operands(dtype: str) -> dict[str, Array]:
    numbers = (-7, -6, -1, 0, 1, 6, 7, 100), (-7, -4, -3, -1, 1, 2, 3, 7)
    grid = np.array(list(product(*numbers))).T.astype(dtype)
    return {"x0": grid[0], "x1": grid[1]}


def angle_cases() -> Iterator[Case]:
    """Yield every quadrant, both zeros, infinities."""
    ends = [0.0, -0.0, 1.0, -1.0, 2.5, -1e-3, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan]
    grid = np.array(list(product(ends, ends))).T
    for dtype in ("float32", "float64", "float16"):
        pair = tensor(len(grid[0]), dtype=dtype)
        with np.errstate(over="ignore"):
            given = {"x0": grid[0].astype(dtype), "x1": grid[1].astype(dtype)}
        yield binary("ATAN2", f"{dtype} edges", pair, pair, input_arrays=given, opsets=EVERY_OPSET)
        yield binary("ATAN2", dtype, tensor(*IMAGE, dtype=dtype), tensor(*IMAGE, dtype=dtype))
    numbers = ~np.isnan(grid).any(axis=0)
    given = {f"x{k}": row[numbers].astype(np.float32) for k, row in enumerate(grid)}
    many = tensor(int(numbers.sum()))
    yield in_bfloat16("ATAN2", [many, many], many, name="bfloat16 edges", input_arrays=given)
    yield in_bfloat16("ATAN2", [tensor(*IMAGE), tensor(*IMAGE)], tensor(*IMAGE))
    yield binary("ATAN2", "float32", tensor(*IMAGE), tensor(*IMAGE), place=between_convolutions)
    yield binary("ATAN2", "float32 scalars", tensor(), tensor())
    yield binary("ATAN2", "float32, empty", tensor(0, 3), tensor(0, 3))
    yield binary("ATAN2", "different shape", tensor(2, 3), tensor(1, 3), refusal="does not broadcast")


def shift_cases() -> Iterator[Case]:
    """Yield shifts, which round down, also below zero; the shift is limited to the dtype's bits."""
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        limits = np.iinfo(dtype)
        numbers = [int(limits.min), int(limits.max), 0, 1, 77, 100 if limits.min == 0 else -100]
        bits = [0, 1, 3, limits.bits - 1, limits.bits, 100 if limits.min == 0 else -5]
        grid = np.array(list(product(numbers, bits))).T.astype(dtype)
        pair = tensor(36, dtype=dtype, scale=0)
        given = {"x0": grid[0], "x1": grid[1]}
        yield binary(
            "RIGHT_SHIFT",
            dtype,
            pair,
            pair,
            input_arrays=given,
            opsets=EVERY_OPSET if limits.bits != 16 else (None, 26),
        )
        shift = constant(np.array([0, 2, 5], dtype))
        yield binary("RIGHT_SHIFT", f"{dtype} by a constant", tensor(5, 3, dtype=dtype, scale=0), shift)
        scalar = tensor(dtype=dtype, scale=0)
        scalars = {"x0": np.array(100, dtype), "x1": np.array(3, dtype)}
        yield binary("RIGHT_SHIFT", f"{dtype} scalars", scalar, scalar, input_arrays=scalars)
    x = tensor(*IMAGE, dtype="int8")
    y = constant(np.array([0, 2, 5], np.int8), scale=0.3)
    yield binary("RIGHT_SHIFT", "int8 of scales, which the kernel ignores", x, y, place=between_convolutions)


def xor_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        x = tensor(*IMAGE, dtype=dtype, scale=0)
        yield binary("BITWISE_XOR", dtype, x, x, opsets=(None, 18, 21, 26))
        yield binary("BITWISE_XOR", f"{dtype} and a constant", x, constant(random_array(7, 1, dtype=dtype)))
        yield binary("BITWISE_XOR", f"{dtype} scalars", x.with_shape(), x.with_shape())
    yield binary("BITWISE_XOR", "int8, empty", x.with_shape(0, 3), x.with_shape(0, 3))
    x = tensor(*IMAGE, dtype="int8")
    y = constant(random_array(3, dtype="int8"), scale=0.3, zero_point=7)
    yield binary("BITWISE_XOR", "int8 of scales, which the kernel ignores", x, y, place=between_convolutions)
    x = tensor(*IMAGE, dtype="int32")
    yield binary("BITWISE_XOR", "int32 at opset 17", x, x, opsets=(17,), refusal="opset 18")


def add_n_cases() -> Iterator[Case]:
    """Yield two or more operands of one shape."""
    for dtype in ("float32", "int32"):
        for count in (2, 3, 7):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS if dtype == "float32" else (in_isolation,):
                name = f"{dtype}, {count} operands"
                yield place("ADD_N", name, [x] * count, x, opsets=opsets(place=place))
        scalar = tensor(dtype=dtype)
        yield in_isolation("ADD_N", f"{dtype} scalars", [scalar] * 3, scalar)
        yield in_isolation("ADD_N", f"{dtype} and a constant", [x, constant(random_array(*IMAGE, dtype=dtype))], x)
        nothing = tensor(0, 3, dtype=dtype)
        yield in_isolation("ADD_N", f"{dtype}, empty", [nothing, nothing], nothing)
    edge = {"x0": np.array([2**31 - 1], np.int32), "x1": np.array([7], np.int32)}
    one = tensor(1, dtype="int32")
    yield in_isolation("ADD_N", "int32 that wraps around", [one, one], one, input_arrays=edge)

    def twice(model: Net) -> None:
        x = model.input(tensor(*IMAGE))
        model.output(model.call("ADD_N", [x, x, x], tensor(*IMAGE)))

    yield net("ADD_N", "repeated operand", twice)
