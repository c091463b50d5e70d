"""CAST: floats saturate, integers wrap, and quantization is ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Spec,
    between_convolutions,
    in_isolation,
    net,
    random_array,
    tensor,
    unary,
)
from onnx_tflite_plugin.source.model import Array

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool")
IMAGE = (2, 5, 7, 3)
NEAR_SMALL_LIMITS = (
    -0.0,
    0.4,
    -0.6,
    1.5,
    2.5,
    -1.5,
    127.9,
    128.0,
    -128.9,
    -129.0,
    255.9,
    256.0,
    300.7,
    32768.0,
    -32769.0,
    7e4,
)
NEAR_LARGE_LIMITS = (
    2147483520.0,
    2147483648.0,
    -2147483904.0,
    4294967040.0,
    4294967296.0,
    9.2e18,
    9.3e18,
    -9.3e18,
    1e30,
    -1e30,
)
NON_FINITE = (np.inf, -np.inf, np.nan)
FIRST_OPSETS = {"int4": 21, "uint4": 21, "int2": 25}


def cases() -> Iterator[Case]:
    for before in (*FLOATS, *INTEGERS):
        for after in (*FLOATS, *INTEGERS):
            opsets = EVERY_OPSET if before == "float32" else (None,)
            yield cast_case(limit_values(before), after, f"{before} to {after}", opsets=opsets)
    yield from sub_byte_cases()
    yield from complex_cases()
    yield from quantized_cases()


def cast_case(values: Array, after: str, name: str, **case_fields: Any) -> Case:
    x, y = Spec(values.shape, values.dtype.name), Spec(values.shape, after)
    return unary("CAST", name, x, y, input_arrays={"x0": values}, runs=1, **case_fields)


def limit_values(dtype: str) -> Array:
    """Return numbers around the limits of every integer dtype."""
    if dtype == "bool":
        return np.array([False, True, True])
    with np.errstate(all="ignore"):
        if dtype in FLOATS:
            return np.array([*NEAR_SMALL_LIMITS, *NEAR_LARGE_LIMITS, *NON_FINITE]).astype(dtype)
    limits = np.iinfo(dtype)
    return np.array([0, 1, limits.min, limits.max, limits.max // 2 + 1, limits.max // 3], dtype)


def sub_byte_cases() -> Iterator[Case]:
    """Yield cases of bfloat16, and of integers narrower than a byte, which saturate.

    NumPy has none of these dtypes.
    """
    values = np.array([*NEAR_SMALL_LIMITS, -8.9, 7.9, 15.9, -2.5, 1e30, -1e30, *NON_FINITE], np.float32)
    for dtype in ("int4", "uint4", "int2", "bfloat16"):
        first_opset = FIRST_OPSETS.get(dtype, 13)
        opsets = (None, *(opset for opset in EVERY_OPSET if opset and opset >= first_opset))
        build, arrays = cast_and_back(dtype, len(values)), {"x0": values}
        yield net(
            "CAST", f"float32 to {dtype} and back", build, dtype=dtype, input_arrays=arrays, runs=1, opsets=opsets
        )
        if first_opset > 13:
            refusal: dict[str, Any] = {"opsets": (first_opset - 1,), "refusal": f"needs opset {first_opset}"}
            yield net("CAST", f"float32 to {dtype} at opset {first_opset - 1}", build, dtype=dtype, **refusal)
    for dtype in ("int4", "int2"):
        yield net("CAST", f"{dtype} constant", add_cast_constant(dtype), dtype=dtype, opsets=(None, 26))
    for dtype in ("int4", "uint4", "bfloat16"):  # LiteRT's interface does not support int2
        x, y = Spec((2, 3, 5), dtype), Spec((2, 3, 5))
        yield unary("CAST", f"{dtype} input to float32", x, y, dtype=dtype)
    for dtype in ("int4", "uint4", "int2", "bfloat16"):
        x, y = Spec((len(values),)), Spec((len(values),), dtype)
        yield unary("CAST", f"float32 to {dtype} output", x, y, dtype=dtype, input_arrays={"x0": values}, runs=1)
    for dtype in ("int8", "int64", "bool", "float16"):
        build = cast_and_back("bfloat16", len(values), dtype)
        yield net("CAST", f"bfloat16 to {dtype}", build, dtype="bfloat16", input_arrays={"x0": values}, runs=1)


def cast_and_back(dtype: str, size: int, after: str = "float32") -> Callable[[Net], None]:
    """Return a builder of a cast from float32 to ``dtype``, then to ``after``."""

    def build(model: Net) -> None:
        x = model.call("CAST", [Spec((size,))], Spec((size,), dtype))
        model.output(model.call("CAST", [x], Spec((size,), after)))

    return build


def add_cast_constant(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a sum with a constant that is cast from ``dtype``.

    Activations cannot have this dtype.
    """

    def build(model: Net) -> None:
        numbers = np.arange(-2, 2).astype(getattr(ml_dtypes, dtype))
        widened = model.call("CAST", [Spec((4,), dtype, value=numbers)], Spec((4,)))
        model.output(model.call("ADD", [Spec((3, 4)), widened], Spec((3, 4))))

    return build


