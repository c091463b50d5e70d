"""An LSTM and one on the reversed sequence become one bidirectional LSTM."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from conformance.cases.fusions.directions import BACKWARD, FUSED, REVERSED, SEPARATE, Pair
from conformance.models import Net
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host

BIDIRECTIONAL = "BIDIRECTIONAL_SEQUENCE_LSTM_APART"
BACKWARDS = "UNIDIRECTIONAL_SEQUENCE_LSTM_BACKWARDS"


def convert_model(pair: Pair) -> Conversion:
    model = Net()
    pair.build(model)
    return convert(model.build(), host=Host(packs="builtin"))


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its inner graphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from all_nodes(attribute.g)


def directions(conversion: Conversion) -> list[str]:
    """Return the directions of recurrent nodes outside of branches."""
    names = [
        next((attribute.s.decode() for attribute in node.attribute if attribute.name == "direction"), "forward")
        for node in conversion.proto.graph.node
        if node.op_type == "LSTM"
    ]
    return sorted(names)


def has_scan(conversion: Conversion) -> bool:
    """True if the model has a Scan, because ONNX's LSTM cannot express the cell."""
    return any(node.op_type == "Scan" for node in conversion.proto.graph.node)


def count_reversals(conversion: Conversion) -> int:
    """Return the number of slices with negative steps."""
    initializers = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in conversion.proto.graph.initializer}
    slices = [node for node in all_nodes(conversion.proto.graph) if node.op_type == "Slice" and len(node.input) == 5]
    return sum(bool((initializers[node.input[4]] < 0).any()) for node in slices)


@pytest.mark.parametrize("pair", FUSED.values(), ids=FUSED)
def test_bidirectional_pair_becomes_one_operator_without_reversal(pair: Pair) -> None:
    conversion = convert_model(pair)
    assert conversion.report.fused[BIDIRECTIONAL] == 1
    assert count_reversals(conversion) == 0
    assert directions(conversion) == ([] if has_scan(conversion) else ["bidirectional"])


@pytest.mark.parametrize("pair", REVERSED.values(), ids=REVERSED)
def test_reversed_output_is_reversed_after_the_fused_operator(pair: Pair) -> None:
    conversion = convert_model(pair)
    assert conversion.report.fused[BIDIRECTIONAL] == 1
    assert directions(conversion) == ["bidirectional"]


@pytest.mark.parametrize("pair", SEPARATE.values(), ids=SEPARATE)
def test_pair_that_differs_is_not_fused(pair: Pair) -> None:
    assert BIDIRECTIONAL not in convert_model(pair).report.fused


@pytest.mark.parametrize("pair", BACKWARD.values(), ids=BACKWARD)
def test_single_backward_layer_needs_no_reversal(pair: Pair) -> None:
    conversion = convert_model(pair)
    assert conversion.report.fused == {BACKWARDS: 1}
    assert count_reversals(conversion) == 0
    assert directions(conversion) == ([] if has_scan(conversion) else ["reverse"])
