"""DENSIFY: sparse constants of every format before what takes constant weights: float32, float16 and quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, drawn, net, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight
from onnx_tflite_plugin.source.model import Array

IMAGE = (2, 5, 7, 3)
OP = "DENSIFY"
KERNEL = (4, 3, 2, 3)
Operands = list[Spec | TensorRef | None]


def cases() -> Iterator[Case]:
    yield from formats()
    yield from weights()
    yield from elsewhere()
    yield net(OP, "int4", of_four_bits, kernel_refuses="Type 18 not supported")


def thinned(value: Array, seed: str = "zeros") -> Array:
    """Most elements are zero."""
    kept = drawn(*value.shape, seed=seed, low=0, high=1) < 0.4
    return np.where(kept, value, np.zeros((), value.dtype)).astype(value.dtype)


def dense(model: Net, spec: Spec, kinds: Sequence[str] = (), **storage: Any) -> TensorRef:
    """A sparse constant, and the operator that makes it dense."""
    assert spec.value is not None
    kinds = kinds or ["dense"] * (spec.value.ndim - 1) + ["csr"]
    weights = model.graph.sparse(
        f"s{len(model.graph.tensors)}", thinned(spec.value), kinds, quantization=spec.quantization, **storage
    )
    return model.call(OP, [weights], replace(spec, value=None))


def formats() -> Iterator[Case]:
    yield stored("the last axis sparse", ["dense", "csr"])
    yield stored("both axes sparse", ["csr", "csr"])
    yield stored("all dense", ["dense", "dense"])
    yield stored("columns first", ["dense", "csr"], order=(1, 0))
    yield stored("blocks", ["dense", "csr", "dense", "dense"], blocks=((0, 2), (1, 4)))
    yield stored("blocks of columns", ["dense", "csr", "dense"], blocks=((1, 4),))
    for index in ("uint8", "uint16"):
        yield stored(f"{index} indices", ["dense", "csr"], index=index)
    for dtype in ("float16", "int8"):
        yield stored(dtype, ["dense", "csr"], dtype)


def stored(name: str, kinds: Sequence[str], dtype: str = "float32", **storage: Any) -> Case:
    """The dense value itself is what the model gives, and what it adds to its input."""

    def draw(model: Net) -> None:
        value = (
            replace(weight((6, 8), "int8"), value=drawn(6, 8, dtype=dtype))
            if dtype == "int8"
            else constant(drawn(6, 8, dtype=dtype))
        )
        w = dense(model, replace(value, dtype=dtype), kinds, **storage)
        floats = w if dtype == "float32" else model.call("DEQUANTIZE", [w], tensor(6, 8))
        model.output(w, model.call("ADD", [tensor(6, 8), floats], tensor(6, 8)))

    return net(OP, name, draw, dtype=dtype)


def weights() -> Iterator[Case]:
    """Taken as constant weights are: no Transpose, no work as the model runs."""
    for dtype in ("float32", "int8", "int16"):
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        for per_axis in (False, True)[: 1 if dtype == "float32" else 2]:
            text = f"{dtype} weights" + (" with scales per channel" if per_axis else "")
            yield net(
                OP, f"{text} of a convolution", convolved(dtype, per_axis), dtype=dtype, opsets=opsets, transposes=2
            )
            yield net(
                OP,
                f"{text} of a dense layer after a flatten",
                layered(dtype, per_axis),
                dtype=dtype,
                opsets=opsets,
                transposes=1,
            )
    yield net(OP, "float32 with int8 weights, quantized as it runs", convolved("float32", True, "int8"), transposes=2)
    yield net(
        OP,
        "float32 with int8 weights of a dense layer, quantized as it runs",
        layered("float32", True, "int8"),
        transposes=1,
    )
    yield net(OP, "float16 weights through DEQUANTIZE", halved, dtype="float16", opsets=EVERY_OPSET, transposes=2)
    yield net(OP, "weights of a depthwise convolution", deep, transposes=2)
    yield net(OP, "weights of a product", multiplied)


def convolved(dtype: str, per_axis: bool, stored: str = "") -> Callable[[Net], None]:
    def draw(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        w = weight(KERNEL, stored or WEIGHTS[dtype], 0 if per_axis else None)
        y = product(x, w, (2, 5, 7, 4), 18)
        operands: Operands = [x, dense(model, w), bias(x, w, 4, BIASES[dtype], 18)]
        model.output(model.call("CONV_2D", operands, y, padding="SAME", stride_h=1, stride_w=1))

    return draw


def layered(dtype: str, per_axis: bool, stored: str = "") -> Callable[[Net], None]:
    def draw(model: Net) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        flat = image.shaped(2, 105)
        x = model.call("RESHAPE", [model.plumbed(image), constant([2, 105])], flat)
        w = weight((4, 105), stored or WEIGHTS[dtype], 0 if per_axis else None)
        operands: Operands = [x, dense(model, w), bias(flat, w, 4, BIASES[dtype], 105)]
        model.output(model.call("FULLY_CONNECTED", operands, product(flat, w, (2, 4), 105)))

    return draw


def halved(model: Net) -> None:
    half = dense(model, constant(drawn(*KERNEL, dtype="float16")))
    operands: Operands = [tensor(*IMAGE), model.call("DEQUANTIZE", [half], tensor(*KERNEL)), constant(drawn(4))]
    model.output(model.call("CONV_2D", operands, tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1))


def deep(model: Net) -> None:
    operands: Operands = [tensor(*IMAGE), dense(model, constant(drawn(1, 3, 2, 6))), constant(drawn(6))]
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


def multiplied(model: Net) -> None:
    model.output(
        model.call("BATCH_MATMUL", [tensor(5, 7), dense(model, constant(drawn(3, 7)))], tensor(5, 3), adj_y=True)
    )


def elsewhere() -> Iterator[Case]:
    """As an operand that must follow the layout, and twice."""

    def added(model: Net) -> None:
        x = model.plumbed(tensor(*IMAGE))
        c = dense(model, constant(drawn(5, 1, 3)))
        model.output(model.drained(model.call("ADD", [x, c], tensor(*IMAGE))))

    def shared(model: Net) -> None:
        w = dense(model, constant(drawn(4, 3)))
        model.output(*(model.call("FULLY_CONNECTED", [tensor(n, 3), w], tensor(n, 4)) for n in (2, 5)))

    yield net(OP, "an operand between convolutions", added, transposes=2)
    yield net(OP, "the weights of two layers", shared)
    refused = {"refused": "operand 0 ('x0') must be a constant"}
    yield net(
        OP,
        "an operand that is no constant",
        lambda model: model.output(model.call(OP, [tensor(5, 3)], tensor(5, 3))),
        **refused,
    )


def of_four_bits(model: Net) -> None:
    table = weight((5, 16), "int4")
    w = model.graph.sparse("w", table.value, ["dense", "csr"], quantization=table.quantization)
    model.output(model.call("DENSIFY", [w], replace(table, value=None)))
