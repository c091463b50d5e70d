"""RIGHT_SHIFT and BITWISE_XOR of integers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    between_convolutions,
    binary,
    constant,
    random_array,
    tensor,
)

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from shift_cases()
    yield from xor_cases()


def shift_cases() -> Iterator[Case]:
    """Yield cases of RIGHT_SHIFT, which rounds down, also below zero.

    Shifts are limited to the number of bits of the dtype.
    """
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        limits = np.iinfo(dtype)
        numbers = [int(limits.min), int(limits.max), 0, 1, 77, 100 if limits.min == 0 else -100]
        shifts = [0, 1, 3, limits.bits - 1, limits.bits, 100 if limits.min == 0 else -5]
        grid = np.array(list(product(numbers, shifts))).T.astype(dtype)
        pair = tensor(36, dtype=dtype, scale=0)
        arrays = {"x0": grid[0], "x1": grid[1]}
        yield binary(
            "RIGHT_SHIFT",
            dtype,
            pair,
            pair,
            input_arrays=arrays,
            opsets=EVERY_OPSET if limits.bits != 16 else (None, 26),
        )
        shift = constant(np.array([0, 2, 5], dtype))
        yield binary("RIGHT_SHIFT", f"{dtype} by a constant", tensor(5, 3, dtype=dtype, scale=0), shift)
        scalar = tensor(dtype=dtype, scale=0)
        scalars = {"x0": np.array(100, dtype), "x1": np.array(3, dtype)}
        yield binary("RIGHT_SHIFT", f"{dtype} scalars", scalar, scalar, input_arrays=scalars)
    x = tensor(*IMAGE, dtype="int8")
    y = constant(np.array([0, 2, 5], np.int8), scale=0.3)
    yield binary("RIGHT_SHIFT", "int8 with scales, which the kernel ignores", x, y, place=between_convolutions)


def xor_cases() -> Iterator[Case]:
    """Yield cases of BITWISE_XOR of every integer dtype of the kernel.

    ONNX has the operator from opset 18 on.
    """
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        x = tensor(*IMAGE, dtype=dtype, scale=0)
        yield binary("BITWISE_XOR", dtype, x, x, opsets=(None, 18, 21, 26))
        yield binary("BITWISE_XOR", f"{dtype} and a constant", x, constant(random_array(7, 1, dtype=dtype)))
        yield binary("BITWISE_XOR", f"{dtype} scalars", x.with_shape(), x.with_shape())
    yield binary("BITWISE_XOR", "int8, empty", x.with_shape(0, 3), x.with_shape(0, 3))
    x = tensor(*IMAGE, dtype="int8")
    y = constant(random_array(3, dtype="int8"), scale=0.3, zero_point=7)
    yield binary("BITWISE_XOR", "int8 with scales, which the kernel ignores", x, y, place=between_convolutions)
    x = tensor(*IMAGE, dtype="int32")
    yield binary("BITWISE_XOR", "int32 at opset 17", x, x, opsets=(17,), refusal="opset 18")
