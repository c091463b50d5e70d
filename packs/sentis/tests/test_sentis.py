"""Models of the target: LiteRT's results, and no operator that Sentis lacks."""

from __future__ import annotations

import pytest
from onnx_tflite_sentis.target import SENTIS, missing_operators, supported_operators

from conformance.models import between_convolutions, in_isolation, tensor, unary
from conformance.testing import Host
from onnx_tflite_plugin import ConversionError, convert


def test_the_target_is_installed() -> None:
    assert "onnx-tflite-sentis" in {pack for name, pack, _ in Host().targets if name == "sentis"}


@pytest.mark.parametrize("opset", [11, None, 15])
def test_a_float_network_agrees_with_litert(opset: int | None) -> None:
    model = unary("RELU", "float32", tensor(2, 5, 7, 3), place=between_convolutions).build()
    conversion = convert(model, target="sentis", opset=opset, verify=True)
    assert conversion.report.opset == (opset or SENTIS.opsets[1])
    assert {node.op_type for node in conversion.model.graph.all_nodes()} <= supported_operators()
    assert conversion.verification is not None
    assert conversion.verification.ok


def test_a_quantized_network_becomes_float() -> None:
    model = unary("RELU", "int8", tensor(2, 5, 7, 3, dtype="int8"), place=between_convolutions).build()
    conversion = convert(model, target="sentis")
    assert {node.op_type for node in conversion.model.graph.all_nodes()} <= supported_operators()
    assert {str(value.dtype) for value in (*conversion.model.graph.inputs, *conversion.model.graph.outputs)} == {
        "FLOAT"
    }


def test_an_operator_that_sentis_lacks_is_refused_by_name() -> None:
    x, lengths = tensor(2, 5, 7), tensor(2, dtype="int32")
    model = in_isolation("REVERSE_SEQUENCE", "refused", [x, lengths], x, options={"seq_dim": 1, "batch_dim": 0})
    with pytest.raises(ConversionError, match="target sentis has no ReverseSequence"):
        convert(model.build(), target="sentis")


def test_supported_and_missing_operators_are_disjoint() -> None:
    assert not supported_operators() & missing_operators().keys()
    assert {"Conv", "LSTM"} <= supported_operators()
    assert {"If", "Loop", "QuantizeLinear", "ReverseSequence"} <= missing_operators().keys()
