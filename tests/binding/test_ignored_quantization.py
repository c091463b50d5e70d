"""Quantization parameters of float tensors are ignored, as in LiteRT's kernels."""

from __future__ import annotations

from copy import deepcopy

import pytest

from conformance.builder import serialize_table
from conformance.schema import Table
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.source import read
from tests.qa.fuzz.seeds import cases, seed_model

FLOATS = (0, 1)  # of the schema's element types: float32 and float16
PARAMETERS = ((0.05, 3), (2.0, 0), (0.0078125, -7))
MODELS = (
    "RNN-float32_with_float16_initial_states",
    "RESIZE_BILINEAR-float32_align_corners_to_4x9",
    "RNN-float32_with_NONE",
    "BIDIRECTIONAL_SEQUENCE_RNN-float32_time_first,_separate_outputs",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-float32,_two_layers,_cells_clipped_at_10",
    "SVDF-float32_with_RELU6",
    "PAD-paddings_of_0_between_convolutions",
)


def add_parameters(model: Table) -> bytes:
    """Return the file with different quantization parameters for each float tensor."""
    copy = deepcopy(model)
    tensors = [tensor for graph in copy.fields["subgraphs"] for tensor in graph.fields["tensors"]]
    for k, tensor in enumerate(tensors):
        if tensor.fields["type"] in FLOATS:
            scale, point = PARAMETERS[k % len(PARAMETERS)]
            fields = {"scale": [scale], "zero_point": [point], "quantized_dimension": 0}
            tensor.fields["quantization"] = Table("QuantizationParameters", fields)
    return serialize_table(copy)


@pytest.mark.parametrize("name", MODELS)
def test_quantization_parameters_of_float_tensors_are_ignored(name: str) -> None:
    seed = seed_model([case.id for case in cases()].index(name))
    assert seed is not None
    data = add_parameters(seed.table)
    assert any(tensor.ignored_quantization for tensor in read(data).main.tensors)
    assert not any(tensor.quantization for tensor in read(data).main.tensors)
    assert convert(data).proto.graph == convert(seed.data).proto.graph
