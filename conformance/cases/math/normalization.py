"""Normalization along the last axis: lengths near 0, and the only parameters the kernel takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.softmax import ranks
from conformance.models import Spec, tensor, unary

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from l2_normalization()


def l2_normalization() -> Iterator[Case]:
    """Lengths below 1e-6 count as 1e-6: a row of zeros stays, a shorter one does not get length 1."""
    fixed = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}
    yield from ranks("L2_NORMALIZATION", fixed)
    rows = np.array([[0, 0, 0], [1e-8, 0, 0], [3e-7, -4e-7, 0], [3e-6, 4e-6, 0], [1e15, -1e15, 0]], np.float32)
    yield unary("L2_NORMALIZATION", "short and long rows", tensor(5, 3), given={"x0": rows}, opsets=EVERY_OPSET)
    for dtype, (scale, point) in fixed.items():
        zero = {"int8": -5, "uint8": 122}[dtype]
        rows = np.array([[zero, zero, zero], [zero + 1, zero, zero], [zero + 90, zero - 90, zero]], dtype)
        y = Spec((3, 3), dtype, scale, point)
        yield unary("L2_NORMALIZATION", f"{dtype}, a row of zeros", tensor(3, 3, dtype=dtype), y, given={"x0": rows})
    options = {"fused_activation_function": "RELU"}
    yield unary("L2_NORMALIZATION", "RELU", tensor(3, 5), options=options, kernel_refuses="params->activation")
