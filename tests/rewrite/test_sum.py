"""What is added to a float product of matrices is added by it, where nothing else needs the product or the sum of two."""

from __future__ import annotations

import pytest
from passes_networks import Applied, Network

from conformance.builder import TensorRef
from conformance.models import constant, drawn, tensor


def product(net: Network, x: TensorRef, features: int, seed: str, *, biased: bool = False) -> TensorRef:
    rows, columns = net.spec(x).shape
    assert columns is not None
    bias = [constant(drawn(features, seed="bias"))] if biased else []
    weights = constant(drawn(features, columns, seed=seed))
    return net.call("FULLY_CONNECTED", [x, weights, *bias], tensor(rows, features))


def unrolled(net: Network) -> TensorRef:
    """Two time steps: products with the input and the last output, in either order, and a bias."""
    bias, last = constant(drawn(7)), net.input(tensor(3, 7))
    for step in range(2):
        x = net.input(tensor(3, 5))
        kept = product(net, last, 7, "output") if step else None
        seen = product(net, x, 7, "input")
        kept = product(net, last, 7, "output") if kept is None else kept
        sums = net.call("ADD", [net.call("ADD", [seen, kept], tensor(3, 7)), bias], tensor(3, 7))
        last = net.call("TANH", [sums], tensor(3, 7))
    return last


def test_products_and_bias_of_a_time_step_are_two_nodes() -> None:
    applied = Applied("add_to_gemm", unrolled)
    assert applied.count == 4
    assert applied.near(1e-6)
    assert [node.op_type for node in applied.after.graph.node] == ["Gemm", "Gemm", "Tanh"] * 2
    with_bias, recurrent = applied.nodes("Gemm")[2:]
    assert recurrent.input[2] == with_bias.output[0]
    assert recurrent.input[0] == applied.nodes("Tanh")[0].output[0]


def test_what_a_product_holds_now_is_no_tensor_of_the_file() -> None:
    applied = Applied("add_to_gemm", unrolled)
    with_bias, recurrent = applied.nodes("Gemm")[2:]
    assert not applied.marks(with_bias.output[0])
    assert applied.marks(recurrent.output[0])


def test_a_shape_in_between_is_no_hindrance() -> None:
    def draw(net: Network) -> TensorRef:
        kept = product(net, net.input(tensor(1, 5)), 7, "w")
        flat = net.call("RESHAPE", [kept, constant([7])], tensor(7))
        return net.call("ADD", [net.input(tensor(1, 7)), flat], tensor(1, 7))

    applied = Applied("add_to_gemm", draw)
    assert applied.count == 1
    assert applied.near(1e-6)
    assert [node.op_type for node in applied.after.graph.node] == ["Gemm"]


def test_a_product_that_others_need_stays() -> None:
    def draw(net: Network) -> TensorRef:
        made = product(net, net.input(tensor(3, 5)), 7, "w")
        net.output(net.call("TANH", [made], tensor(3, 7)))
        return net.call("ADD", [made, constant(drawn(7))], tensor(3, 7))

    assert Applied("add_to_gemm", draw).count == 0


def test_a_product_that_is_repeated_by_what_is_added_stays() -> None:
    def draw(net: Network) -> TensorRef:
        made = product(net, net.input(tensor(1, 5)), 7, "w")
        return net.call("ADD", [made, net.input(tensor(3, 7))], tensor(3, 7))

    assert Applied("add_to_gemm", draw).count == 0


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (None, 0)])
def test_of_open_sizes_only_what_is_the_same_for_all_rows_is_added(rows: int | None, count: int) -> None:
    def draw(net: Network) -> TensorRef:
        made = product(net, net.input(tensor(None, 5)), 7, "w")
        return net.call("ADD", [made, net.input(tensor(rows, 7))], tensor(None, 7))

    applied = Applied("add_to_gemm", draw, batch=3)
    assert applied.count == count
    assert applied.near(1e-6)


def test_a_product_has_one_third_operand() -> None:
    def draw(net: Network) -> TensorRef:
        made = product(net, net.input(tensor(3, 5)), 7, "w", biased=True)
        return net.call("ADD", [made, net.input(tensor(3, 7))], tensor(3, 7))

    assert Applied("add_to_gemm", draw).count == 0


def test_what_may_be_a_product_of_integers_stays() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.call("DEQUANTIZE", [net.input(tensor(3, 5, dtype="int8"))], tensor(3, 5))
        return net.call("ADD", [product(net, x, 7, "w"), net.input(tensor(3, 7))], tensor(3, 7))

    assert Applied("add_to_gemm", draw).count == 0
