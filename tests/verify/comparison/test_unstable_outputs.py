"""Outputs that amplify rounding are compared per operator.

A wrong operator still fails.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.builder import TensorRef
from conformance.models import constant, tensor
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.end_to_end import describe_error
from onnx_tflite_plugin.verify.verification import CAUSE
from tests.helpers.passes_networks import Network
from tests.helpers.wrong_models import ModelChange, PlantedError, change_nodes

SIZE = 53


def largest_near_ties(net: Network) -> tuple[TensorRef, ...]:
    """Build the largest seven of numbers that differ by few ULPs, and their indices.

    A third output is the largest numbers, negated.
    """
    noise = net.like("MUL", net.input(tensor(SIZE)), constant(np.float32(1e-7)))
    numbers = net.like("ADD", noise, constant(np.float32(1.0)))
    values, indices = net.call_multi_output(
        "TOPK_V2", [numbers, constant(np.int32(7))], tensor(7), tensor(7, dtype="int32", scale=0)
    )
    negated = net.call("GATHER", [net.like("NEG", numbers), indices], tensor(7), axis=0)
    return values, net.like("ADD", indices, constant(np.int32(3)), fused_activation_function="NONE"), negated


def rounding_sensitive(net: Network) -> TensorRef:
    """Return a sine of large multiples of a sigmoid.

    LiteRT's kernel sets differ in the last bits of the sigmoid, which the sine amplifies.
    """
    phases = net.like("MUL", net.like("LOGISTIC", net.input(tensor(SIZE))), constant(np.float32(3e7)))
    return net.like("NEG", net.like("SIN", phases))


def small_error(net: Network) -> TensorRef:
    """Return a network that keeps errors small."""
    return net.like("NEG", net.like("LOGISTIC", net.input(tensor(SIZE))))


def perturb(share: float) -> ModelChange:
    """Multiply every other number before the unstable operator by 1 + ``share``."""

    def change_model(proto: onnx.ModelProto) -> None:
        node = next(node for node in proto.graph.node if node.op_type in ("Add", "Sigmoid"))
        name, node.output[0] = node.output[0], "unchanged"
        factors = (1 + share * (np.arange(SIZE) % 2)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(factors, "factors"))
        position = [*proto.graph.node].index(node) + 1
        proto.graph.node.insert(position, helper.make_node("Mul", ["unchanged", "factors"], [name]))

    return change_model


def select_smallest(node: onnx.NodeProto) -> None:
    node.attribute.append(helper.make_attribute("largest", 0))


def combine(*changes: ModelChange) -> ModelChange:
    def change_model(proto: onnx.ModelProto) -> None:
        for change in changes:
            change(proto)

    return change_model


def replace_by_abs(node: onnx.NodeProto) -> None:
    node.op_type = "Abs"


def test_compares_near_ties_per_operator() -> None:
    data, _, after = PlantedError(largest_near_ties, perturb(1e-6)).models()
    verification = verify(data, after)
    assert verification.ok, verification.text
    fact, cause, step = verification.end_to_end
    assert fact.startswith("output 'y1' differs by up to ")
    assert "; outputs differ by up to " in verification.text.splitlines()[0]
    assert fact.endswith(
        "end to end, although every operator agrees: the conversion is right, but the output depends on rounding"
    )
    assert cause == (
        "cause: rounding differences of floats add up; TOPK_V2 compares or selects values, so a small difference can "
        "change the whole result"
    )
    assert "compare on your own data with inputs=FILE" in step


def test_compares_per_operator_if_litert_kernel_sets_differ() -> None:
    data, _, after = PlantedError(rounding_sensitive, perturb(3e-7)).models()
    verification = verify(data, after)
    assert verification.ok, verification.text
    assert "although every operator agrees" in verification.text
    assert "LiteRT's own XNNPACK and builtin kernels differ by up to " in verification.end_to_end[1]
    data, _, after = PlantedError(
        rounding_sensitive, combine(perturb(3e-7), change_nodes("Neg", replace_by_abs))
    ).models()
    assert not verify(data, after, tolerance=1e-3).ok


@pytest.mark.parametrize(
    "change_model",
    [
        perturb(0.1),
        combine(perturb(1e-6), change_nodes("TopK", select_smallest)),
        combine(perturb(1e-6), change_nodes("Neg", replace_by_abs)),
    ],
    ids=["large error", "minimum instead of maximum", "operator after the selection"],
)
def test_near_ties_do_not_excuse_a_wrong_operator(change_model: ModelChange) -> None:
    data, _, after = PlantedError(largest_near_ties, change_model).models()
    assert not verify(data, after, tolerance=1e-3).ok


def test_a_tolerance_of_the_user_decides_on_float_outputs() -> None:
    data, _, after = PlantedError(rounding_sensitive, perturb(3e-7)).models()
    assert verify(data, after).ok
    assert verify(data, after, tolerance=1e-3).verdict == "differs"


def test_explains_a_failure_caused_by_the_given_tolerance() -> None:
    data, _, after = PlantedError(rounding_sensitive, perturb(3e-7)).models()
    verification = verify(data, after, tolerance=0.01)
    assert not verification.ok
    assert verification.only_tolerance
    (note,) = [note for note in verification.notes if note.startswith(CAUSE)]
    sufficient = re.search(r"set tolerance (\S+) or more", note)
    assert sufficient is not None
    assert verify(data, after, tolerance=float(sufficient[1])).ok


def test_operator_within_its_default_tolerance_is_attributed_to_the_given_one() -> None:
    data, _, after = PlantedError(small_error, perturb(1e-6)).models()
    verification = verify(data, after, tolerance=1e-8)
    assert verification.diverging is not None
    assert verification.only_tolerance
    assert verification.has_known_cause
    wrong = PlantedError(small_error, perturb(0.1)).models()[2]
    assert not verify(data, wrong, tolerance=1e-8).only_tolerance


def test_error_in_steps_includes_the_fraction_of_differing_elements() -> None:
    tensor = SimpleNamespace(dtype="int8")
    pair: Any = SimpleNamespace(entry=SimpleNamespace(output_names=["y"], outputs=[tensor]))
    output = Comparison("y", "step", 251.0, 0.031, 1.0)
    accepted = [replace(output, max_error=0.0, end_to_end=output.error)]
    text = describe_error(pair, [output], accepted)
    assert text == " by up to 251 of 255 quantization steps (3.1 % of elements differ)"
