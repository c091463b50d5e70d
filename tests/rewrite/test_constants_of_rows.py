"""A float constant of a few channels is repeated along a row of pixels: not a bit changes, and only where there are many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, image, parsed

from conformance.builder import TensorRef
from conformance.models import Spec, constant, drawn

PASS = "widen_constants"
ONNX = {"ADD": "Add", "DIV": "Div", "MUL": "Mul", "SUB": "Sub"}


def scaled(
    shape: Sequence[int | None] = (1, 23, 29, 3),
    op: str = "MUL",
    first: bool = False,
    factor: Sequence[int] | None = None,
    dtype: str = "float32",
) -> Draw:
    """An image and a constant, of its channels where nothing else is said."""

    def draw(net: Network) -> TensorRef:
        sizes = [size or 1 for size in shape]
        number = constant(drawn(*([sizes[-1]] if factor is None else factor), dtype="float32") + np.float32(3), None)
        pair: list[Spec | TensorRef] = [net.input(image(*shape, dtype="float32")), number]
        if dtype == "float16":
            assert number.value is not None
            halves = constant(number.value.astype(np.float16), None)
            pair[1] = net.call("DEQUANTIZE", [halves], Spec(number.shape, "float32"))
        return net.call(op, pair[::-1] if first else pair, Spec(tuple(sizes), "float32"))

    return draw


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("op", ["ADD", "DIV", "MUL", "SUB"])
def test_a_constant_of_channels_is_as_long_as_a_row(op: str, first: bool) -> None:
    applied = Applied(PASS, scaled(op=op, first=first))
    assert applied.count == 1
    assert applied.equal
    held = applied.held(applied.nodes(ONNX[op])[0], 0 if first else 1)
    assert held.shape == (29, 3)
    assert np.array_equal(held, np.tile(held[:1], (29, 1)))


@pytest.mark.parametrize("factor", [(), (1,)])
def test_one_number_for_one_channel_has_as_many_axes_as_the_image(factor: Sequence[int]) -> None:
    applied = Applied(PASS, scaled((None, 23, 29, 1), factor=factor), batch=5)
    assert applied.equal
    assert applied.held(applied.nodes("Mul")[0], 1).shape == (1, 1, 1, 1)


def test_a_row_of_as_many_channels_as_gain_by_it_is_repeated() -> None:
    assert Applied(PASS, scaled((1, 23, 29, 64))).count == 1


def test_an_open_batch_stays_open() -> None:
    applied = Applied(PASS, scaled((None, 23, 29, 3)), batch=5)
    assert applied.count == 1
    assert applied.equal


def test_constants_of_float16_are_repeated_too() -> None:
    applied = Applied(PASS, scaled(dtype="float16"))
    assert applied.count == 1
    assert applied.equal


@pytest.mark.parametrize(
    "draw",
    [
        scaled((1, 7, 9, 3)),
        scaled((1, 23, 29, 65)),
        scaled((1, 23, None, 3)),
        scaled(factor=(29, 3)),
        scaled(factor=(1,)),
        scaled((1, 5, 8209, 2)),
        scaled((667, 3)),
        scaled((667, 1), factor=(1, 1)),
    ],
    ids=[
        "few pixels",
        "many channels",
        "an open width",
        "columns too",
        "one number for all channels",
        "a row longer than the gain",
        "rows of a matrix",
        "as many axes already",
    ],
)
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied(PASS, draw).count == 0


def test_what_is_added_to_a_product_stays_its_bias() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.input(image(1, 23, 29, 7, dtype="float32"))
        w = constant(drawn(7, 11), None)
        product = net.call("BATCH_MATMUL", [x, w], Spec((1, 23, 29, 11), "float32"))
        return net.like("ADD", product, constant(drawn(11), None))

    assert Applied(PASS, draw).count == 0


@pytest.mark.parametrize(
    ("kind", "nodes", "count"),
    [
        ("float", "y = Mul (x, each)", 1),
        ("double", "y = Mul (x, each)", 0),
        ("float", "y = Mul (x, columns)", 0),
        ("float", "k = Add (image, each) y = Mul (x, k)", 1),
        ("float", "k = Mul (image, each) y = Mul (x, k)", 1),
        ("float", "m = ReduceMean (x, last) e = Add (m, eps) y = Div (x, e)", 0),
    ],
    ids=["a number a channel", "64 bits", "a number a column", "another image", "another product", "a normalization"],
)
def test_numbers_of_channels_alone_are_repeated(kind: str, nodes: str, count: int) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kind]
    each = np.arange(1, 4, dtype=dtype)
    stored = {"each": each, "columns": each[:, None], "eps": np.full(1, 1e-3, dtype), "last": np.array([3])}
    model = parsed(f"({kind}[1,23,3,3] x, {kind}[1,23,3,3] image) => ({kind}[1,23,3,3] y) {{ {nodes} }}", **stored)
    assert apply("widen_constants", model) == count


def test_two_constants_have_no_rows_to_gain() -> None:
    stored = {"image": np.ones((1, 23, 29, 3), np.float32), "each": np.ones(3, np.float32)}
    model = parsed("(float[1,23,29,3] x) => (float[1,23,29,3] y) { k = Add (image, each) y = Neg (k) }", **stored)
    assert apply("widen_constants", model) == 0
