"""FULLY_CONNECTED with fused activations.

Kernels for float32 on integer weights support all activations. Other kernels support only RELU, RELU6 and RELU_N1_TO_1.

Sums are small, so that results still differ after TANH or RELU_N1_TO_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.matrix.fully_connected import dense_case
from conformance.cases.matrix.fully_connected_int4 import blockwise_case
from conformance.models import Net, between_convolutions, constant, in_isolation, net, random_array, tensor
from conformance.weights import describe_scales, fold_weights, weight

OP = "FULLY_CONNECTED"
CLAMPS, OTHER_ACTIVATIONS = ("RELU", "RELU_N1_TO_1", "RELU6"), ("TANH", "SIGN_BIT")
TARGETS = ("onnxruntime", "generic", "openvino", "tvm", "tensorrt")
INPUT_RANGES = {"SIGN_BIT": (-0.2, 0.2)}
"""Narrower input ranges; rounding of the inputs may change the sign bit of a sum near 0."""


def cases() -> Iterator[Case]:
    yield from hybrid_cases()
    yield from refusal_cases()


def activation_case(
    name: str, activation: str, *shape: int | None, options: dict[str, Any] | None = None, **case_fields: Any
) -> Case:
    options = {"fused_activation_function": activation, **(options or {})}
    case_fields = {"out": 7, "input_range": INPUT_RANGES.get(activation, (-0.5, 0.5)), **case_fields}
    return dense_case(f"{name} with {activation}", shape or (3, 13), options=options, **case_fields)


def hybrid_cases() -> Iterator[Case]:
    """Yield cases with activations of float32 on integer weights.

    The builtin kernels apply the activations, and XNNPACK refuses them.
    """
    for activation in (*OTHER_ACTIVATIONS, "RELU_N1_TO_1"):
        for weights in ("int8", "int4", "int2"):
            for per_axis in (False, True):
                name = f"float32 by {weights} {describe_scales(per_axis)}"
                yield activation_case(name, activation, weights=weights, per_axis=per_axis)
        yield activation_case("float32 by uint8", activation, weights="uint8")
    for activation in OTHER_ACTIVATIONS:
        yield activation_case("float32 by rows of 64 int4", activation, 3, 64, weights="int4", per_axis=True)
        zero_points = {"asymmetric_quantize_inputs": True}
        yield activation_case("float32 by int8, with zero points", activation, weights="int8", options=zero_points)
        yield activation_case("float32 by int8 without bias", activation, weights="int8", bias_dtype=None)
        rank_kept: dict[str, Any] = {"keep_num_dims": True, "weights": "int8", "per_axis": True}
        yield activation_case("float32 by int8, rank kept", activation, 2, 5, 11, **rank_kept)
        image_options: dict[str, Any] = {"depth": 105, "weights": "int8", "place": between_convolutions}
        yield activation_case("float32 image by int8", activation, 2, 5, 7, 3, **image_options)
        yield activation_case("float32 by int8 at every opset", activation, weights="int8", opsets=EVERY_OPSET)
        yield activation_case("float32 by int8 for every target", activation, weights="int8", targets=TARGETS)
        yield fold_weights(activation_case("float32 by int8", activation, weights="int8", per_axis=True))
        unquantized = activation_case("float32 by int8, converted without quantization", activation, weights="int8")
        yield replace(unquantized, options={"quantization": "float"})
        arrays = [{"x0": random_array(n, 11)} for n in (1, 3)]
        yield activation_case(
            "float32 by int8, dynamic batch", activation, None, 11, weights="int8", input_arrays=arrays
        )
    yield net(OP, "float32 by int8 with TANH, then with SIGN_BIT", build_two_layers)
    zeros = {"x0": np.zeros((2, 13), np.float32)}
    x, w, b = tensor(2, 13), weight((7, 13), "int8"), constant(random_array(7, seed="b"))
    for activation in (*CLAMPS, *OTHER_ACTIVATIONS):
        options = {"fused_activation_function": activation}
        name = f"float32 rows of zeros by int8 with {activation}"
        yield in_isolation(OP, name, [x, w, b], tensor(2, 7), options=options, input_arrays=zeros)


def build_two_layers(model: Net) -> None:
    x, depth = model.input(tensor(3, 13)), 13
    for units, activation in ((11, "TANH"), (5, "SIGN_BIT")):
        w, b = weight((units, depth), "int8", seed=activation), constant(random_array(units, seed=f"b {activation}"))
        x, depth = model.call(OP, [x, w, b], tensor(3, units), fused_activation_function=activation), units
    model.output(x)


def refusal_cases() -> Iterator[Case]:
    """Yield cases with activations that the kernel refuses, and blockwise weights.

    For blockwise weights, XNNPACK and the builtin kernels disagree.
    """
    kernel_refusal = "params->activation == kTfLiteActRelu"
    for activation in OTHER_ACTIVATIONS:
        refusals: dict[str, Any] = {
            "refusal": f"LiteRT refuses a fused {activation}",
            "kernel_refusal": kernel_refusal,
        }
        for dtype in ("float32", "int8", "uint8", "int16"):
            yield activation_case(dtype, activation, dtype=dtype, **{**refusals, "input_range": None})
        refusal = f"disagree on a fused {activation} with blockwise weight scales"
        name = f"blocks of 32 with {activation}"
        yield blockwise_case(name, (3, 96), 7, 32, activation=activation, refusal=refusal)
    for activation in (*CLAMPS, *OTHER_ACTIVATIONS):
        refusal = f"disagree on a fused {activation} with blockwise weight scales, unless blocks are multiples of 32"
        yield blockwise_case(f"blocks of 16 with {activation}", (3, 80), 7, 16, activation=activation, refusal=refusal)
