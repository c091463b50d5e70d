"""A loop that is a recurrent layer becomes one ONNX node; others stay loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest

from conformance.cases.custom.lists import drop_variant_tensors
from conformance.cases.fusions.loops import LAYERS, SIMILAR, TIME, Layer
from conformance.cases.fusions.loops_directions import FUSED, SEPARATE, Pair
from conformance.cases.fusions.loops_masked import MASKED, Masked
from conformance.cases.fusions.loops_masked import SIMILAR as MASKED_SIMILAR
from conformance.models import Net, random_array
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime


def convert_model(layer: Layer, without_contents: bool = False) -> Conversion:
    """Convert a loop.

    ``without_contents``: the file does not store the contents of lists.
    """
    model = Net()
    layer.build(model)
    if without_contents:
        drop_variant_tensors(model.model)
    return convert(model.build(), host=Host(packs="builtin"))


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_loop_becomes_one_node(name: str) -> None:
    layer, report = LAYERS[name], convert_model(LAYERS[name]).report
    assert report.fused == {"WHILE_RECURRENT": 1}
    assert report.nodes[layer.kind.split()[-1]] == layer.stages
    assert not {"Loop", "Gemm", "MatMul", "Sigmoid", "Tanh"} & report.nodes.keys()
    assert report.operators["WHILE"] == 1


@pytest.mark.parametrize("name", SIMILAR)
def test_similar_loop_is_not_fused(name: str) -> None:
    report = convert_model(SIMILAR[name]).report
    assert not {"WHILE_RECURRENT"} & report.fused.keys()
    assert report.nodes["Loop"] == 1


def outputs_of_both(layer: Layer, without_contents: bool = False) -> tuple[Conversion, list[Array], list[Array]]:
    """Return the outputs of one layer on a TensorFlow list and on an array.

    Only the layer on an array can run in LiteRT.
    """
    model, conversion = Net(), convert_model(replace(layer, tensor_list=True), without_contents)
    layer.build(model)
    tables = [model.graph.tensors[index].fields for index in model.graph.inputs]
    shapes = {
        fields["name"]: (TIME if fields["name"] == "x" else fields["shape"][0], *fields["shape"][1:])
        for fields in tables
    }
    arrays = {name: random_array(*shape, seed=name) for name, shape in shapes.items()}
    actual = OnnxRuntime(conversion.proto).run(arrays)
    return conversion, actual, LiteRT(model.build()).run(list(arrays.values()))


@pytest.mark.parametrize("without_contents", [False, True], ids=["described", "older file"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_loop_on_a_list_becomes_one_node(name: str, without_contents: bool) -> None:
    conversion, actual, expected = outputs_of_both(LAYERS[name], without_contents)
    assert conversion.report.fused == {"WHILE_RECURRENT": 1}
    for actual_array, expected_array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(actual_array, expected_array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SIMILAR)
def test_loop_on_a_list_equals_loop_on_an_array(name: str) -> None:
    conversion, actual, expected = outputs_of_both(SIMILAR[name])
    assert conversion.report.nodes["Loop"] == 1
    for actual_array, expected_array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(actual_array, expected_array, rtol=1e-4, atol=1e-5)


def test_zero_initial_state_is_omitted() -> None:
    [node] = [node for node in convert_model(Layer(all_outputs=False)).proto.graph.node if node.op_type == "LSTM"]
    assert list(node.input[4:]) == []


def test_float16_weights_stay_float16() -> None:
    proto = convert_model(Layer(weights="float16")).proto
    large = [tensor for tensor in proto.graph.initializer if np.prod(tensor.dims) > 100]
    assert {tensor.data_type for tensor in large} == {onnx.TensorProto.FLOAT16}


def directions(pair: Pair) -> Counter[str]:
    """Return the directions of all recurrent nodes."""
    model = Net()
    pair.build(model)
    conversion = convert(model.build(), host=Host(packs="builtin"))
    recurrent = [node for node in conversion.model.graph.all_nodes() if node.op_type in ("LSTM", "GRU", "RNN")]
    return Counter(node.attributes.get_string("direction", "forward") for node in recurrent)


@pytest.mark.parametrize("name", FUSED)
def test_two_directions_become_one_node(name: str) -> None:
    assert directions(FUSED[name]) == {"bidirectional": 1}


@pytest.mark.parametrize("name", SEPARATE)
def test_different_directions_stay_two_nodes(name: str) -> None:
    assert directions(SEPARATE[name]) == {"forward": 2 * SEPARATE[name].layer.stages}


def test_bidirectional_node_needs_no_reversal() -> None:
    model = Net()
    Pair(Layer("GRU")).build(model)
    nodes = convert(model.build(), host=Host(packs="builtin")).report.nodes
    assert nodes == {"GRU": 1, "Split": 1, "Squeeze": 1, "Transpose": 1, "Reshape": 1}


def loops_and_layers(masked: Masked) -> Counter[str]:
    model = Net()
    masked.build(model)
    conversion = convert(model.build(), host=Host(packs="builtin"))
    return Counter(
        node.op_type for node in conversion.model.graph.all_nodes() if node.op_type in ("Loop", "LSTM", "GRU", "RNN")
    )


@pytest.mark.parametrize("name", MASKED)
def test_masked_recurrent_loop_becomes_one_node(name: str) -> None:
    assert loops_and_layers(MASKED[name]) == {MASKED[name].layer.kind.split()[-1]: 1}


@pytest.mark.parametrize("name", MASKED_SIMILAR)
def test_similar_masked_loop_is_not_fused(name: str) -> None:
    assert loops_and_layers(MASKED_SIMILAR[name]) == {"Loop": 1}
