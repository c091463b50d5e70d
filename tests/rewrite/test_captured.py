"""No convolution stands right in front of a node with inner graphs, which ends the process in ONNX Runtime before 1.23."""

from __future__ import annotations

import pytest

import onnx_tflite_plugin as otp
from conformance.cases import builtin
from onnx_tflite_plugin.verify import verify

CASES = {case.id: case for case in builtin() if case.op in ("IF", "STABLEHLO_CASE")}


@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
@pytest.mark.parametrize("name", ["IF-an_image_between_convolutions", "STABLEHLO_CASE-an_image_between_convolutions"])
def test_a_reshape_stands_between_a_convolution_and_what_captures_it(name: str, target: str) -> None:
    data = CASES[name].build()
    model = otp.convert(data, target=target).model
    [choice] = [node for node in model.graph if node.op_type == "If"]
    outer = {value for node in model.graph for value in node.outputs}
    graphs = [attribute.as_graph() for attribute in choice.attributes.values()]
    taken = {value for graph in graphs for node in graph.all_nodes() for value in node.inputs if value in outer}
    makers = {maker.op_type for value in taken if value is not None and (maker := value.producer()) is not None}
    assert "Reshape" in makers
    assert "Conv" not in makers
    assert verify(data, otp.convert(data, target=target).proto).ok
