"""Unrolled recurrent layers become one ONNX node; similar steps do not."""

from __future__ import annotations

import pytest

from conformance.cases.fusions.unrolled import FUSION, LAYERS, SIMILAR, STEPS, Layer
from conformance.models import Net
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host


def convert_model(layer: Layer) -> Conversion:
    model = Net()
    layer.build(model)
    return convert(model.build(), host=Host(packs="builtin"))


@pytest.mark.parametrize("name", LAYERS)
def test_unrolled_layer_becomes_one_node(name: str) -> None:
    layer, report = LAYERS[name], convert_model(LAYERS[name]).report
    assert report.fused == {FUSION: layer.stages}
    assert report.nodes[layer.kind.split()[-1]] == layer.stages
    assert not {"Gemm", "MatMul", "Sigmoid", "Tanh", "Concat"} & report.nodes.keys() or layer.axis == 2


@pytest.mark.parametrize("name", SIMILAR)
def test_similar_steps_become_no_layer_or_several(name: str) -> None:
    layer, count = SIMILAR[name]
    assert convert_model(layer).report.fused.get(FUSION, 0) == count


def test_backward_layer_uses_the_direction_attribute() -> None:
    conversion = convert_model(LAYERS["LSTM backwards"])
    (node,) = (node for node in conversion.proto.graph.node if node.op_type == "LSTM")
    assert [a.s for a in node.attribute if a.name == "direction"] == [b"reverse"]
    assert "Slice" not in conversion.report.nodes


def test_outputs_of_single_steps_are_sliced_from_all_outputs() -> None:
    model = Net()
    layer = Layer(merge_operator="")
    layer.build(model)
    products = [k for k, t in enumerate(model.graph.tensors) if t.fields["name"].startswith("MUL")]
    model.graph.outputs.append(products[2 * (STEPS // 2)])
    report = convert(model.build(), host=Host(packs="builtin")).report
    assert report.fused == {FUSION: 1}
