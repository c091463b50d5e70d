"""A product of rows, reshaped to them and back, is one of the tensor, where nothing else needs the matrix or the rows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from passes_networks import Applied, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import Spec, constant, drawn, tensor
from conformance.weights import weight

NAME = "gemm_to_matmul"


def dense(net: Network, x: TensorRef, features: int, weights: Spec | TensorRef | None = None) -> TensorRef:
    """FULLY_CONNECTED that keeps the axes."""
    *lead, depth = net.spec(x).shape
    assert depth is not None
    given = constant(drawn(features, depth)) if weights is None else weights
    return net.call("FULLY_CONNECTED", [x, given], tensor(*lead, features), keep_num_dims=True)


def kinds(applied: Applied) -> list[str]:
    return [node.op_type for node in applied.after.graph.node]


@pytest.mark.parametrize("rows", [1, 3, None])
def test_no_reshape_is_left_around_a_product(rows: int | None) -> None:
    applied = Applied(NAME, lambda net: dense(net, net.input(tensor(2, rows, 5)), 7), batch=3)
    assert applied.count == 1
    assert kinds(applied) == ["MatMul"]
    assert applied.near(1e-6)


def test_a_result_of_another_shape_is_reshaped_once() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.input(tensor(2, 3, 5))
        made = net.call("FULLY_CONNECTED", [x, constant(drawn(7, 5))], tensor(6, 7))
        return net.call("RESHAPE", [made, constant([2, 21])], tensor(2, 21))

    applied = Applied(NAME, draw)
    assert applied.count == 1
    assert kinds(applied) == ["MatMul", "Reshape"]
    assert applied.near(1e-6)


@pytest.mark.parametrize("axis", [None, 0])
def test_integers_beside_a_rounded_row_are_turned_with_their_scales(axis: int | None) -> None:
    def draw(net: Network) -> TensorRef:
        return dense(net, net.input(tensor(1, 1, 5)), 7, weight((7, 5), "int8", axis))

    applied = Applied(NAME, draw)
    assert applied.count == 1
    (product,) = applied.nodes("MatMul")
    assert applied.held(product, 1).dtype == "int8"
    assert applied.held(product, 1).shape == (5, 7)
    assert not applied.nodes("Reshape")
    assert applied.near(1e-5)


def test_a_table_that_is_read_too_is_not_stored_twice() -> None:
    def draw(net: Network) -> tuple[TensorRef, TensorRef]:
        table = net.place(constant(drawn(7, 5)))
        read = net.call("GATHER", [table, net.input(tensor(3, dtype="int32", scale=0))], tensor(3, 5))
        return dense(net, net.input(tensor(2, 3, 5)), 7, table), read

    assert Applied(NAME, draw).count == 0


def test_a_product_that_adds_a_bias_stays() -> None:
    def draw(net: Network) -> TensorRef:
        bias = constant(drawn(7, seed="bias"))
        operands = [net.input(tensor(2, 3, 5)), constant(drawn(7, 5)), bias]
        return net.call("FULLY_CONNECTED", operands, tensor(2, 3, 7), keep_num_dims=True)

    assert Applied(NAME, draw).count == 0


def test_rows_made_of_several_stay() -> None:
    def draw(net: Network) -> TensorRef:
        made = net.call("FULLY_CONNECTED", [net.input(tensor(2, 3, 5)), constant(drawn(7, 15))], tensor(2, 7))
        return net.call("RESHAPE", [made, constant([7, 2])], tensor(7, 2))

    assert Applied(NAME, draw).count == 0


ROWS = "a = Reshape (x, flat) b = Gemm <transB = 1> (a, w) y = Reshape (b, back)"


@pytest.mark.parametrize(
    ("given", "nodes", "back", "left"),
    [
        ("2,3,5", ROWS, [2, 3, 7], ["MatMul"]),
        ("m,n,5", ROWS, [3, 2, 7], ["MatMul", "Reshape"]),
        ("2,3,5", ROWS, [0, 7], ["Reshape", "Gemm", "Reshape"]),
        (
            "5,2,5",
            ROWS.replace("flat", "first").replace("<", "<transA = 1, "),
            [2, 5, 7],
            ["Reshape", "Gemm", "Reshape"],
        ),
        (
            "2,3,5",
            ROWS.replace("b =", "k = Mul (w, each) b =").replace("a, w", "a, k"),
            [2, 3, 7],
            ["Reshape", "Mul", "Gemm", "Reshape"],
        ),
    ],
    ids=["rows", "two open sizes", "a size of what is reshaped", "columns", "a scale for each column"],
)
def test_products_of_rows_alone_are_those_of_tensors(given: str, nodes: str, back: list[int], left: list[str]) -> None:
    shapes = {"flat": np.array([-1, 5]), "first": np.array([5, -1]), "back": np.array(back)}
    model = parsed(f"(float[{given}] x) => (float[{','.join('rst'[:len(back)])}] y) {{ {nodes} }}",
                   w=drawn(7, 5), each=drawn(5), **shapes)  # fmt: skip
    if "m,n" in given:
        model.graph[2].outputs[0].shape = ir.Shape([None, None, 7])
    apply("gemm_to_matmul", model)
    assert [node.op_type for node in model.graph] == left
    assert all(value.dtype == ir.DataType.FLOAT for node in model.graph for value in node.outputs)
