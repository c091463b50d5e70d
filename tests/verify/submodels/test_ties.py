"""Operators that may order equal values freely: a different order is not an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net, Spec, constant, tensor
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.submodels.ties import without_ties

BOXES, LIMIT = 61, 13


def dequantized_scores(net: Net) -> TensorRef:
    scores = net.input(tensor(BOXES, dtype="int8", scale=1 / 16, name="scores"))
    return net.call("DEQUANTIZE", [scores], tensor(BOXES))


def rounded_scores(net: Net) -> TensorRef:
    return net.call("FLOOR", [net.input(tensor(BOXES, name="scores"))], tensor(BOXES))


def detector(build_scores: Callable[[Net], TensorRef]) -> tuple[bytes, onnx.ModelProto]:
    """Return a model that selects boxes, many of which have the same score."""
    net = Net()
    operands = [net.input(tensor(BOXES, 4, name="boxes")), build_scores(net)]
    parameters = (np.int32(LIMIT), np.float32(0.3), np.float32(-100))
    outputs = Spec((LIMIT,), "int32"), Spec((), "int32")
    net.output(*net.call_multi_output("NON_MAX_SUPPRESSION_V4", [*operands, *map(constant, parameters)], *outputs))
    data = net.build()
    return data, otp.convert(data).proto


def change_overlap(proto: onnx.ModelProto) -> None:
    """Suppress boxes that overlap less than the threshold."""
    (node,) = [node for node in proto.graph.node if node.op_type == "NonMaxSuppression"]
    (threshold,) = [tensor for tensor in proto.graph.initializer if tensor.name == node.input[3]]
    threshold.CopyFrom(numpy_helper.from_array(np.array([0.1], np.float32), threshold.name))


def negate_scores(proto: onnx.ModelProto) -> None:
    """Select the boxes of lowest score."""
    (node,) = [node for node in proto.graph.node if node.op_type == "NonMaxSuppression"]
    index = [*proto.graph.node].index(node)
    proto.graph.node.insert(index, onnx.helper.make_node("Neg", [node.input[1]], ["negated"]))
    node.input[1] = "negated"


@pytest.mark.parametrize("build_scores", [dequantized_scores, rounded_scores])
def test_different_order_of_equal_scores_is_not_an_error(build_scores: Callable[[Net], TensorRef]) -> None:
    assert verify(*detector(build_scores)).verdict == "agrees"


@pytest.mark.parametrize("build_scores", [dequantized_scores, rounded_scores])
@pytest.mark.parametrize("plant_error", [change_overlap, negate_scores])
def test_wrong_choice_among_equal_scores_is_an_error(
    build_scores: Callable[[Net], TensorRef], plant_error: Callable[[onnx.ModelProto], None]
) -> None:
    data, proto = detector(build_scores)
    plant_error(proto)
    assert verify(data, proto).verdict == "differs"


def test_first_of_equal_values_becomes_the_largest() -> None:
    array = np.array([[0.5, 0.25, 0.5], [0.0, 0.5, 0.0]], np.float32)
    distinct = without_ties(array)
    assert np.argsort(-distinct, axis=None).tolist() == [0, 2, 4, 1, 3, 5]
    assert np.allclose(distinct, array, rtol=0, atol=1e-6)
