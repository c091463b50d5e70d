"""TRANSPOSE_CONV: padding, strides, unusual sizes, dtypes of weights and biases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.cases.image.convolution import CLAMPS, COMPUTED, IMAGE
from conformance.models import constant, in_isolation, random_array, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight


def cases() -> Iterator[Case]:
    for padding in ("SAME", "VALID"):
        for stride in ((1, 1), (2, 2), (2, 3)):
            for biased in (True, False):
                name = f"float32 {padding} stride {stride[0]}x{stride[1]}" + ("" if biased else " without bias")
                yield transpose_conv_case(name, padding=padding, stride=stride, biased=biased)
        for dtype in ("int8", "uint8", "int16"):
            for biased in (True, False):
                suffix = "" if biased else " without bias"
                yield transpose_conv_case(
                    f"{dtype} {padding} stride 2 with RELU6{suffix}",
                    dtype=dtype,
                    padding=padding,
                    biased=biased,
                    activation="RELU6",
                )
        yield transpose_conv_case(f"{padding} 2x2 kernel, stride 2", padding=padding, kernel=(2, 2))
        yield transpose_conv_case(f"{padding} 2x5 kernel, stride 3x1", padding=padding, kernel=(2, 5), stride=(3, 1))
    for activation in CLAMPS:
        yield transpose_conv_case(f"float32 with {activation}", activation=activation)
    yield transpose_conv_case("int8 with scales per channel", dtype="int8", per_axis=True)
    yield transpose_conv_case("int8 with a wrong bias scale", dtype="int8", bias_scale_factor=3.0, padding="VALID")
    for activation in ("TANH", "SIGN_BIT"):
        for dtype in ("float32", "int8", "uint8", "int16"):
            name = f"{dtype} with {activation}, which the kernel ignores"
            yield transpose_conv_case(name, dtype=dtype, activation=activation)
        name = f"float32 with int8 weights and {activation}, which the kernel ignores"
        yield transpose_conv_case(name, weights="int8", per_axis=True, activation=activation)
    yield transpose_conv_case("int16 with scales per channel", dtype="int16", per_axis=True)
    yield transpose_conv_case("float32 with int8 weights", weights="int8", per_axis=True)
    yield transpose_conv_case("float32 at every opset", opsets=EVERY_OPSET)
    yield transpose_conv_case("VALID with rows after the last kernel", padding="VALID", extra=(1, 0))
    yield transpose_conv_case("SAME on an odd output", padding="SAME", extra=(-1, -1))
    yield transpose_conv_case("a kernel smaller than its stride", kernel=(1, 2), stride=(3, 3), padding="VALID")
    for padding, extra_rows in (("SAME", 0), ("SAME", -1), ("VALID", 0), ("VALID", 1)):
        for kernel, stride in (((3, 3), (2, 2)), ((2, 5), (3, 1)), ((4, 4), (2, 2))):
            name = f"runtime output shape, {padding} {kernel} stride {stride}, {extra_rows} more rows than the default"
            yield transpose_conv_case(
                name, padding=padding, kernel=kernel, stride=stride, extra=(extra_rows, 0), runtime_shape=True
            )
    for dtype in ("int8", "uint8", "int16"):
        yield transpose_conv_case(
            f"{dtype} with a runtime output shape", dtype=dtype, activation="RELU6", runtime_shape=True
        )
    yield from weight_zero_point_cases()
    yield from rank_4_bias_cases()
    refusal = "cannot come from input size"
    yield transpose_conv_case("oversized output", padding="VALID", extra=(2, 0), refusal=refusal)


def rank_4_bias_cases() -> Iterator[Case]:
    """Yield cases of transposed convolutions followed by a bias of rank 4.

    This is how litert-torch writes a batch normalization.
    """
    for dtype in ("float32", "int8"):
        x = tensor(*IMAGE, dtype=dtype)
        w = weight((4, 3, 3, 3), WEIGHTS[dtype])
        b = bias(x, w, 4, BIASES[dtype], 27)
        y = replace(product(x, w, (2, 10, 14, 4), 27), name="")
        operands = [
            constant([2, 10, 14, 4]),
            w,
            x,
            replace(b, shape=(1, 1, 1, 4), value=np.asarray(b.value)[None, None, None]),
        ]
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
        yield in_isolation(
            "TRANSPOSE_CONV", f"{dtype} with a bias of rank 4", operands, y, options=options, dtype=dtype
        )


def weight_zero_point_cases() -> Iterator[Case]:
    """Yield cases of computed weights with a zero point, which the kernels ignore."""
    for dtype in ("int8", "int16"):
        x, w = tensor(*IMAGE, dtype=dtype, zero_point=0), tensor(4, 3, 3, 3, dtype="int8", scale=0.01, zero_point=7)
        operands, y = [constant([2, 10, 14, 4]), w, x], x.with_shape(2, 10, 14, 4).rescale(0.5)
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
        yield in_isolation("TRANSPOSE_CONV", f"{dtype} by {COMPUTED}", operands, y, options=options, dtype=dtype)


def transpose_conv_case(
    name: str,
    *,
    shape: Sequence[int] = IMAGE,
    out: int = 4,
    kernel: Sequence[int] = (3, 3),
    stride: Sequence[int] = (2, 2),
    padding: str = "SAME",
    dtype: str = "float32",
    weights: str | None = None,
    per_axis: bool = False,
    biased: bool = True,
    bias_scale_factor: float = 1.0,
    activation: str = "NONE",
    extra: Sequence[int] = (0, 0),
    runtime_shape: bool = False,
    **case_fields: Any,
) -> Case:
    """Return a case of TRANSPOSE_CONV.

    ``extra``: rows and columns in addition to the default output size. ``runtime_shape``: the output shape is a graph
    input, and all sizes except the channels are dynamic. ``bias_scale_factor``: the bias scale in the file is wrong by
    this factor.
    """
    n, *size, channels = shape
    default_size = [
        s * t if padding == "SAME" else s * t + max(k - t, 0) for s, k, t in zip(size, kernel, stride, strict=True)
    ]
    result_shape = (n, *(u + e for u, e in zip(default_size, extra, strict=True)), out)
    x = tensor(*shape, dtype=dtype)
    w = weight((out, *kernel, channels), weights or WEIGHTS[dtype], 0 if per_axis else None)
    depth = prod(kernel) * channels // prod(stride) or channels
    y = product(x, w, result_shape, depth)
    b = [bias(x, w, out, BIASES[dtype], depth, bias_scale_factor)] if biased else []
    options = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "fused_activation_function": activation,
    }
    output_shape = constant(list(result_shape))
    if runtime_shape:
        images = [random_array(batch, *size, channels, dtype=dtype) for batch in (n, 1)]
        case_fields["input_arrays"] = [
            {"output_shape": np.array([len(i), *result_shape[1:]], np.int32), "image": i} for i in images
        ]
        case_fields["dynamic_sizes"] = ()  # the kernel requires equal batch sizes in the output shape and the image
        output_shape = tensor(4, dtype="int32", name="output_shape")
        x, y = replace(x.with_shape(None, None, None, channels), name="image"), y.with_shape(None, None, None, out)
    operands = [output_shape, w, x, *b]
    return in_isolation(
        "TRANSPOSE_CONV", name, operands, replace(y, name=""), options=options, **{"dtype": dtype, **case_fields}
    )
