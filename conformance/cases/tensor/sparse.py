"""DENSIFY of sparse constants of every format and dtype, most of them weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import DEFAULT_OPSET, EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, random_array, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
OP = "DENSIFY"
KERNEL = (4, 3, 2, 3)
Operands = list[Spec | TensorRef | None]


def cases() -> Iterator[Case]:
    yield from format_cases()
    yield from weight_cases()
    yield from other_consumer_cases()
    yield net(OP, "int4", int4_weights, kernel_refusal="Type 18 not supported")


def sparsify(value: Array, seed: str = "zeros") -> Array:
    """Return the array with most elements set to zero, at random."""
    mask = random_array(*value.shape, seed=seed, low=0, high=1) < 0.4
    return np.where(mask, value, np.zeros((), value.dtype)).astype(value.dtype)


def add_densified_constant(model: Net, spec: Spec, formats: Sequence[str] = (), **storage: Any) -> TensorRef:
    """Add a sparse constant and the DENSIFY that makes it dense."""
    assert spec.value is not None
    formats = formats or ["dense"] * (spec.value.ndim - 1) + ["csr"]
    weights = model.graph.sparse(
        f"s{len(model.graph.tensors)}", sparsify(spec.value), formats, quantization=spec.quantization, **storage
    )
    return model.call(OP, [weights], replace(spec, value=None))


def format_cases() -> Iterator[Case]:
    yield storage_case("sparse last axis", ["dense", "csr"])
    yield storage_case("sparse axes", ["csr", "csr"])
    yield storage_case("dense axes", ["dense", "dense"])
    yield storage_case("columns first", ["dense", "csr"], order=(1, 0))
    yield storage_case("blocks", ["dense", "csr", "dense", "dense"], blocks=((0, 2), (1, 4)))
    yield storage_case("blocks of columns", ["dense", "csr", "dense"], blocks=((1, 4),))
    for index_dtype in ("uint8", "uint16"):
        yield storage_case(f"{index_dtype} indices", ["dense", "csr"], index_dtype=index_dtype)
    for dtype in ("float16", "int8"):
        yield storage_case(dtype, ["dense", "csr"], dtype)


def storage_case(name: str, formats: Sequence[str], dtype: str = "float32", **storage: Any) -> Case:
    """Return a case of a sparse constant.

    The model outputs the dense constant, and its sum with the input.
    """

    def build(model: Net) -> None:
        value = (
            replace(weight((6, 8), "int8"), value=random_array(6, 8, dtype=dtype))
            if dtype == "int8"
            else constant(random_array(6, 8, dtype=dtype))
        )
        w = add_densified_constant(model, replace(value, dtype=dtype), formats, **storage)
        floats = w if dtype == "float32" else model.call("DEQUANTIZE", [w], tensor(6, 8))
        model.output(w, model.call("ADD", [tensor(6, 8), floats], tensor(6, 8)))

    return net(OP, name, build, dtype=dtype)


def weight_cases() -> Iterator[Case]:
    """Yield cases with sparse weights, which must convert like constant weights.

    The weights need no Transpose and no work at runtime.
    """
    for dtype in ("float32", "int8", "int16"):
        opsets = EVERY_OPSET if dtype != "int16" else (DEFAULT_OPSET, 26)
        for per_axis in (False,) if dtype == "float32" else (False, True):
            name = f"{dtype} weights" + (" with scales per channel" if per_axis else "")
            yield net(
                OP,
                f"{name} of a convolution",
                sparse_conv(dtype, per_axis),
                dtype=dtype,
                opsets=opsets,
                max_transposes=2,
            )
            yield net(
                OP,
                f"{name} of a dense layer after a flatten",
                sparse_dense_layer(dtype, per_axis),
                dtype=dtype,
                opsets=opsets,
                max_transposes=1,
            )
    yield net(OP, "float32 with int8 weights, dynamic range", sparse_conv("float32", True, "int8"), max_transposes=2)
    yield net(
        OP,
        "float32 with int8 weights of a dense layer, dynamic range",
        sparse_dense_layer("float32", True, "int8"),
        max_transposes=1,
    )
    yield net(
        OP, "float16 weights through DEQUANTIZE", float16_filter, dtype="float16", opsets=EVERY_OPSET, max_transposes=2
    )
    yield net(OP, "weights of a depthwise convolution", sparse_depthwise_conv, max_transposes=2)
    yield net(OP, "weights of a product", sparse_matmul)


def sparse_conv(dtype: str, per_axis: bool, weight_dtype: str = "") -> Callable[[Net], None]:
    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        w = weight(KERNEL, weight_dtype or WEIGHTS[dtype], 0 if per_axis else None)
        y = product(x, w, (2, 5, 7, 4), 18)
        operands: Operands = [x, add_densified_constant(model, w), bias(x, w, 4, BIASES[dtype], 18)]
        model.output(model.call("CONV_2D", operands, y, padding="SAME", stride_h=1, stride_w=1))

    return build


def sparse_dense_layer(dtype: str, per_axis: bool, weight_dtype: str = "") -> Callable[[Net], None]:
    def build(model: Net) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        flat = image.with_shape(2, 105)
        x = model.call("RESHAPE", [model.input_through_conv(image), constant([2, 105])], flat)
        w = weight((4, 105), weight_dtype or WEIGHTS[dtype], 0 if per_axis else None)
        operands: Operands = [x, add_densified_constant(model, w), bias(flat, w, 4, BIASES[dtype], 105)]
        model.output(model.call("FULLY_CONNECTED", operands, product(flat, w, (2, 4), 105)))

    return build


def float16_filter(model: Net) -> None:
    half = add_densified_constant(model, constant(random_array(*KERNEL, dtype="float16")))
    operands: Operands = [tensor(*IMAGE), model.call("DEQUANTIZE", [half], tensor(*KERNEL)), constant(random_array(4))]
    model.output(model.call("CONV_2D", operands, tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1))


def sparse_depthwise_conv(model: Net) -> None:
    operands: Operands = [
        tensor(*IMAGE),
        add_densified_constant(model, constant(random_array(1, 3, 2, 6))),
        constant(random_array(6)),
    ]
    model.output(
        model.call(
            "DEPTHWISE_CONV_2D",
            operands,
            tensor(2, 5, 7, 6),
            padding="SAME",
            stride_h=1,
            stride_w=1,
            depth_multiplier=2,
        )
    )


def sparse_matmul(model: Net) -> None:
    model.output(
        model.call(
            "BATCH_MATMUL",
            [tensor(5, 7), add_densified_constant(model, constant(random_array(3, 7)))],
            tensor(5, 3),
            adj_y=True,
        )
    )


def other_consumer_cases() -> Iterator[Case]:
    """Yield cases of DENSIFY with two consumers, and of a consumer in planned layout."""

    def add_densified_operand(model: Net) -> None:
        x = model.input_through_conv(tensor(*IMAGE))
        c = add_densified_constant(model, constant(random_array(5, 1, 3)))
        model.output(model.output_through_conv(model.call("ADD", [x, c], tensor(*IMAGE))))

    def share_densified_weights(model: Net) -> None:
        w = add_densified_constant(model, constant(random_array(4, 3)))
        model.output(*(model.call("FULLY_CONNECTED", [tensor(n, 3), w], tensor(n, 4)) for n in (2, 5)))

    yield net(OP, "operand between convolutions", add_densified_operand, max_transposes=2)
    yield net(OP, "weights shared by two layers", share_densified_weights)
    refusal = {"refusal": "operand 0 ('x0') must be a constant"}
    yield net(
        OP,
        "runtime operand",
        lambda model: model.output(model.call(OP, [tensor(5, 3)], tensor(5, 3))),
        **refusal,
    )


def int4_weights(model: Net) -> None:
    table = weight((5, 16), "int4")
    w = model.graph.sparse("w", table.value, ["dense", "csr"], quantization=table.quantization)
    model.output(model.call("DENSIFY", [w], replace(table, value=None)))
