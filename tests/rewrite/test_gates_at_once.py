"""Convolutions of few features that a loop makes of one image are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import GraphBuilder, TensorRef
from conformance.cases.control.loops import called, loop
from conformance.models import drawn, tensor
from onnx_tflite_plugin.verify import verify

GO_ON = np.array([True, True, True, False, False])


def layer(gates: int = 4, cells: int = 5, *, half: bool = False, biased: bool = True, read: bool = False) -> Draw:
    """A convolutional recurrent layer: each gate sees an input of three channels and the last output.

    ``half``: constants of float16. ``read``: a gate's product with the input is used twice.
    """

    def draw(net: Network) -> tuple[TensorRef, ...]:
        specs = [tensor(1, 7, 9, 3), tensor(1, 7, 9, cells)]
        return tuple(loop(net, [net.input(spec) for spec in specs], specs, body))

    def constant(graph: GraphBuilder, name: str, *shape: int) -> TensorRef:
        numbers = 0.3 * drawn(*shape, seed=name)
        if not half:
            return graph.constant(name, numbers)
        wide = graph.tensor(f"{name} of 32 bits", shape)
        graph.operator("DEQUANTIZE", [graph.constant(name, numbers.astype(np.float16))], [wide])
        return wide

    def convolved(graph: GraphBuilder, x: TensorRef, of: TensorRef, k: int, bias: bool) -> TensorRef:
        w = constant(graph, f"w{k} of {x.name}", cells, 3, 3, x.shape[-1])
        b = [constant(graph, f"b{k}", cells)] if bias else [graph.constant(f"none{k}", np.zeros(cells, np.float32))]
        return called(graph, "CONV_2D", [x, w, *b], of, padding="SAME", stride_h=1, stride_w=1)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        x, hidden = values
        seen = [convolved(graph, x, hidden, k, biased) for k in range(gates)]
        sums = [
            called(graph, "ADD", [seen[k], convolved(graph, hidden, hidden, k, False)], hidden) for k in range(gates)
        ]
        shares = [called(graph, "LOGISTIC" if k else "TANH", [one], hidden) for k, one in enumerate(sums)]
        after = shares[0]
        for one in shares[1:]:
            after = called(graph, "MUL", [after, one], hidden)
        return [x, called(graph, "ADD", [after, seen[0]], hidden) if read else after]

    return draw


def inside(model: onnx.ModelProto) -> list[str]:
    """Operators of the loop."""
    (node,) = [node for node in model.graph.node if node.op_type == "Loop"]
    (graph,) = [a.g for a in node.attribute if a.name == "body"]
    return [node.op_type for node in graph.node]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gates_are_one_convolution_of_the_input_and_one_of_the_last_output(half: bool, biased: bool) -> None:
    applied = Applied("merge_gate_convs + add_before_split", layer(half=half, biased=biased))
    assert applied.near(1e-6)
    nodes = inside(applied.after)
    assert [nodes.count(op) for op in ("Conv", "Add", "Split")] == [2, 1, 1]
    assert verify(applied.data, applied.after, inputs={"plan": GO_ON}).ok


def test_what_is_used_twice_is_split_before_it_is_added() -> None:
    applied = Applied("merge_gate_convs + add_before_split", layer(read=True))
    assert applied.near(1e-6)
    nodes = inside(applied.after)
    assert [nodes.count(op) for op in ("Conv", "Add", "Split")] == [2, 5, 2]
    assert verify(applied.data, applied.after, inputs={"plan": GO_ON}).ok


@pytest.mark.parametrize(
    "draw", [layer(gates=2), layer(cells=8), layer(cells=16)], ids=["two gates", "whole blocks", "two blocks"]
)
def test_else_each_gate_has_its_own(draw: Draw) -> None:
    assert Applied("merge_gate_convs + add_before_split", draw).count == 0


FEATURES, DEPTH = 3, 2
BRANCH = """
    (float[1,2,3,7] x, float[1,2,3,7] z, float[1,3,9,7] w, bool go) => (float[1,n,3,7] y) {
        y = If (go) <
            then_branch = gates () => (float[1,n,3,7] one) { NODES one = Sum (p, q, r) },
            else_branch = none () => (float[1,n,3,7] other) { other = Conv (x, a) }
        >
    }
"""
ALIKE = "p = Conv (x, a) q = Conv (x, b) r = Conv (x, c)"
SUMS = "p = Add (f, i) q = Add (g, j) r = Add (h, k)"
OF_X = "f = Conv (x, a) g = Conv (x, b) h = Conv (x, c)"


def branch(nodes: str) -> ir.Model:
    """A branch of an If in which ``a``, ``b`` and ``c`` are kernels, ``d`` of a single feature, ``e`` of groups, ``v`` a bias."""
    kernels = {name: drawn(FEATURES, DEPTH, 1, 1, seed=name) for name in "abc"}
    others = {"d": drawn(1, DEPTH, 1, 1), "e": drawn(4, 1, 1, 1), "v": drawn(FEATURES), "n": np.full(3, 3)}
    return parsed(BRANCH.replace("NODES", nodes), **kernels, **others)


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (ALIKE, 1),
        (ALIKE.replace("Conv (x, c)", "Conv (z, c)"), 0),
        (ALIKE.replace("Conv (x, c)", "Conv (x, c, v)"), 0),
        (ALIKE.replace("Conv (x, c)", "Conv <dilations = [2, 2]> (x, c)"), 0),
        ("p = Conv <group = 2> (x, e) q = Conv <group = 2> (x, e) r = Conv <group = 2> (x, e)", 0),
        (f"{OF_X} i = Conv (z, b) j = Conv (z, c) k = Conv (z, a) {SUMS}", 3),
        (f"{OF_X} i = Conv (z, b) j = Conv (z, c) k = Conv (z, d) {SUMS}", 2),
        (f"{OF_X} i, j, k = Split <axis = 2> (w, n) {SUMS}", 1),
    ],
    ids=[
        "one image", "another image", "a bias", "other pixels", "groups", "sums", "one feature for all of a gate",
        "sums with parts along another axis",
    ],
)  # fmt: skip
def test_what_is_joined_differs_in_numbers_alone(nodes: str, count: int) -> None:
    assert apply("merge_gate_convs + add_before_split", branch(nodes)) == count
