"""MAXIMUM and MINIMUM, which compare quantized values regardless of scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.arithmetic import VALUES_BEYOND_32_BITS, operands_and_result, rescaled_operands_and_result
from conformance.models import (
    PLACEMENTS,
    between_convolutions,
    binary,
    in_bfloat16,
    opsets,
    random_constant,
    tensor,
)

IMAGE = (2, 5, 7, 3)
EIGHT_BIT_DTYPES = ("int8", "uint8")
QUANTIZABLE = ("float32", "int8", "uint8", "int16")


def cases() -> Iterator[Case]:
    yield from maximum_cases()
    yield from minimum_cases()


def maximum_cases() -> Iterator[Case]:
    for dtype in QUANTIZABLE:
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield binary("MAXIMUM", dtype, x, x, x, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        yield binary(
            "MAXIMUM", f"{dtype} and a constant", x, random_constant(x.with_shape(7, 1)), x, between_convolutions
        )
    for dtype in ("int8", "uint8"):
        x, y, z = operands_and_result("ADD", dtype)
        for place in PLACEMENTS:
            yield binary("MAXIMUM", f"{dtype} with different scales, which the kernel ignores", x, y, z, place)
            yield binary(
                "MAXIMUM",
                f"{dtype} and a constant with a different scale",
                x,
                random_constant(y.with_shape(3)),
                z,
                place,
            )
        yield binary(
            "MAXIMUM", f"{dtype} without scale", tensor(*IMAGE, dtype=dtype, scale=0), tensor(3, dtype=dtype, scale=0)
        )
    for dtype in ("int32", "int64"):
        yield binary("MAXIMUM", dtype, tensor(*IMAGE, dtype=dtype), tensor(5, 1, 1, dtype=dtype))


def minimum_cases() -> Iterator[Case]:
    """Yield cases of MINIMUM, and both operators for special dtypes.

    The special dtypes are int16 with different scales, integers without a scale, and 16-bit floats.
    """
    for dtype in ("float32", *EIGHT_BIT_DTYPES, "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield binary("MINIMUM", dtype, x, x, x, place, opsets=opsets(dtype, place))
        for shape in ((), (7, 1), (5, 1, 1)):
            bound = random_constant(x.with_shape(*shape))
            yield binary("MINIMUM", f"{dtype} and a constant {shape}", x, bound, x, between_convolutions)
    for dtype in EIGHT_BIT_DTYPES:
        x, y, z = rescaled_operands_and_result(dtype, 1.5)
        for place in PLACEMENTS:
            yield binary("MINIMUM", f"{dtype} with different scales, which the kernel ignores", x, y, z, place)
    for op in ("MINIMUM", "MAXIMUM"):
        x = tensor(*IMAGE, dtype="int16")
        for place in PLACEMENTS:
            y, z = x.rescale(0.6), x.rescale(1.5)
            yield binary(op, "int16 with different scales, which the kernel ignores", x, y, z, place)
        for dtype in (*EIGHT_BIT_DTYPES, "int16", "int32", "int64"):
            x = tensor(*IMAGE, dtype=dtype, scale=0)
            yield binary(op, f"{dtype} without scale, broadcast", x, x.with_shape(5, 1, 1), opsets=EVERY_OPSET)
        x = tensor(11, dtype="int64")
        arrays = {"x0": VALUES_BEYOND_32_BITS, "x1": VALUES_BEYOND_32_BITS[::-1].copy()}
        yield binary(op, "int64 beyond 32 bits", x, x, input_arrays=arrays, opsets=EVERY_OPSET)
        half = tensor(*IMAGE, dtype="float16")
        yield binary(op, "float16", half, half.with_shape(7, 1), opsets=EVERY_OPSET)
        yield in_bfloat16(op, [tensor(*IMAGE), tensor(*IMAGE)], tensor(*IMAGE))
    arrays = {"x0": np.array([np.inf, -np.inf, 0.0, 2], np.float32), "x1": np.array([1, 1, -0.0, np.inf], np.float32)}
    yield binary("MINIMUM", "float32 of infinity", tensor(4), tensor(4), input_arrays=arrays)
