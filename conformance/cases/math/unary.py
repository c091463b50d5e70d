"""NEG, FLOOR, SQUARE, ABS, EXP, LOG, SQRT, RSQRT: quantized values, domains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.arithmetic_power import integers_between
from conformance.models import PLACEMENTS, Spec, between_convolutions, in_bfloat16, opsets, random_array, tensor, unary
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from negation_cases()
    yield from floor_cases()
    yield from square_cases()
    yield from abs_cases()
    yield from exp_cases()
    yield from log_cases()
    yield from sqrt_cases()


def negation_cases() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int8", "int16", "int32", "int64"):
        yield unary("NEG", dtype, tensor(*IMAGE, dtype=dtype), opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
    yield in_bfloat16("NEG", [tensor(*IMAGE)], tensor(*IMAGE))
    yield unary("NEG", "float32", tensor(*IMAGE), place=between_convolutions)
    x = tensor(*IMAGE, dtype="int8")
    for place in PLACEMENTS:
        yield unary("NEG", "int8 with a zero point, which the kernel ignores", x, place=place)
        yield unary("NEG", "int8 with a different scale, which the kernel ignores", x, x.rescale(3, 40), place=place)
    arrays = {"x0": np.array([-128, 127, 0, -1], np.int8)}
    yield unary("NEG", "int8 with the minimum value", tensor(4, dtype="int8", zero_point=0), input_arrays=arrays)
    yield unary("NEG", "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refusal="Neg only currently supports")


def floor_cases() -> Iterator[Case]:
    """Yield cases of FLOOR, which rounds down, also below zero.

    Signed zeros and infinities do not change.
    """
    values = np.array([-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 0.999, 1.5, 2.5, -8388609.0, np.inf, -np.inf], np.float32)
    yield unary("FLOOR", "float32 at its edge cases", tensor(12), input_arrays={"x0": values}, opsets=EVERY_OPSET)
    yield unary("FLOOR", "float32", tensor(2, 5, 7, 3), place=between_convolutions)
    yield in_bfloat16("FLOOR", [tensor(12)], tensor(12), input_arrays={"x0": values})
    yield unary("FLOOR", "float16", tensor(2, 5, 7, 3, dtype="float16"), input_range=(-9.0, 9.0), opsets=EVERY_OPSET)


def square_cases() -> Iterator[Case]:
    yield unary("SQUARE", "float32", tensor(*IMAGE), opsets=EVERY_OPSET)
    yield unary("SQUARE", "float32", tensor(*IMAGE), place=between_convolutions)


def abs_cases() -> Iterator[Case]:
    yield unary("ABS", "float16", tensor(*IMAGE, dtype="float16"), opsets=EVERY_OPSET)
    for dtype in ("float32", "int8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        zero_point = 0 if dtype == "int16" else -37
        for place in PLACEMENTS:
            yield unary("ABS", dtype, x, place=place, opsets=opsets(dtype, place))
            if dtype != "float32":
                yield unary("ABS", f"{dtype} to a different scale", x, x.rescale(0.7, zero_point), place)
    for dtype in ("int16", "int32"):
        arrays = {"x0": np.array([0, 1, -1, 32767, -32767], dtype)}
        yield unary(
            "ABS", f"{dtype} without scale", tensor(5, dtype=dtype, scale=0), input_arrays=arrays, opsets=EVERY_OPSET
        )
    yield unary("ABS", "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refusal="UINT8 is unsupported by op Abs")


def exp_cases() -> Iterator[Case]:
    for place in PLACEMENTS:
        yield unary("EXP", "float32", tensor(*IMAGE), place=place, input_range=(-9.0, 3.0), opsets=opsets(place=place))
        x = tensor(*IMAGE, dtype="int8", scale=0.021, zero_point=17)
        yield unary("EXP", "int8", x, replace(x, scale=0.05, zero_point=-100), place, opsets=opsets(place=place))
        x = tensor(*IMAGE, dtype="int16")
        yield unary("EXP", "int16", x, x, place, opsets=(None, 26))
    x = tensor(None, None, 3, dtype="int16")
    arrays_of_runs = [{"x0": random_array(n, 5, 3, dtype="int16")} for n in (1, 4)]
    yield unary("EXP", "int16 of dynamic shape", x, x, input_arrays=arrays_of_runs)
    yield unary("EXP", "int16 of rank 0", x.with_shape(), x.with_shape())
    yield unary("EXP", "int16, empty", x.with_shape(0, 3), x.with_shape(0, 3))
    x = x.with_shape(*IMAGE)
    y = tensor(2, 3, dtype="int16", scale=0.003)
    yield unary("EXP", "int16 up to infinity", y, y, refusal="exceeds float32")
    yield unary(
        "EXP",
        "int16 of small numbers",
        x,
        x.rescale(0.3),
        input_arrays={"x0": integers_between("int16", -3000, 3000, *IMAGE)},
    )
    arrays = {"x0": np.array([-np.inf, -200, -0.0, 1e-6, 88, 89, np.inf, np.nan], np.float32)}
    yield unary("EXP", "float32 edges", tensor(8), input_arrays=arrays)


def log_cases() -> Iterator[Case]:
    """Yield cases of LOG.

    For quantized arguments of 0 or less, kernels return the lowest value of the dtype.
    """
    for place in PLACEMENTS:
        yield unary("LOG", "float32", tensor(*IMAGE), place=place, input_range=(0.01, 9.0), opsets=opsets(place=place))
        for dtype, (scale, zero_point) in (("int8", (0.021, 17)), ("int16", (0.0002, 0))):
            x = tensor(*IMAGE, dtype=dtype)
            yield unary(
                "LOG", dtype, x, replace(x, scale=scale, zero_point=zero_point), place, opsets=opsets(dtype, place)
            )
    x = tensor(256, dtype="int8", scale=0.01, zero_point=100)
    arrays = {"x0": np.arange(-128, 128).astype(np.int8)}
    yield unary(
        "LOG", "int8, mostly of negative numbers", x, replace(x, scale=0.05, zero_point=-3), input_arrays=arrays
    )
    yield unary("LOG", "int8, coarse results", x, replace(x, scale=7.0, zero_point=0), input_arrays=arrays)
    x = tensor(256, dtype="int16", scale=1e-3)
    arrays = {"x0": np.arange(-100, 156, dtype=np.int16)}
    yield unary(
        "LOG", "int16 near zero, where the kernel's table is coarse", x, replace(x, scale=3e-4), input_arrays=arrays
    )
    arrays = {"x0": np.array([0, -0.0, 1e-30, 1, np.inf, -1, np.nan], np.float32)}
    yield unary("LOG", "float32 edges", tensor(7), input_arrays=arrays)
    yield unary("LOG", "uint8", tensor(7, dtype="uint8"), kernel_refusal="UINT8 is unsupported by op Log")


def sqrt_cases() -> Iterator[Case]:
    """Yield cases of SQRT and RSQRT of arguments at or above their zero point.

    Kernels refuse roots of negative quantized values.
    """
    lowest = {"int8": -128, "int16": 0}
    for op, ratio in (("SQRT", 0.6), ("RSQRT", 0.25)):
        for place in PLACEMENTS:
            yield unary(op, "float32", tensor(*IMAGE), place=place, input_range=(0.01, 4.0), opsets=opsets(place=place))
        arrays = {"x0": np.array([0, -0.0, 1e-30, 4, np.inf, -1, np.nan], np.float32)}
        yield unary(op, "float32 edges", tensor(7), input_arrays=arrays)
        for dtype in ("int8", "int16"):
            x = tensor(*IMAGE, dtype=dtype, zero_point=lowest[dtype])
            for factor in (1.0, 0.37, 1 / ratio):
                shift = 20 if dtype == "int8" and factor < 1 / ratio else 0
                y = x.rescale(ratio * factor, lowest[dtype] + shift)
                for place in PLACEMENTS:
                    arrays_of_runs = positive_inputs(x.with_shape(2, 5, 7, 5) if place is between_convolutions else x)
                    tolerance = TRUNCATED if op == "SQRT" else {}
                    name = f"{dtype}, output scale {factor:g}"
                    yield unary(
                        op, name, x, y, place, opsets=opsets(dtype, place), input_arrays=arrays_of_runs, **tolerance
                    )
        yield unary(op, "uint8", tensor(*IMAGE, dtype="uint8"), kernel_refusal="UINT8 is unsupported by op")
    x = tensor(256, dtype="int16", scale=1e-3, zero_point=0)
    arrays = {"x0": np.arange(256, dtype=np.int16)}
    yield unary(
        "RSQRT", "int16 near zero, where the kernel's table is coarse", x, replace(x, scale=2e-3), input_arrays=arrays
    )


TRUNCATED = {
    "tolerance": Tolerance(steps=0),
    "tolerance_reason": "the kernel truncates instead of rounding, which lowers results by half a step on average",
}


def positive_inputs(x: Spec) -> list[dict[str, Array]]:
    """Return random inputs of three runs that are at or above the zero point."""
    low, high = (-128, 127) if x.dtype == "int8" else (0, 32767)
    shape = tuple(size or 1 for size in x.shape)
    return [{"x0": integers_between(x.dtype, low, high, *shape, seed=seed)} for seed in "abc"]
