"""A constant of a few channels is repeated for several pixels: not a bit changes, and only where there are many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, image, parsed

from conformance.builder import TensorRef
from conformance.models import constant, drawn

PASS = "widen_quantized_constants"


def scaled(
    shape: Sequence[int | None] = (1, 23, 29, 3),
    op: str = "MUL",
    dtype: str = "uint8",
    first: bool = False,
    wide: bool = False,
) -> Draw:
    """An image and a constant of its channels, or of its columns too."""

    def draw(net: Network) -> TensorRef:
        columns = (shape[2] or 1) if wide else 1
        value = drawn(1, 1, columns, shape[-1] or 1, dtype=dtype, low=40, high=99)
        factor = constant(value, None, *((0.015, 3) if dtype != "float32" else ()))
        operands = [net.input(image(*shape, dtype=dtype)), factor]
        return net.like(op, *(operands[::-1] if first else operands), shape=[size or 1 for size in shape])

    return draw


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["MUL", "ADD", "SUB"])
def test_a_constant_of_few_channels_is_as_long_as_rows_are(op: str, first: bool) -> None:
    def draw(net: Network) -> TensorRef:
        operands = [
            net.input(image(1, 23, 29, 3, dtype="uint8")),
            constant(drawn(1, 1, 1, 3, dtype="uint8"), None, 0.1, 3),
        ]
        spec = image(1, 23, 29, 3, dtype="uint8")
        return net.call(op, operands[::-1] if first else operands, spec)

    applied = Applied(PASS, draw)
    assert applied.count == 1
    assert applied.equal
    (node,) = applied.nodes({"MUL": "Mul", "ADD": "Add", "SUB": "Sub"}[op])
    held = applied.held(node, 0 if first else 1)
    assert held.shape == (23 * 29 * 3,)
    assert np.array_equal(held.reshape(-1, 3), np.tile(held[:3], (23 * 29, 1)))


def test_rows_that_are_long_enough_stay_apart() -> None:
    applied = Applied(PASS, scaled((2, 23, 61, 3)))
    assert applied.equal
    assert applied.held(applied.nodes("Mul")[0], 1).shape == (61 * 3,)


def test_an_open_batch_stays_open() -> None:
    assert Applied(PASS, scaled((None, 23, 29, 3)), batch=5).equal


@pytest.mark.parametrize(
    "draw",
    [
        scaled(dtype="float32"),
        scaled((1, 11, 13, 3)),
        scaled((1, 23, 29, 17)),
        scaled((1, 23, 29, 1)),
        scaled(wide=True),
        scaled((1, None, 29, 3)),
    ],
    ids=["floats", "few pixels", "many channels", "one number", "columns too", "an open height"],
)
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied(PASS, draw).count == 0


@pytest.mark.parametrize(("axes", "count"), [((3,), 1), ((1, 1, 3), 1), ((1, 1, 1, 1, 3), 0)], ids=str)
def test_a_constant_of_more_axes_than_the_image_is_left_alone(axes: Sequence[int], count: int) -> None:
    nodes = "a = DequantizeLinear (x, s, p) b = DequantizeLinear (k, s, p) c = Mul (a, b) y = QuantizeLinear (c, s, p)"
    stored = {"s": np.float32(0.05), "p": np.uint8(120), "k": drawn(*axes, dtype="uint8")}
    result = ",".join(map(str, (1,) * (len(axes) - 4) + (1, 23, 29, 3)))
    model = parsed(f"(uint8[1,23,29,3] x) => (uint8[{result}] y) {{ {nodes} }}", **stored)
    assert apply("widen_quantized_constants", model) == count
