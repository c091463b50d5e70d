"""Products above and below the size at which dynamic quantization is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.case import Case, Tolerance
from conformance.cases.image.convolution import conv_case
from conformance.cases.matrix.fully_connected import dense_case
from conformance.models import random_array

HYBRID: Mapping[str, Any] = {"weights": "int8", "per_axis": True}
POINTWISE: Mapping[str, Any] = {**HYBRID, "shape": (1, 13, 17, 67), "out": 73, "kernel": (1, 1)}
PATCHES: Mapping[str, Any] = {**HYBRID, "shape": (1, 11, 13, 31), "out": 29, "kernel": (3, 5)}


def cases() -> Iterator[Case]:
    yield from pointwise_conv_cases()
    yield from patch_conv_cases()
    yield from dense_layer_cases()


def pointwise_conv_cases() -> Iterator[Case]:
    yield conv_case("many pixels, float32 with int8 weights", **POINTWISE)
    yield conv_case("many pixels, float32 with int8 weights of one scale", **{**POINTWISE, "per_axis": False})
    yield conv_case("many pixels, float32 with int4 weights", **{**POINTWISE, "weights": "int4"})
    bounded: dict[str, Any] = {
        "tolerance": Tolerance(of_range=5e-2),
        "tolerance_reason": "RELU6 clips the output to a tenth of the range of the sums",
    }
    yield conv_case("many pixels with RELU6", **POINTWISE, fused_activation_function="RELU6", **bounded)
    yield conv_case("many pixels of three images", **{**POINTWISE, "shape": (3, 7, 11, 67)})
    yield conv_case("many pixels with a stride", **{**POINTWISE, "shape": (1, 26, 34, 67)}, stride=(2, 2))
    yield conv_case("one pixel and many weights", **{**POINTWISE, "shape": (1, 1, 1, 331), "out": 397})


def patch_conv_cases() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in ((1, 1), (2, 1), (1, 3)):
            sizes = {**PATCHES, "shape": (1, 11 * stride[0] + 6, 13 * stride[1] + 6, 31)}
            name = f"patches, {padding}, stride {stride[0]}x{stride[1]}"
            yield conv_case(name, **sizes, padding=padding, stride=stride)
        sizes = {**PATCHES, "shape": (1, 19, 23, 31)}
        yield conv_case(f"patches, {padding}, dilated", **sizes, padding=padding, dilation=(2, 3))
    yield conv_case("patches of three images", **{**PATCHES, "shape": (3, 11, 13, 31)})
    yield conv_case("patches with int4 weights of one scale", **{**PATCHES, "weights": "int4", "per_axis": False})
    large_kernel = {**HYBRID, "out": 131, "kernel": (3, 5)}
    yield conv_case("patches larger than an image of one pixel", **{**large_kernel, "shape": (1, 1, 1, 127)})
    yield conv_case("patches larger than an image of one row", **{**large_kernel, "shape": (1, 1, 7, 127)})
    yield conv_case("patches partly outside the image", **{**large_kernel, "shape": (1, 3, 2, 127)}, dilation=(2, 1))
    yield conv_case("patches with a stride beyond one row", **{**large_kernel, "shape": (1, 2, 5, 127)}, stride=(3, 2))


def dense_layer_cases() -> Iterator[Case]:
    yield dense_case("one row of many weights, float32 with int8 weights", (1, 1031), out=1033, **HYBRID)
    yield dense_case("one row of 134,000 weights, float32 with int8 weights", (1, 257), out=521, **HYBRID)
    yield dense_case("many rows, float32 with int8 weights", (37, 257), out=263, **HYBRID)
    for activation in ("TANH", "RELU6"):
        fused: Mapping[str, Any] = {"options": {"fused_activation_function": activation}, "input_range": (-0.05, 0.05)}
        yield dense_case(f"one row of many weights with {activation}", (1, 1031), out=1033, **fused, **HYBRID)
    yield dense_case("many rows after a flatten", (37, 7, 11, 5), depth=385, out=263, **HYBRID)
    yield dense_case("many rows of rank 3", (5, 7, 257), out=263, keep_num_dims=True, **HYBRID)
    runs = [{"x0": random_array(n, m, 257)} for n, m in ((1, 5), (3, 2))]
    yield dense_case(
        "dynamic rows of rank 3", (None, None, 257), out=4099, keep_num_dims=True, input_arrays=runs, **HYBRID
    )
