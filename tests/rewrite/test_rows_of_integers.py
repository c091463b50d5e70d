"""Products of all rows of integers with one matrix are one product, whose rows are rounded as each was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import constant, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.verify import verify

FEATURES, INPUTS = 7, 5


def steps(
    places: Sequence[int],
    dtype: str,
    *,
    batch: int | None = 3,
    biased: Sequence[int] = (),
    others: Sequence[int] = (),
) -> Draw:
    """A dense layer of 7 features of some of 4 rows, each with a scale of its own; ``others`` have weights of their own."""

    def draw(net: Network) -> tuple[TensorRef, ...]:
        given = tensor(4, batch, INPUTS, dtype=dtype)
        x, row = net.input(given), given.shaped(batch, INPUTS)
        shared, made = net.place(weight((FEATURES, INPUTS), "int8", 0)), []
        for k in places:
            part = net.call("GATHER", [x, constant(k)], row, axis=0)
            w = weight((FEATURES, INPUTS), "int8", 0, seed="other" if k in others else "w")
            y = product(given, w, (batch, FEATURES), INPUTS)
            assert isinstance(y.scale, float)
            assert isinstance(y.zero_point, int)
            y = replace(y, scale=y.scale * (1 + k / 5), zero_point=y.zero_point + (3 * k if dtype == "int8" else 0))
            b = bias(given, w, FEATURES, "int32" if dtype == "int8" else "int64", INPUTS) if k in biased else None
            dense = net.call("FULLY_CONNECTED", [part, w if k in others else shared, b], y)
            made.append(net.like("RELU", dense))
        return tuple(made)

    return draw


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("biased", [(), (0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("places", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_all_rows_are_multiplied_at_once_and_rounded_as_each_was(
    dtype: str, biased: Sequence[int], places: Sequence[int]
) -> None:
    applied = Applied("merge_step_gemms", steps(places, dtype, biased=biased))
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Gemm")) == 1
    assert verify(applied.data, applied.after).ok


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_what_is_split_are_the_tensors_that_were_rounded_alone(dtype: str) -> None:
    before = Applied("merge_reshapes", steps((0, 1, 2, 3), dtype))
    after = Applied("merge_step_gemms", steps((0, 1, 2, 3), dtype))
    names = [*after.nodes("Split")[0].output]
    assert [node.output[0] for node in before.nodes("QuantizeLinear") if node.output[0] in names] == names
    assert [after.marks(name) for name in names] == [before.marks(name) for name in names]


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize(
    ("places", "options"),
    [((0, 1, 3), {}), ((0, 1, 2, 3), {"others": (2,)}), ((0, 1, 2, 3), {"batch": None})],
    ids=["one row is left out", "one row has other weights", "an open size"],
)
def test_else_each_row_is_multiplied_by_itself(dtype: str, places: Sequence[int], options: dict[str, Any]) -> None:
    assert Applied("merge_step_gemms", steps(places, dtype, **options)).count == 0


def products(operands: str, points: str) -> str:
    """Rows of x dequantized, multiplied by these operands, and quantized with zero points of these names."""
    return "".join(
        f"""g{row} = Gather (x, k{row}) d{row} = DequantizeLinear (g{row}, s, p)
            m{row} = Gemm <transB = 1> (d{row}, {operands}) y{row} = QuantizeLinear (m{row}, s, {point}) """
        for row, point in enumerate(points)
    )


@pytest.mark.parametrize(
    ("rows", "depth", "weights", "points", "count"),
    [
        (3, 5, np.int8, "ppp", 1),
        (2, 5, np.int8, "pp", 0),
        (3, 517, np.int8, "ppp", 1),
        (3, 519, np.int8, "ppp", 0),
        (3, 5, np.uint8, "ppp", 0),
        (3, 5, np.int8, "ppq", 0),
    ],
    ids=["three rows", "two", "sums below 2**24", "sums beyond", "weights of uint8", "a result of int8 among uint8"],
)
def test_rows_of_uint8_by_int8_whose_sums_are_exact_in_float32(
    rows: int, depth: int, weights: type, points: str, count: int
) -> None:
    nodes = "w = DequantizeLinear (k, s) " + products("w", points)
    stored = {"k": np.full((7, depth), 127, weights), "s": np.float32(0.5), "p": np.uint8(3), "q": np.int8(3)}
    if weights is np.uint8:
        nodes = nodes.replace("(k, s)", "(k, s, p)")
    else:
        stored["zero"], nodes = np.int8(0), nodes.replace("(k, s)", "(k, s, zero)")
    stored |= {f"k{row}": np.array(row) for row in range(rows)}
    kinds = {"p": "uint8", "q": "int8"}
    results = ", ".join(f"{kinds[point]}[2,7] y{row}" for row, point in enumerate(points))
    model = parsed(f"(uint8[{rows},2,{depth}] x) => ({results}) {{ {nodes} }}", **stored)
    assert apply("merge_step_gemms", model) == count


@pytest.mark.parametrize(("bias", "count"), [(34171, 1), (34172, 0), (-34172, 0)])
def test_sums_are_exact_with_the_bias_they_begin_at(bias: int, count: int) -> None:
    """255 * 127 * 517 of products and 34171 are 2**24."""
    nodes = "w = DequantizeLinear (k, s, zero) b = DequantizeLinear (biases, t, none) " + products("w, b", "ppp")
    stored = {
        "k": np.full((7, 517), 127, np.int8),
        "biases": np.array([0, 0, bias, 0, 0, 0, 0], np.int32),
        "s": np.float32(0.5),
        "t": np.float32(0.25),
        "zero": np.int8(0),
        "none": np.int32(0),
        "p": np.uint8(3),
    }
    stored |= {f"k{row}": np.array(row) for row in range(3)}
    results = ", ".join(f"uint8[2,7] y{row}" for row in range(3))
    model = parsed(f"(uint8[3,2,517] x) => ({results}) {{ {nodes} }}", **stored)
    assert apply("merge_step_gemms", model) == count
