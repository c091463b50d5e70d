"""What most parts of a small tensor go through is computed before it is split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import Spec, constant, tensor
from conformance.weights import product, weight
from onnx_tflite_plugin.verify import verify

GATES = ("LOGISTIC", "LOGISTIC", "TANH", "LOGISTIC")
STORED = {"int16": (1 / 32768, 0), "int8": (1 / 256, -128), "float32": (None, 0)}


def gates(operators: Sequence[str] = GATES, dtype: str = "int16", cells: int = 5, rows: int | None = 1) -> Draw:
    """A dense layer of some gates, and what becomes of each."""

    def draw(net: Network) -> tuple[TensorRef, ...]:
        given, width = tensor(rows, 7, dtype=dtype), cells * len(operators)
        w = weight((width, 7), "float32" if dtype == "float32" else "int8", None if dtype == "float32" else 0)
        made = product(given, w, (rows, width), 7)
        sums = net.call("FULLY_CONNECTED", [net.input(given), w, None], made)
        parts = net.calls(
            "SPLIT", [constant(1), sums], *[made.shaped(rows, cells)] * len(operators), num_splits=len(operators)
        )
        return tuple(net.call(op, [part], opened(op)) for op, part in zip(operators, parts, strict=True))

    def opened(op: str) -> Spec:
        scale, point = STORED[dtype]
        if dtype == "int8" and op == "TANH":
            scale, point = 1 / 128, 0
        return tensor(rows, cells, dtype=dtype, scale=scale, zero_point=point)

    return draw


@pytest.mark.parametrize("operators", [GATES, ("TANH", "LOGISTIC", "LOGISTIC", "LOGISTIC"), ("LOGISTIC", "LOGISTIC")])
def test_gates_that_go_the_same_way_go_it_together(operators: Sequence[str]) -> None:
    applied = Applied("activations_before_split", gates(operators))
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Sigmoid")) == 1
    assert len(applied.nodes("Slice")) == operators.count("TANH")
    assert verify(applied.data, applied.after).ok


@pytest.mark.parametrize(
    "draw",
    [
        gates(("LOGISTIC", "TANH", "TANH")),
        gates(dtype="int8"),
        gates(dtype="float32"),
        gates(cells=257),
        gates(rows=None),
    ],
    ids=["each goes another way", "8 bits have one kernel", "one node of floats", "a large tensor", "an open size"],
)
def test_else_they_are_split_first(draw: Draw) -> None:
    assert Applied("activations_before_split", draw).count == 0


def test_what_is_used_on_its_way_is_split_before() -> None:
    def draw(net: Network) -> tuple[TensorRef, ...]:
        first, *others = gates(("LOGISTIC",) * 3)(net)
        return first, *others, net.like("NEG", first)

    applied = Applied("activations_before_split", draw)
    assert applied.count == 1
    assert applied.equal


def test_a_part_that_nobody_reads_is_no_reason_to_split_first() -> None:
    nodes = "a, b, c = Split <axis = 1> (x, n) d = Sigmoid (a) e = Sigmoid (b) y = Sub (d, e)"
    model = parsed(f"(float[1,15] x) => (float[1,5] y) {{ {nodes} }}", n=np.full(3, 5))
    assert apply("activations_before_split", model) == 1
    assert [node.op_type for node in model.graph] == ["Sigmoid", "Split", "Sub"]
    assert [list(value.shape or ()) for value in model.graph[0].outputs] == [[1, 15]]


@pytest.mark.parametrize(("factor", "count"), [((), 1), ((5,), 0)], ids=["one factor", "a factor of each element"])
def test_parts_are_multiplied_together_by_one_number_alone(factor: tuple[int, ...], count: int) -> None:
    nodes = (
        "a, b, c = Split <axis = 1> (x, n) d = Mul (a, f) e = Mul (b, f) g = Mul (c, f) h = Sub (d, e) y = Sub (h, g)"
    )
    stored = {"n": np.full(3, 5), "f": np.full(factor, 0.3, np.float32)}
    assert (
        apply("activations_before_split", parsed(f"(float[1,15] x) => (float[1,5] y) {{ {nodes} }}", **stored)) == count
    )
