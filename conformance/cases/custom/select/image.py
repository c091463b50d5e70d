"""TensorFlow's operators on images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import constant, in_isolation, tensor
from conformance.tensorflow import case, node, select_options, stored_cases, tensorflow_cases
from onnx_tflite_plugin.source.model import Array

OPERATORS = (
    "AvgPool",
    "BiasAdd",
    "Conv2D",
    "Conv3D",
    "DepthwiseConv2dNative",
    "MaxPool",
    "ResizeBilinear",
    "ResizeNearestNeighbor",
)
STATIC_ONLY = (
    "Conv2D, SAME, strides [2, 3]",
    "Conv2D, filters at runtime",
    "Conv2D, groups",
    "DepthwiseConv2dNative, VALID, filters at runtime",
)
"""Cases that need static sizes, in ONNX or for the built-in operator."""

CHANNELS_FIRST_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "Conv2D, SAME, strides [1, 1]": {"strides": (1, 1, 1, 1), "padding": "SAME"},
    "Conv2D, VALID, strides [2, 3]": {"strides": (1, 1, 2, 3), "padding": "VALID"},
    "DepthwiseConv2dNative, SAME": {"strides": (1, 1, 2, 2), "padding": "SAME"},
    "MaxPool, SAME": {"ksize": (1, 1, 3, 2), "strides": (1, 1, 2, 2), "padding": "SAME"},
    "AvgPool, VALID": {"ksize": (1, 1, 3, 2), "strides": (1, 1, 2, 2), "padding": "VALID"},
}
"""NCHW attributes of the stored cases that are also converted channels first."""


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS, static_only=STATIC_ONLY)
    yield from channels_first_cases()
    yield from refusal_cases()


def channels_first_cases() -> Iterator[Case]:
    """Yield the stored channels-last cases, permuted to channels first.

    TensorFlow has channels-first kernels only for GPUs.
    """
    for stored in stored_cases():
        attributes = CHANNELS_FIRST_ATTRIBUTES.get(f"{stored.op}, {stored.name}")
        if attributes is None:
            continue
        image, *operands = stored.operands
        channels_first_case = replace(
            stored,
            node=node(stored.op, {**attributes, "data_format": "NCHW", "T": "float32"}),
            operands=(move_channels_first(image), *operands),
            results=tuple(map(move_channels_first, stored.results)),
        )
        yield case(channels_first_case, f"{stored.name}, channels first", static=True, nodes={"Transpose": 0})


def move_channels_first(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def refusal_cases() -> Iterator[Case]:
    x, w = tensor(1, 5, 7, 3), constant(np.ones((1, 1, 3, 2)), "float32")
    for name, attributes, refusal in (
        ("unsupported data format", {"data_format": "NCHW_VECT_C"}, "data_format is NCHW_VECT_C"),
        ("strides along channels", {"strides": (1, 1, 1, 2)}, "the entries for batch and channels must be 1"),
        ("no padding", {"padding": ""}, "padding is missing"),
        (
            "list instead of a string",
            {"padding": (1, 2)},
            "attribute 'padding' of the NodeDef is tuple, expected bytes",
        ),
    ):
        options = select_options("Conv2D", node("Conv2D", {"strides": (1, 1, 1, 1), "padding": "VALID", **attributes}))
        yield in_isolation(
            "CUSTOM.FlexConv2D", name, [x, w], tensor(1, 5, 7, 2), custom_options=options, refusal=refusal
        )
