"""Axes of size 1 are not dropped where what reads the result broadcasts them anyhow."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import constant, tensor


def dropped(shape: tuple[int, ...], result: tuple[int, ...], other: tuple[int, ...], dtype: str = "float32") -> Draw:
    """A computed tensor without some axes, added to one that is fed."""

    def draw(net: Network) -> TensorRef:
        made = net.like("RELU", net.input(tensor(*shape, dtype=dtype)))
        flat = net.like("RESHAPE", made, constant([*result]), shape=result)
        total = max(other, result, key=len)
        return net.like("ADD", flat, net.input(tensor(*other, dtype=dtype)), shape=total)

    return draw


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("shape", "other"), [((1, 7), (1, 7)), ((1, 7), (5, 7)), ((1, 1, 7), (3, 5, 7))], ids=str)
def test_a_sum_restores_what_was_dropped(shape: tuple[int, ...], other: tuple[int, ...], dtype: str) -> None:
    applied = Applied("drop_unit_axes", dropped(shape, (7,), other, dtype))
    assert applied.count == 1
    assert not applied.nodes("Reshape")
    assert applied.equal


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    "shapes",
    [((1, 1, 7), (7,), (5, 7)), ((1, 7), (7,), (7,)), ((3, 1, 7), (21,), (1, 21)), ((3, 7), (21,), (1, 21))],
    ids=["fewer axes than were dropped", "none", "others than those of size 1", "rows in a row"],
)
def test_a_sum_of_fewer_axes_needs_the_reshape(shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    given, flat, other = shapes
    applied = Applied("drop_unit_axes", dropped(given, flat, other, dtype))
    assert len(applied.nodes("Reshape")) == 1
    assert applied.count == 0


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_what_is_given_as_a_result_keeps_its_shape(dtype: str) -> None:
    def draw(net: Network) -> tuple[TensorRef, TensorRef]:
        x = net.input(tensor(1, 7, dtype=dtype))
        flat = net.like("RESHAPE", net.like("RELU", x), constant([7]), shape=(7,))
        return flat, net.like("ADD", net.input(tensor(1, 7, dtype=dtype)), flat)

    assert Applied("drop_unit_axes", draw).count == 0


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("a = Reshape (x, flat) y = Add (z, a)", 1),
        ("a = Reshape (x, flat) y = PRelu (z, a)", 0),
        ("a = Reshape (x, flat) y = elsewhere.Add (z, a)", 0),
    ],
    ids=["a sum", "slopes, which PRelu broadcasts one way", "another domain"],
)
def test_who_broadcasts_either_operand_needs_no_reshape(nodes: str, count: int) -> None:
    graph = f"(float[1,7] x, float[5,7] z) => (float[5,7] y) {{ {nodes} }}"
    assert apply("drop_unit_axes", parsed(graph, flat=np.array([7]))) == count


@pytest.mark.parametrize(("scale", "count"), [((), 1), ((1,), 0)], ids=["one scale", "a scale along an axis"])
def test_what_is_dequantized_along_no_axis_may_have_more_of_them(scale: tuple[int, ...], count: int) -> None:
    nodes = "a = Reshape (x, flat) b = DequantizeLinear <axis = 0> (a, s, p) y = Add (z, b)"
    stored = {"flat": np.array([1]), "s": np.full(scale, 0.5, np.float32), "p": np.full(scale, 7, np.uint8)}
    model = parsed(f"(uint8[1,1] x, float[5,7] z) => (float[5,7] y) {{ {nodes} }}", **stored)
    assert apply("drop_unit_axes", model) == count


@pytest.mark.parametrize("between", ["", "b = DequantizeLinear (a, s, p) "], ids=["as it is", "dequantized"])
def test_one_that_does_not_broadcast_keeps_the_reshape(between: str) -> None:
    read, dtype = ("b", "uint8") if between else ("a", "float")
    nodes = f"a = Reshape (x, flat) {between}y = Add (z, {read}) w = Neg ({read})"
    stored = {"flat": np.array([1]), "s": np.asarray(0.5, np.float32), "p": np.asarray(7, np.uint8)}
    model = parsed(f"({dtype}[1,1] x, float[5,7] z) => (float[5,7] y, float[1] w) {{ {nodes} }}", **stored)
    assert apply("drop_unit_axes", model) == 0
