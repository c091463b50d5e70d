"""L2_NORMALIZATION of short vectors, and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.softmax import rank_cases
from conformance.models import PLACEMENTS, Spec, opsets, random_array, tensor, unary
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)


def cases() -> Iterator[Case]:
    yield from l2_normalization_cases()
    yield from local_response_cases()


def local_response_cases() -> Iterator[Case]:
    """Yield cases of LOCAL_RESPONSE_NORMALIZATION.

    Alpha multiplies the sum of squares of neighboring channels, not their mean.
    """
    op = "LOCAL_RESPONSE_NORMALIZATION"
    for place in PLACEMENTS:
        for radius in (0, 1, 2, 5, 11, 1 << 20):
            options = {"radius": radius, "bias": 1.5, "alpha": 0.3, "beta": 0.75}
            yield unary(
                op, f"radius {radius}", tensor(2, 5, 7, 11), place=place, options=options, opsets=opsets(place=place)
            )
    for beta in (0.0, 0.5, 1.0, 2.0, -0.5):
        options = {"radius": 2, "bias": 2.0, "alpha": 0.7, "beta": beta}
        yield unary(op, f"beta {beta:g}", tensor(2, 3, 5, 7), options=options)
    for alpha in (0.0, -0.1):
        options = {"radius": 1, "bias": 3.0, "alpha": alpha, "beta": 2.0}
        yield unary(op, f"alpha {alpha:g}", tensor(2, 3, 5, 7), options=options, input_range=(-2.0, 2.0))
    options = {"radius": 2, "bias": 1.0, "alpha": 1.0, "beta": 0.5}
    yield unary(op, "one channel", tensor(2, 3, 5, 1), options=options)
    yield unary(op, "rank 3", tensor(3, 5, 7), options=options, kernel_refusal="NumDimensions")


def l2_normalization_cases() -> Iterator[Case]:
    """Yield cases of rows with a norm below 1e-6, and long integer rows.

    The kernel divides rows with a small norm by 1e-6, and rounds long integer rows.
    """
    output_parameters = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}
    yield from rank_cases("L2_NORMALIZATION", output_parameters)
    rows = np.array([[0, 0, 0], [1e-8, 0, 0], [3e-7, -4e-7, 0], [3e-6, 4e-6, 0], [1e15, -1e15, 0]], np.float32)
    yield unary("L2_NORMALIZATION", "short and long rows", tensor(5, 3), input_arrays={"x0": rows}, opsets=EVERY_OPSET)
    for dtype, (scale, zero_point) in output_parameters.items():
        input_zero_point = {"int8": -5, "uint8": 122}[dtype]
        rows = np.array([[0, 0, 0], [1, 0, 0], [90, -90, 0]]) + input_zero_point
        arrays = {"x0": rows.astype(dtype)}
        y = Spec((3, 3), dtype, scale, zero_point)
        yield unary("L2_NORMALIZATION", f"{dtype}, a row of zeros", tensor(3, 3, dtype=dtype), y, input_arrays=arrays)
    y = Spec((3, 577), "int8", 1 / 128, 0)
    two_roundings: Mapping[str, Any] = {
        "tolerance": Tolerance(steps=0),
        "tolerance_reason": "the kernel rounds long rows to integers and halves these",
    }
    for largest in (3, 127):  # the kernel halves small rows at most once, and large rows up to twice
        rows = random_array(3, 577, dtype="int8", low=-largest - 1, high=largest)
        rows[0] = np.where(rows[0] < 0, -largest - 1, largest)
        name = f"int8, long rows up to {largest}, the longest of which the kernel rounds twice"
        x = tensor(3, 577, dtype="int8", zero_point=0)
        yield unary("L2_NORMALIZATION", name, x, y, input_arrays={"x0": rows}, **two_roundings)
    name = "int8, long rows of dynamic length, which the kernel rounds twice"
    yield unary("L2_NORMALIZATION", name, x.with_shape(3, None), y.with_shape(3, None), **two_roundings)
    refusals: dict[str, Any] = {"refusal": "LiteRT refuses a fused", "kernel_refusal": "params->activation"}
    for activation in ("RELU", "TANH"):
        yield unary(
            "L2_NORMALIZATION", activation, tensor(3, 5), options={"fused_activation_function": activation}, **refusals
        )
