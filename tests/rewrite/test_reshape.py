"""Of Reshapes behind each other only the last is kept, where its shape does not depend on the ones before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import constant, drawn, tensor


def dense(net: Network, batch: int | None = 1) -> TensorRef:
    """Rows that stay apart, which are made a matrix for the product and rows again behind it."""
    x = net.input(tensor(batch, 5, 7))
    return net.call(
        "FULLY_CONNECTED", [x, constant(drawn(12, 7)), constant(drawn(12))], tensor(batch, 5, 12), keep_num_dims=True
    )


def split(net: Network, target: Sequence[int], batch: int | None = 1) -> TensorRef:
    """The rows cut into heads."""
    return net.call("RESHAPE", [dense(net, batch), constant([*target])], tensor(batch, 5, 3, 4))


@pytest.mark.parametrize("batch", [1, None])
def test_the_shape_between_is_not_made(batch: int | None) -> None:
    applied = Applied("merge_reshapes", lambda net: split(net, (-1, 5, 3, 4), batch), batch=2)
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Reshape")) == 2


def test_a_chain_is_followed_to_its_beginning() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.call("ABS", [net.input(tensor(2, 3, 5))], tensor(2, 3, 5))
        wide = net.call("EXPAND_DIMS", [x, constant(1)], tensor(2, 1, 3, 5))
        flat = net.call("RESHAPE", [wide, constant([30])], tensor(30))
        return net.call("RESHAPE", [flat, constant([5, 6])], tensor(5, 6))

    applied = Applied("merge_reshapes", draw)
    assert applied.count == 2
    assert applied.equal
    assert [node.op_type for node in applied.after.graph.node] == ["Abs", "Reshape"]


@pytest.mark.parametrize("batch", [1, None])
def test_where_the_beginning_has_the_shape_none_is_left(batch: int | None) -> None:
    def draw(net: Network) -> TensorRef:
        x = net.call("ABS", [net.input(tensor(batch, 1, 1, 5))], tensor(batch, 1, 1, 5))
        rows = net.call("RESHAPE", [x, constant([-1, 5])], tensor(batch, 5))
        images = net.call("RESHAPE", [rows, constant([-1, 1, 1, 5])], tensor(batch, 1, 1, 5))
        return net.call("ABS", [images], tensor(batch, 1, 1, 5))

    applied = Applied("merge_reshapes", draw, batch=2)
    assert applied.count == 1
    assert applied.equal
    assert [node.op_type for node in applied.after.graph.node] == ["Abs", "Abs"]


def test_what_else_reads_the_shape_between_keeps_it() -> None:
    def draw(net: Network) -> tuple[TensorRef, TensorRef]:
        rows = dense(net)
        heads = net.call("RESHAPE", [rows, constant([1, 5, 3, 4])], tensor(1, 5, 3, 4))
        return net.like("ABS", rows), heads

    applied = Applied("merge_reshapes", draw)
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Reshape")) == 3


def computed(net: Network) -> TensorRef:
    """A target that is known as it runs alone."""
    size = net.input(tensor(4, dtype="int32", scale=0))
    return net.call("RESHAPE", [dense(net), size], tensor(None, None, None, None))


@pytest.mark.parametrize("draw", [computed, dense], ids=["a target known as it runs", "a product between"])
def test_others_are_left_alone(draw: Draw) -> None:
    before = Applied("merge_reshapes", draw)
    assert before.count == 0


def test_a_zero_which_is_the_operands_size_is_left_alone() -> None:
    import onnx_ir as ir
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Reshape", ["x", "a"], ["m"]), helper.make_node("Reshape", ["m", "b"], ["y"])]
    shapes = [numpy_helper.from_array(np.array(shape), name) for name, shape in (("a", [6, 5]), ("b", [0, 5, 1]))]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [3, 10]), ("y", None))
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], shapes)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert apply("merge_reshapes", model) == 0


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("a = Reshape (x, flat) b = Reshape (a, rows) y = Abs (b)", ["Abs"]),
        ("a = Reshape (x, flat) y = Reshape (a, rows)", ["Reshape"]),
        ("a = Reshape (x, flat) b = Reshape (a, deep) y = Abs (b)", ["Reshape", "Abs"]),
        ("a = Reshape (x, flat) b = Reshape (a, kept) y = Abs (b)", ["Reshape", "Reshape", "Abs"]),
    ],
    ids=["the shape before", "of an output", "an axis more", "a size of what is reshaped"],
)
def test_the_last_reshape_is_left_where_it_is_needed(nodes: str, left: Sequence[str]) -> None:
    shapes = {"flat": [15], "rows": [-1, 5], "deep": [3, 5, 1], "kept": [0, 1]}
    stored = {name: np.asarray(shape, np.int64) for name, shape in shapes.items()}
    model = parsed(f"(float[3,5] x) => (float[n,m] y) {{ {nodes} }}", **stored)
    apply("merge_reshapes", model)
    assert [node.op_type for node in model.graph] == left
