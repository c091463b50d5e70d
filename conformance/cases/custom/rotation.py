"""aeq.hadamard_rotation: one or two products, blocks, dynamic rows, skipped sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, in_isolation, net, random_array
from onnx_tflite_plugin.source.model import Array

OP = "CUSTOM.aeq.hadamard_rotation"


def cases() -> Iterator[Case]:
    yield rotation_case("rows of one block", (7, 32), 32, opsets=EVERY_OPSET)
    yield rotation_case("batches of rows of three blocks", (3, 5, 48), 16, opsets=EVERY_OPSET)
    yield rotation_case("blocks of one element", (7, 11), 1)
    yield rotation_case("blocks of two elements", (7, 22), 2)
    yield rotation_case("largest single product", (3, 5, 384), 128)
    yield rotation_case("two products of one size", (3, 5, 256), 256)
    yield rotation_case("two products of different sizes", (3, 5, 1536), 512, opsets=EVERY_OPSET)
    # LiteRT's kernel does not resize its output.
    yield rotation_case("dynamic rows", (None, 64), 64, reference=partial(rotate, size=64), opsets=EVERY_OPSET)
    yield rotation_case("dynamic batches and rows", (None, None, 256), 256, reference=partial(rotate, size=256))
    yield dense_case()
    yield rotation_case("six elements", (7, 12), 6, refusal="requires a power of two")
    yield rotation_case("no size", (7, 12), 0, refusal="requires a power of two")
    yield rotation_case("incomplete block", (7, 12), 8, refusal="not a multiple of")
    yield rotation_case("vector", (32,), 32, refusal="requires 2 or 3")
    yield rotation_case("four dimensions", (2, 3, 5, 32), 32, refusal="requires 2 or 3")


def rotation_case(name: str, shape: tuple[int | None, ...], size: int, **case_fields: Any) -> Case:
    """Return a case of one rotation, with the signs that AI Edge Quantizer writes."""
    options = {"hadamard_size": size, "random_binary_vector": [1] * size}
    return in_isolation(OP, name, [Spec(shape)], Spec(shape), custom_options=options, **case_fields)


def rotate(inputs: Sequence[Array], size: int) -> list[Array]:
    """Return the fast Walsh-Hadamard transform of each block of the last axis."""
    (x,) = inputs
    values, step = x.astype(np.float64).reshape(-1, size), 1
    while step < size:
        pairs = values.reshape(-1, 2, step)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1, size)
        step *= 2
    return [(values / np.sqrt(size)).astype(np.float32).reshape(x.shape)]


def dense_case() -> Case:
    """Return a case in which signs of -1 precede a dense layer.

    The kernel ignores these signs.
    """

    def build(model: Net) -> None:
        options = {"hadamard_size": 16, "random_binary_vector": [-1] * 16}
        (rotated,) = model.call_multi_output(OP, [Spec((5, 32))], Spec((5, 32)), custom_options=options)
        weights = constant(random_array(7, 32))
        model.output(model.call("FULLY_CONNECTED", [rotated, weights], Spec((5, 7))))

    return net(OP, "negative signs before a dense layer", build)
