"""Outputs that fail end to end decide nothing if every operator agrees on LiteRT's own operands; a wrong operator still fails."""

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
    """The largest of numbers that differ by a few units in the last place, and where they were: the same number after each."""
    near = net.like("MUL", net.input(tensor(SIZE)), constant(np.float32(1e-7)))
    one = net.like("ADD", near, constant(np.float32(1.0)))
    values, places = net.calls("TOPK_V2", [one, constant(np.int32(7))], tensor(7), tensor(7, dtype="int32", scale=0))
    others = net.call("GATHER", [net.like("NEG", one), places], tensor(7), axis=0)
    return values, net.like("ADD", places, constant(np.int32(3)), fused_activation_function="NONE"), others


def chaotic(net: Network) -> TensorRef:
    """A sine of what the last bits of a sigmoid decide, in which LiteRT's own kernels part."""
    many = net.like("MUL", net.like("LOGISTIC", net.input(tensor(SIZE))), constant(np.float32(3e7)))
    return net.like("NEG", net.like("SIN", many))


def move(by: float) -> Spoil:
    """Every other number that is ranked, as another way of rounding would leave it."""

    def spoil(proto: onnx.ModelProto) -> None:
        made = next(node for node in proto.graph.node if node.op_type in ("Add", "Sigmoid"))
        name, made.output[0] = made.output[0], "as_it_was"
        factors = (1 + by * (np.arange(SIZE) % 2)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(factors, "factors"))
        at = [*proto.graph.node].index(made) + 1
        proto.graph.node.insert(at, helper.make_node("Mul", ["as_it_was", "factors"], [name]))

    return spoil


def least(node: onnx.NodeProto) -> None:
    node.attribute.append(helper.make_attribute("largest", 0))


def also(*spoils: Spoil) -> Spoil:
    def spoil(proto: onnx.ModelProto) -> None:
        for one in spoils:
            one(proto)

    return spoil


def negative(node: onnx.NodeProto) -> None:
    node.op_type = "Abs"


def test_a_choice_among_numbers_that_differ_in_their_last_bits_is_decided_operator_by_operator() -> None:
    data, _, after = Wrong(rank, move(1e-6)).models()
    judged = verify(data, after)
    assert judged.ok, judged.text
    assert "although every operator agrees" in judged.text


def test_an_output_in_which_litert_s_own_kernels_differ_is_decided_operator_by_operator() -> None:
    data, _, after = Wrong(chaotic, move(3e-7)).models()
    judged = verify(data, after)
    assert judged.ok, judged.text
    assert "although every operator agrees" in judged.text
    data, _, after = Wrong(chaotic, also(move(3e-7), change_nodes("Neg", negative))).models()
    assert not verify(data, after, tolerance=1e-3).ok


@pytest.mark.parametrize(
    "spoil",
    [
        move(0.1),
        also(move(1e-6), change_nodes("TopK", least)),
        also(move(1e-6), change_nodes("Neg", negative)),
    ],
    ids=["numbers that are far", "the least for the largest", "an operator after the choice"],
)
def test_a_choice_excuses_no_operator_that_is_wrong(spoil: Spoil) -> None:
    data, _, after = Wrong(rank, spoil).models()
    assert not verify(data, after, tolerance=1e-3).ok


def test_a_tolerance_of_the_user_decides_on_float_outputs() -> None:
    data, _, after = Wrong(chaotic, move(3e-7)).models()
    assert verify(data, after).ok
    assert verify(data, after, tolerance=1e-3).verdict == "differs"
