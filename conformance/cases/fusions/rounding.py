"""Layers of float32 activations and integer weights.

Their kernels round the activations to 8 bits.

Each kernel has a scale per image, pixel or row. Images and rows differ in range, so that a wrong scale changes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case, Tolerance
from conformance.cases.fusions.convolution import ROW, decomposed_case, depthwise
from conformance.cases.image.convolution import conv_case
from conformance.cases.image.convolution_transposed import transpose_conv_case
from conformance.cases.matrix.batch_matmul import matmul_case
from conformance.cases.matrix.fully_connected import dense_case
from conformance.cases.matrix.fully_connected_int4 import blockwise_case
from conformance.models import Net, constant, net, random_array, tensor
from conformance.weights import product, weight

EXACT_ROUNDING = Tolerance(of_range=2e-6)
EXACT_ROUNDING_REASON = "activations are rounded as in the kernel, to the same integers"


def cases() -> Iterator[Case]:
    yield from image_cases()
    yield from sequence_cases()
    yield from pixel_cases()
    yield from row_cases()


def uneven_inputs(*shape: int) -> np.ndarray[Any, Any]:
    """Return inputs whose images or rows differ in range.

    Number k is multiplied by 3**k, and k is added.
    """
    items = [random_array(*shape[1:], seed=f"part {k}") * 3**k + k for k in range(shape[0])]
    return np.stack(items).astype(np.float32)


def exactly_rounded(case: Case, fusion: str, *shapes: Sequence[int], input_name: str = "x0") -> Case:
    """Return the case with a tolerance that requires the kernel's rounding.

    ``shapes``: the input shape in each run.
    """
    input_arrays: Sequence[Mapping[str, Any]] = [{input_name: uneven_inputs(*shape)} for shape in shapes]
    return replace(
        case,
        input_arrays=input_arrays,
        fusions=(fusion,),
        targets=("onnxruntime",),
        tolerance=EXACT_ROUNDING,
        tolerance_reason=EXACT_ROUNDING_REASON,
        dynamic_sizes=(),
    )


def image_cases() -> Iterator[Case]:
    """Yield cases with a scale per image.

    The image's range is divided into 255 steps. A symmetric scale divides its largest magnitude into 127 steps.
    """
    shape = (3, 5, 7, 11)
    hybrid: Mapping[str, Any] = {"shape": shape, "out": 13, "weights": "int8", "per_axis": True}
    variants: Mapping[str, Mapping[str, Any]] = {
        "rounded per image": {},
        "rounded per image, one weight scale": {"per_axis": False},
        "rounded per image, stride": {"stride": (2, 3), "padding": "VALID"},
        "rounded per image, dilated": {"dilation": (2, 1)},
        "rounded per image, int4 weights": {"weights": "int4"},
        "rounded per image symmetrically, int4 weights of one scale": {"weights": "int4", "per_axis": False},
        "rounded per image, 1x1 kernel with a stride": {"kernel": (1, 1), "stride": (2, 2)},
        "rounded per image, 1x1 kernel of int4": {"kernel": (1, 1), "weights": "int4"},
        "rounded per image, 1x1 kernel in groups": {"kernel": (1, 1), "shape": (3, 5, 7, 26), "groups": 2, "out": 14},
    }
    for name, changed_options in variants.items():
        options = {**hybrid, **changed_options}
        yield exactly_rounded(conv_case(name, **options), "CONV_2D_ROUNDED", options["shape"])
    one_image = {**hybrid, "shape": (1, 5, 7, 11)}
    yield exactly_rounded(
        conv_case("rounded per image, batch of 1", **one_image), "CONV_2D_ROUNDED", one_image["shape"]
    )
    dynamic = {**hybrid, "shape": (None, 5, 7, 11)}
    yield exactly_rounded(
        conv_case("rounded per image, dynamic batch", **dynamic), "CONV_2D_ROUNDED", shape, (1, 5, 7, 11)
    )
    depthwise_options = {**hybrid, "op": "DEPTHWISE_CONV_2D", "out": 22}
    yield exactly_rounded(conv_case("rounded per image", **depthwise_options), "DEPTHWISE_CONV_2D_ROUNDED", shape)
    for per_axis in (True, False):
        name = "rounded per image" + ("" if per_axis else ", one weight scale")
        case = transpose_conv_case(name, weights="int8", per_axis=per_axis)
        yield replace(
            case,
            fusions=("TRANSPOSE_CONV_ROUNDED",),
            targets=("onnxruntime",),
            tolerance=EXACT_ROUNDING,
            tolerance_reason=EXACT_ROUNDING_REASON,
        )


def sequence_cases() -> Iterator[Case]:
    """Yield cases of convolutions on sequences, which are padded after rounding."""
    row = replace(ROW, weights="int8", per_axis=True)
    for setting in (row, depthwise(row), replace(row, kernel=(3, 1), unit_axis=2)):
        image_kind = "row" if setting.unit_axis == 1 else "column"
        case = decomposed_case(f"sequence in a {image_kind}, rounded per image", setting)
        yield exactly_rounded(case, f"{setting.op}_ROUNDED", setting.shape)


def pixel_cases() -> Iterator[Case]:
    """Yield cases of 1 x 1 convolutions. XNNPACK computes a scale per pixel."""
    hybrid: Mapping[str, Any] = {"kernel": (1, 1), "out": 13, "weights": "int8", "per_axis": True}
    for name, shape in {"rounded per pixel": (3, 5, 7, 11), "rounded per pixel, batch of 1": (1, 5, 7, 11)}.items():
        yield exactly_rounded(conv_case(name, shape=shape, **hybrid), "CONV_2D_ROUNDED", shape)
    dynamic = conv_case("rounded per pixel, dynamic batch", shape=(None, 5, 7, 11), **hybrid)
    yield exactly_rounded(dynamic, "CONV_2D_ROUNDED", (3, 5, 7, 11), (1, 5, 7, 11))
    yield from nonnegative_pixels()


def nonnegative_pixels() -> Iterator[Case]:
    """Yield cases with 1 x 1 convolutions after RELU and similar operators.

    If all pixels are known to be nonnegative, the converted model needs no ReduceMin.
    """
    shape = (3, 5, 7, 11)
    x = tensor(*shape)

    def relu(model: Net) -> TensorRef:
        return model.call("RELU", [x], x)

    def relu_of_half(model: Net) -> TensorRef:
        image = model.add_operand(x)
        parts = [model.call("RELU", [image], x), image]
        return model.call("CONCATENATION", parts, tensor(3, 5, 7, 22), axis=3)

    def pooled(model: Net) -> TensorRef:
        window = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 2}
        return model.call("MAX_POOL_2D", [relu(model)], tensor(3, 4, 6, 11), **window)

    def shifted(activation: str) -> Callable[[Net], TensorRef]:
        shift = constant(random_array(11))
        return lambda model: model.call("ADD", [x, shift], x, fused_activation_function=activation)

    image_builders: Mapping[str, tuple[Callable[[Net], TensorRef], bool]] = {
        "RELU": (relu, True),
        "RELU and MAX_POOL_2D": (pooled, True),
        "ADD with RELU6": (shifted("RELU6"), True),
        "ADD": (shifted("NONE"), False),
        "RELU of half the channels": (relu_of_half, False),
    }
    for name, (build_image, is_nonnegative) in image_builders.items():
        case = net("CONV_2D", f"rounded per pixel, after {name}", partial(convolve_pixels, build_image))
        yield replace(
            exactly_rounded(case, "CONV_2D_ROUNDED", shape),
            nodes={"ReduceMax": 1, "ReduceMin": 0 if is_nonnegative else 1},
        )


def convolve_pixels(build_image: Callable[[Net], TensorRef], model: Net) -> None:
    """Build an image and a 1 x 1 convolution of it with int8 weights."""
    image = build_image(model)
    x = model.spec(image)
    depth = x.shape[-1] or 1
    w = weight((13, 1, 1, depth), "int8", 0)
    y = product(x, w, (*x.shape[:-1], 13), depth)
    bias = model.add_operand(constant(random_array(13)))
    model.output(model.call("CONV_2D", [image, model.add_operand(w), bias], y, padding="SAME", stride_h=1, stride_w=1))


def row_cases() -> Iterator[Case]:
    """Yield cases with a scale per row."""
    fusion = "FULLY_CONNECTED_ROUNDED"
    for name, weights, per_axis in (
        ("int8", "int8", True),
        ("per-tensor int8", "int8", False),
        ("int4", "int4", True),
        ("per-tensor int4", "int4", False),
        ("int2", "int2", True),
        ("per-tensor int2", "int2", False),
    ):
        hybrid: Mapping[str, Any] = {"out": 13, "weights": weights, "per_axis": per_axis}
        yield exactly_rounded(dense_case(f"rounded per row, {name} weights", (3, 44), **hybrid), fusion, (3, 44))
        yield exactly_rounded(
            dense_case(f"rounded per row, {name} weights, one row", (1, 44), **hybrid), fusion, (1, 44)
        )
    int8: Mapping[str, Any] = {"out": 13, "weights": "int8", "per_axis": True}
    yield exactly_rounded(
        dense_case("rounded per row, rank 3", (3, 5, 11), keep_num_dims=True, **int8), fusion, (3, 5, 11)
    )
    yield exactly_rounded(
        dense_case("rounded per row, flattened input", (3, 5, 11), depth=55, **int8), fusion, (3, 5, 11)
    )
    yield exactly_rounded(
        dense_case("rounded per row, dynamic number of rows", (None, 11), **int8), fusion, (3, 11), (1, 11)
    )
    dynamic = dense_case("rounded per row, two dynamic dimensions", (None, None, 11), keep_num_dims=True, **int8)
    yield exactly_rounded(dynamic, fusion, (3, 5, 11), (1, 2, 11))
    for name, shape, outputs, size in (
        ("blocks of 32", (3, 96), 7, 32),
        ("blocks of 96", (3, 480), 7, 96),
        ("blocks of 64, rank 3", (3, 5, 320), 11, 64),
    ):
        case = blockwise_case(f"rounded per row, {name}", shape, outputs, size, keep_num_dims=len(shape) > 2)
        yield exactly_rounded(case, fusion, shape)
    zeros = exactly_rounded(
        dense_case("rounded per row, row of zeros between others", (3, 11), **int8), fusion, (3, 11)
    )
    yield replace(zeros, input_arrays=[{"x0": uneven_inputs(3, 11) * np.array([[1], [0], [1]], np.float32)}])
    for name, axis in (("int8", 1), ("per-tensor int8", None)):
        case = matmul_case(f"rounded per row, {name} weights", tensor(2, 5, 7), weight((7, 3), "int8", axis))
        yield exactly_rounded(case, "BATCH_MATMUL_ROUNDED", (2, 5, 7))
    columns = matmul_case("rounded per column", tensor(2, 5, 7), weight((7, 3), "int8"), (True, False))
    yield exactly_rounded(columns, "BATCH_MATMUL_ROUNDED", (2, 7, 5))