def complex_cases() -> Iterator[Case]:
    """Yield cases of casts from and to complex64.

    The real part is kept, and the axis of (real, imaginary) stays last.
    """
    numbers = np.array([1.5 + 2j, -300.7 - 1j, 0 + 5j, complex(np.nan, 1), complex(np.inf, -1), 0j], np.complex64)
    for dtype in ("float32", "float16", "int8", "int32", "int64", "bool", "complex64"):
        yield cast_case(numbers, dtype, f"complex64 to {dtype}", dtype="complex64", opsets=EVERY_OPSET)
    for dtype in ("float32", "int16", "bool"):
        yield cast_case(limit_values(dtype), "complex64", f"{dtype} to complex64", opsets=EVERY_OPSET)
    yield net("CAST", "complex64 between convolutions", build_complex_image, dtype="complex64", max_transposes=2)
    x = Spec((5,), "complex64", value=numbers[:5])
    yield in_isolation("CAST", "a complex64 constant to float32", [x], tensor(5), dtype="complex64")


def build_complex_image(model: Net) -> None:
    """Build casts of an image to complex64 and back between convolutions."""
    x = model.call("CAST", [model.input_through_conv(tensor(*IMAGE))], Spec(IMAGE, "complex64"))
    model.output(model.output_through_conv(model.call("CAST", [x], tensor(*IMAGE))))


def quantized_cases() -> Iterator[Case]:
    """Yield cases of quantized tensors, which the kernel casts as plain integers."""
    for place in PLACEMENTS:
        for dtype in ("int8", "uint8", "int16"):
            x = tensor(*IMAGE, dtype=dtype)
            yield unary("CAST", f"quantized {dtype} to float32", x, tensor(*IMAGE), place)
            yield unary("CAST", f"quantized {dtype} to int32", x, tensor(*IMAGE, dtype="int32"), place)
            yield unary("CAST", f"float32 to quantized {dtype}", tensor(*IMAGE), x, place, input_range=(-400.0, 400.0))
        x, y = tensor(*IMAGE, dtype="int8"), tensor(*IMAGE, dtype="uint8")
        yield unary("CAST", "quantized int8 to quantized uint8", x, y, place)
        yield unary("CAST", "int8 to int8 with a different scale", x, x.rescale(3.0, 40), place)
    yield unary("CAST", "float32 to bool", tensor(*IMAGE), tensor(*IMAGE, dtype="bool"), between_convolutions)
    x, y = tensor(None, 7), tensor(None, 7, dtype="int32")
    yield unary(
        "CAST", "dynamic dimension", x, y, input_arrays=[{"x0": random_array(n, 7, low=-9, high=9)} for n in (1, 3)]
    )
