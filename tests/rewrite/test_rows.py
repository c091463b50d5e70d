"""Products of all rows of a tensor with one matrix are one product, where every row is multiplied and sizes are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, parsed

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, TensorRef
from conformance.models import constant, drawn, tensor
from onnx_tflite_plugin.rewrite.recurrent import rows_at_once


def steps(
    places: Sequence[int], *, batch: int | None = 3, others: Sequence[int] = (), axis: int = 0, half: bool = False
) -> Draw:
    """A dense layer of 7 features of some of 4 rows; ``others`` have weights of their own, ``half`` stores them as float16."""

    def draw(net: Network) -> tuple[TensorRef, ...]:
        x, bias = net.input(tensor(4, batch, 5) if axis == 0 else tensor(batch, 4, 5)), constant(drawn(7))
        shared = constant(drawn(7, 5))
        if half:
            shared = net.call("DEQUANTIZE", [constant(drawn(7, 5).astype(np.float16))], tensor(7, 5))
        made = []
        for k in places:
            row = net.call("GATHER", [x, constant(k)], tensor(batch, 5), axis=axis)
            weights = constant(drawn(7, 5, seed="other")) if k in others else shared
            dense = net.call("FULLY_CONNECTED", [row, weights, bias], tensor(batch, 7))
            made.append(net.call("TANH", [dense], tensor(batch, 7)))
        return tuple(made)

    return draw


@pytest.mark.parametrize("places", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_all_rows_are_multiplied_at_once(places: Sequence[int]) -> None:
    applied = Applied("rows_at_once", steps(places))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert [node.op_type for node in applied.after.graph.node] == ["Reshape", "Gemm", "Split", *["Tanh"] * 4]


def test_weights_of_float16_are_constants_too() -> None:
    applied = Applied("rows_at_once", steps((0, 1, 2, 3), half=True))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert len(applied.nodes("Gemm")) == 1


def test_what_is_split_is_the_tensor_that_was_multiplied_alone() -> None:
    before = Applied("reshape_once", steps((0, 1, 2, 3)))
    after = Applied("rows_at_once", steps((0, 1, 2, 3)))
    names = [node.output[0] for node in before.nodes("Gemm")]
    assert [*after.nodes("Split")[0].output] == names
    assert [after.marks(name) for name in names] == [before.marks(name) for name in names]


@pytest.mark.parametrize(
    "draw",
    [steps((0, 1, 3)), steps((0, 1, 2, 3), others=(2,)), steps((0, 1, 2, 3), batch=None), steps((0, 1, 2, 3), axis=1)],
    ids=["one row is left out", "one row has other weights", "an open size", "rows that do not lie together"],
)
def test_else_each_row_is_multiplied_by_itself(draw: Draw) -> None:
    assert Applied("rows_at_once", draw).count == 0


PRODUCTS = "a = Gather (x, k0) b = Gather (x, k1) p = Gemm <transB = 1> (a, w) q = Gemm <transB = 1> (b, w)"


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (PRODUCTS, 1),
        (PRODUCTS.replace("<transB = 1> (b", "(b"), 0),
        (PRODUCTS.replace("<transB = 1> (b", "<transB = 1, alpha = 2.0> (b"), 0),
        (PRODUCTS.replace("(x, k1)", "(z, k1)"), 0),
    ],
    ids=[
        "two rows",
        "a matrix that is turned for one",
        "a factor",
        "two tensors",
    ],
)
def test_rows_of_one_tensor_are_multiplied_by_one_matrix(nodes: str, count: int) -> None:
    stored = {"w": drawn(5, 5), "k0": np.array(0), "k1": np.array(1)}
    graph = f"(float[2,3,5] x, float[2,3,5] z) => (float[3,5] y) {{ {nodes} y = Sub (p, q) }}"
    assert rows_at_once.run(parsed(graph, **stored)) == count


def test_several_rows_at_once_are_no_row() -> None:
    """GATHER of rows known beforehand, in front of dense layers."""
    model = ModelBuilder()
    g = model.main
    x, weights = g.input("x", (5, 7)), g.constant("w", np.linspace(-1, 1, 21, dtype=np.float32).reshape(3, 7))
    for k, places in enumerate(([1, 3], [0])):
        rows, y = g.tensor(f"rows{k}", (len(places), 7)), g.tensor(f"y{k}", (len(places), 3))
        g.operator("GATHER", [x, g.constant(f"places{k}", np.array(places, np.int32))], [rows], {"axis": 0})
        g.operator("FULLY_CONNECTED", [rows, weights, None], [y])
        g.output(y)
    verification = otp.convert(model.build(), verify=True).verification
    assert verification is not None
    assert verification.ok
