"""Test outputs that amplify rounding: they are compared per operator, and a wrong operator still fails."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.builder import TensorRef
from conformance.models import constant, tensor
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import Network
from tests.helpers.wrong_models import Spoil, Wrong, change_nodes

SIZE = 53


def rank(net: Network) -> tuple[TensorRef, ...]:
    """Return the maximum and its index among numbers that differ by a few ULPs: the same number after each."""
    near = net.like("MUL", net.input(tensor(SIZE)), constant(np.float32(1e-7)))
    one = net.like("ADD", near, constant(np.float32(1.0)))
    values, places = net.calls("TOPK_V2", [one, constant(np.int32(7))], tensor(7), tensor(7, dtype="int32", scale=0))
    others = net.call("GATHER", [net.like("NEG", one), places], tensor(7), axis=0)
    return values, net.like("ADD", places, constant(np.int32(3)), fused_activation_function="NONE"), others


def chaotic(net: Network) -> TensorRef:
    """Return a sine that amplifies the last bits of a sigmoid, for which LiteRT's kernel sets differ."""
    many = net.like("MUL", net.like("LOGISTIC", net.input(tensor(SIZE))), constant(np.float32(3e7)))
    return net.like("NEG", net.like("SIN", many))


def move(by: float) -> Spoil:
    """Change every other ranked number by a rounding error."""

    def spoil(proto: onnx.ModelProto) -> None:
        made = next(node for node in proto.graph.node if node.op_type in ("Add", "Sigmoid"))
        name, made.output[0] = made.output[0], "as_it_was"
        factors = (1 + by * (np.arange(SIZE) % 2)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(factors, "factors"))
        at = [*proto.graph.node].index(made) + 1
        proto.graph.node.insert(at, helper.make_node("Mul", ["as_it_was", "factors"], [name]))

    return spoil


def select_smallest(node: onnx.NodeProto) -> None:
    node.attribute.append(helper.make_attribute("largest", 0))


def combine(*spoils: Spoil) -> Spoil:
    def spoil(proto: onnx.ModelProto) -> None:
        for one in spoils:
            one(proto)

    return spoil


def replace_by_abs(node: onnx.NodeProto) -> None:
    node.op_type = "Abs"


def test_compares_near_ties_per_operator() -> None:
    data, _, after = Wrong(rank, move(1e-6)).models()
    judged = verify(data, after)
    assert judged.ok, judged.text
    assert "although every operator agrees" in judged.text


def test_compares_per_operator_if_litert_kernel_sets_differ() -> None:
    data, _, after = Wrong(chaotic, move(3e-7)).models()
    judged = verify(data, after)
    assert judged.ok, judged.text
    assert "although every operator agrees" in judged.text
    data, _, after = Wrong(chaotic, combine(move(3e-7), change_nodes("Neg", replace_by_abs))).models()
    assert not verify(data, after, tolerance=1e-3).ok


@pytest.mark.parametrize(
    "spoil",
    [
        move(0.1),
        combine(move(1e-6), change_nodes("TopK", select_smallest)),
        combine(move(1e-6), change_nodes("Neg", replace_by_abs)),
    ],
    ids=["distant numbers", "minimum instead of maximum", "operator after the choice"],
)
def test_near_ties_do_not_excuse_a_wrong_operator(spoil: Spoil) -> None:
    data, _, after = Wrong(rank, spoil).models()
    assert not verify(data, after, tolerance=1e-3).ok


def test_a_tolerance_of_the_user_decides_on_float_outputs() -> None:
    data, _, after = Wrong(chaotic, move(3e-7)).models()
    assert verify(data, after).ok
    assert verify(data, after, tolerance=1e-3).verdict == "differs"
