"""Float32 activations on integer weights in networks of few layers: rounded to 8 bits by the rule of each kernel.

Images and rows differ in range, so that a scale for all of them is seen.
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

TIGHT = Tolerance(of_range=2e-6)
WHY = "values rounded like the kernel equal LiteRT's"


def cases() -> Iterator[Case]:
    yield from image_cases()
    yield from sequence_cases()
    yield from pixel_cases()
    yield from row_cases()


def uneven_inputs(*shape: int) -> np.ndarray[Any, Any]:
    """Return inputs with one image or row larger than the others and further from 0."""
    parts = [random_array(*shape[1:], seed=f"part {k}") * 3**k + k for k in range(shape[0])]
    return np.stack(parts).astype(np.float32)


def compared_with_litert(case: Case, fusion: str, *shapes: Sequence[int], name: str = "x0") -> Case:
    """Return the case with inputs of these shapes, compared with LiteRT."""
    given: Sequence[Mapping[str, Any]] = [{name: uneven_inputs(*shape)} for shape in shapes]
    return replace(
        case,
        input_arrays=given,
        fusions=(fusion,),
        targets=("onnxruntime",),
        tolerance=TIGHT,
        tolerance_reason=WHY,
        dynamic_sizes=(),
    )


def image_cases() -> Iterator[Case]:
    """Yield cases with a scale per image: 255 steps over its range, or 127 to its largest magnitude."""
    shape = (3, 5, 7, 11)
    hybrid: Mapping[str, Any] = {"shape": shape, "out": 13, "weights": "int8", "per_axis": True}
    variants: Mapping[str, Mapping[str, Any]] = {
        "images rounded one by one": {},
        "images rounded one by one, for one scale": {"per_axis": False},
        "images rounded one by one, with a stride": {"stride": (2, 3), "padding": "VALID"},
        "images rounded one by one, dilated": {"dilation": (2, 1)},
        "images rounded one by one, for int4": {"weights": "int4"},
        "images rounded to their largest magnitude, for int4 of one scale": {"weights": "int4", "per_axis": False},
        "pixels under a stride rounded as an image": {"kernel": (1, 1), "stride": (2, 2)},
        "pixels for int4 rounded as an image": {"kernel": (1, 1), "weights": "int4"},
        "pixels in groups rounded as an image": {"kernel": (1, 1), "shape": (3, 5, 7, 26), "groups": 2, "out": 14},
    }
    for text, more in variants.items():
        options = {**hybrid, **more}
        yield compared_with_litert(conv_case(text, **options), "CONV_2D_ROUNDED", options["shape"])
    one_image = {**hybrid, "shape": (1, 5, 7, 11)}
    yield compared_with_litert(conv_case("one image rounded", **one_image), "CONV_2D_ROUNDED", one_image["shape"])
    opened = {**hybrid, "shape": (None, 5, 7, 11)}
    yield compared_with_litert(
        conv_case("dynamic number of rounded images", **opened), "CONV_2D_ROUNDED", shape, (1, 5, 7, 11)
    )
    deep = {**hybrid, "op": "DEPTHWISE_CONV_2D", "out": 22}
    yield compared_with_litert(
        conv_case("images of each channel rounded one by one", **deep), "DEPTHWISE_CONV_2D_ROUNDED", shape
    )
    for per_axis in (True, False):
        text = "images rounded one by one" + ("" if per_axis else ", for one scale")
        case = transpose_conv_case(text, weights="int8", per_axis=per_axis)
        yield replace(
            case, fusions=("TRANSPOSE_CONV_ROUNDED",), targets=("onnxruntime",), tolerance=TIGHT, tolerance_reason=WHY
        )


def sequence_cases() -> Iterator[Case]:
    """Yield cases with a row of zeros and other rows around it."""
    row = replace(ROW, weights="int8", per_axis=True)
    for setting in (row, depthwise(row), replace(row, kernel=(3, 1), unit_axis=2)):
        along = "row" if setting.unit_axis == 1 else "column"
        case = decomposed_case(f"a sequence in a {along} rounded one by one", setting)
        yield compared_with_litert(case, f"{setting.op}_ROUNDED", setting.shape)


def pixel_cases() -> Iterator[Case]:
    """Yield convolutions of single pixels, which XNNPACK computes as a product of rows."""
    hybrid: Mapping[str, Any] = {"kernel": (1, 1), "out": 13, "weights": "int8", "per_axis": True}
    for text, shape in {"pixels": (3, 5, 7, 11), "pixels of one image": (1, 5, 7, 11)}.items():
        yield compared_with_litert(
            conv_case(f"{text} rounded one by one", shape=shape, **hybrid), "CONV_2D_ROUNDED", shape
        )
    opened = conv_case("pixels rounded one by one, dynamic number of images", shape=(None, 5, 7, 11), **hybrid)
    yield compared_with_litert(opened, "CONV_2D_ROUNDED", (3, 5, 7, 11), (1, 5, 7, 11))
    yield from nonnegative_pixels()


def nonnegative_pixels() -> Iterator[Case]:
    """Yield products of pixels whose lowest value is known to be 0, and of such as only look so."""
    shape = (3, 5, 7, 11)
    x = tensor(*shape)

    def relu(model: Net) -> TensorRef:
        return model.call("RELU", [x], x)

    def relu_in_part(model: Net) -> TensorRef:
        image = model.add_operand(x)
        parts = [model.call("RELU", [image], x), image]
        return model.call("CONCATENATION", parts, tensor(3, 5, 7, 22), axis=3)

    def pooled(model: Net) -> TensorRef:
        window = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_height": 2, "filter_width": 2}
        return model.call("MAX_POOL_2D", [relu(model)], tensor(3, 4, 6, 11), **window)

    def shifted(activation: str) -> Callable[[Net], TensorRef]:
        shift = constant(random_array(11))
        return lambda model: model.call("ADD", [x, shift], x, fused_activation_function=activation)

    lowest_is_zero: Mapping[str, tuple[Callable[[Net], TensorRef], bool]] = {
        "RELU": (relu, True),
        "RELU and MAX_POOL_2D": (pooled, True),
        "ADD with RELU6": (shifted("RELU6"), True),
        "ADD": (shifted("NONE"), False),
        "RELU of half the channels": (relu_in_part, False),
    }
    for text, (build_image, is_zero) in lowest_is_zero.items():
        case = net("CONV_2D", f"pixels rounded after {text}", partial(multiply_pixels, build_image))
        yield replace(
            compared_with_litert(case, "CONV_2D_ROUNDED", shape),
            nodes={"ReduceMax": 1, "ReduceMin": 0 if is_zero else 1},
        )


def multiply_pixels(build_image: Callable[[Net], TensorRef], model: Net) -> None:
    """Build an image and multiply each pixel by int8 weights."""
    image = build_image(model)
    x = model.spec(image)
    depth = x.shape[-1] or 1
    w = weight((13, 1, 1, depth), "int8", 0)
    y = product(x, w, (*x.shape[:-1], 13), depth)
    bias = model.add_operand(constant(random_array(13)))
    model.output(model.call("CONV_2D", [image, model.add_operand(w), bias], y, padding="SAME", stride_h=1, stride_w=1))


def row_cases() -> Iterator[Case]:
    """Yield cases with a scale per row."""
    fused = "FULLY_CONNECTED_ROUNDED"
    for text, weights, per_axis in (
        ("int8", "int8", True),
        ("int8 of one scale", "int8", False),
        ("int4", "int4", True),
        ("int4 of one scale", "int4", False),
        ("int2", "int2", True),
        ("int2 of one scale", "int2", False),
    ):
        hybrid: Mapping[str, Any] = {"out": 13, "weights": weights, "per_axis": per_axis}
        yield compared_with_litert(
            dense_case(f"rows rounded one by one, for {text}", (3, 44), **hybrid), fused, (3, 44)
        )
        yield compared_with_litert(dense_case(f"one row rounded, for {text}", (1, 44), **hybrid), fused, (1, 44))
    int8: Mapping[str, Any] = {"out": 13, "weights": "int8", "per_axis": True}
    yield compared_with_litert(dense_case("rounded rows of rank 3", (3, 5, 11), keep=True, **int8), fused, (3, 5, 11))
    yield compared_with_litert(
        dense_case("rows rounded, of a flatten", (3, 5, 11), depth=55, **int8), fused, (3, 5, 11)
    )
    yield compared_with_litert(
        dense_case("dynamic number of rounded rows", (None, 11), **int8), fused, (3, 11), (1, 11)
    )
    many = dense_case("rounded rows with two dynamic dimensions", (None, None, 11), keep=True, **int8)
    yield compared_with_litert(many, fused, (3, 5, 11), (1, 2, 11))
    for text, shape, outputs, size in (
        ("blocks of 32", (3, 96), 7, 32),
        ("blocks of 96", (3, 480), 7, 96),
        ("blocks of 64, rows of rank 3", (3, 5, 320), 11, 64),
    ):
        case = blockwise_case(f"rows rounded one by one, for {text}", shape, outputs, size, keep=len(shape) > 2)
        yield compared_with_litert(case, fused, shape)
    zeros = compared_with_litert(dense_case("a row of zeros between others", (3, 11), **int8), fused, (3, 11))
    yield replace(zeros, input_arrays=[{"x0": uneven_inputs(3, 11) * np.array([[1], [0], [1]], np.float32)}])
    for text, axis in (("", 1), (" of one scale", None)):
        product = matmul_case(f"rows rounded one by one, for int8{text}", tensor(2, 5, 7), weight((7, 3), "int8", axis))
        yield compared_with_litert(product, "BATCH_MATMUL_ROUNDED", (2, 5, 7))
    columns = matmul_case("columns rounded one by one", tensor(2, 5, 7), weight((7, 3), "int8"), (True, False))
    yield compared_with_litert(columns, "BATCH_MATMUL_ROUNDED", (2, 7, 5))
