"""CEIL, ROUND, SIGN, SIN and COS: edge cases of each function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import between_convolutions, constant, in_bfloat16, tensor, unary
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
EDGE_VALUES = np.array(
    [-2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.49999997, 0.5, 0.999, 1.5, 2.5, 8388607.5, np.inf, -np.inf], np.float32
)


def cases() -> Iterator[Case]:
    yield from ceil_cases()
    yield from round_cases()
    yield from sign_cases()
    yield from sin_cos_cases()


def ceil_cases() -> Iterator[Case]:
    """Yield cases of CEIL, which rounds up, also below zero."""
    yield unary("CEIL", "float32 at its edge cases", tensor(14), input_arrays={"x0": EDGE_VALUES}, opsets=EVERY_OPSET)
    yield unary("CEIL", "float32", tensor(*IMAGE), place=between_convolutions, input_range=(-9.0, 9.0))
    yield unary("CEIL", "a scalar", tensor())
    yield unary("CEIL", "empty", tensor(2, 0, 3))


def round_cases() -> Iterator[Case]:
    """Yield cases of ROUND, which rounds half to even."""
    halves = np.arange(-9, 9, dtype=np.float32) / 2
    for dtype in ("float32", "float16"):
        arrays = {"x0": halves.astype(dtype)}
        yield unary("ROUND", f"{dtype} halves", tensor(18, dtype=dtype), input_arrays=arrays, opsets=EVERY_OPSET)
    yield in_bfloat16("ROUND", [tensor(18)], tensor(18), input_arrays={"x0": halves})
    yield unary("ROUND", "float32 below a half", tensor(6), input_arrays={"x0": EDGE_VALUES[:6]})
    yield unary("ROUND", "float32", tensor(*IMAGE), place=between_convolutions, input_range=(-9.0, 9.0))
    yield unary("ROUND", "a scalar", tensor())
    yield unary("ROUND", "empty", tensor(2, 0, 3))


def sign_cases() -> Iterator[Case]:
    values = np.array([-np.inf, -1e-40, -0.0, 0.0, 1e-40, 3.0, np.inf, np.nan])
    for dtype in ("float32", "float64"):
        arrays = {"x0": values.astype(dtype)}
        yield unary("SIGN", f"{dtype} edges", tensor(8, dtype=dtype), input_arrays=arrays, opsets=EVERY_OPSET)
    arrays = {"x0": np.array([-(2**31), -1, 0, 1, 2**31 - 1], np.int32)}
    yield unary("SIGN", "int32", tensor(5, dtype="int32"), input_arrays=arrays, opsets=EVERY_OPSET)
    yield unary("SIGN", "float32", tensor(*IMAGE), place=between_convolutions)
    yield unary("SIGN", "a scalar", tensor())


def sin_cos_cases() -> Iterator[Case]:
    angles: Array = np.array([0.0, -0.0, 1e-30, 0.5, -3.14159265, 100.0, -12345.678, 1e6, np.inf, np.nan], np.float32)
    for op in ("SIN", "COS"):
        yield unary(op, "float32 edge cases", tensor(10), input_arrays={"x0": angles}, opsets=EVERY_OPSET)
        yield unary(op, "float32", tensor(*IMAGE), place=between_convolutions, input_range=(-9.0, 9.0))
        arrays = {"x0": np.linspace(-300, 300, 37).astype(np.float16)}
        yield unary(op, "float16", tensor(37, dtype="float16"), input_arrays=arrays, opsets=EVERY_OPSET)
        yield unary(op, "a scalar", tensor())
        yield unary(op, "empty", tensor(0, 3))
        yield unary(op, "a constant", constant(np.linspace(-3, 3, 7).astype(np.float32)), tensor(7))
