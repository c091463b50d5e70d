"""Two LSTMs, one of them on the reversed sequence, become one bidirectional LSTM; similar pairs stay two."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from conformance.cases.fusions.directions import BACKWARD, FUSED, REVERSED, SEPARATE, Pair
from conformance.models import Net
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host

ONE = "BIDIRECTIONAL_SEQUENCE_LSTM_APART"
BACKWARDS = "UNIDIRECTIONAL_SEQUENCE_LSTM_BACKWARDS"


def convert_model(pair: Pair) -> Conversion:
    model = Net()
    pair.draw(model)
    return convert(model.build(), host=Host(packs="builtin"))


def everywhere(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from everywhere(attribute.g)


def directions(found: Conversion) -> list[str]:
    """Return the directions of recurrent nodes outside of branches."""
    texts = [
        next((attribute.s.decode() for attribute in node.attribute if attribute.name == "direction"), "forward")
        for node in found.proto.graph.node
        if node.op_type == "LSTM"
    ]
    return sorted(texts)


def scans(found: Conversion) -> bool:
    """True if ONNX's LSTM cannot express the cell, even where cell values stay within their bounds."""
    return any(node.op_type == "Scan" for node in found.proto.graph.node)


def reversals(found: Conversion) -> int:
    """Return the number of slices with negative steps."""
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in found.proto.graph.initializer}
    slices = [node for node in everywhere(found.proto.graph) if node.op_type == "Slice" and len(node.input) == 5]
    return sum(bool((held[node.input[4]] < 0).any()) for node in slices)


@pytest.mark.parametrize("pair", FUSED.values(), ids=FUSED)
def test_bidirectional_pair_becomes_one_operator_without_reversal(pair: Pair) -> None:
    found = convert_model(pair)
    assert found.report.fused[ONE] == 1
    assert reversals(found) == 0
    assert directions(found) == ([] if scans(found) else ["bidirectional"])


@pytest.mark.parametrize("pair", REVERSED.values(), ids=REVERSED)
def test_output_that_stays_reversed_is_reversed_after_fusion(pair: Pair) -> None:
    found = convert_model(pair)
    assert found.report.fused[ONE] == 1
    assert directions(found) == ["bidirectional"]


@pytest.mark.parametrize("pair", SEPARATE.values(), ids=SEPARATE)
def test_pair_that_differs_is_not_fused(pair: Pair) -> None:
    assert ONE not in convert_model(pair).report.fused


@pytest.mark.parametrize("pair", BACKWARD.values(), ids=BACKWARD)
def test_single_backward_layer_needs_no_reversal(pair: Pair) -> None:
    found = convert_model(pair)
    assert found.report.fused == {BACKWARDS: 1}
    assert reversals(found) == 0
    assert directions(found) == ([] if scans(found) else ["reverse"])
