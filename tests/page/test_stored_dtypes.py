"""Tests of the dtypes that tensors have in the ONNX model."""

from __future__ import annotations

from onnx import TensorProto, helper

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.graph.value_metadata import write_tensor
from onnx_tflite_plugin.page.content import _edges
from onnx_tflite_plugin.page.stored_dtypes import stored_dtypes
from onnx_tflite_plugin.source import read


def test_quantized_or_complex_tensor_without_value_has_no_dtype() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3,), "int8", quantization=quant(0.5, 3))
    y, f = g.tensor("y", (3,), "int8", quantization=quant(0.5, 3)), g.tensor("f", (3,))
    g.operator("RELU", [x], [y])
    g.operator("DEQUANTIZE", [y], [f])
    g.operator("REAL", [g.tensor("c", (3,), "complex64")], [r := g.tensor("r", (3,))])
    g.output(f)
    g.output(r)
    graph = read(model.build()).main
    indices = {tensor.name: tensor.index for tensor in graph.tensors}
    metadata: dict[str, str] = {}
    write_tensor(metadata, 0, indices["x"])
    value = helper.make_tensor_value_info("x", TensorProto.UINT8, (3,))
    for key, text in metadata.items():
        value.metadata_props.add(key=key, value=text)
    dtypes = stored_dtypes(graph, helper.make_model(helper.make_graph([], "main", [value], [])))
    assert dtypes == {indices["x"]: "uint8", indices["y"]: "", indices["c"]: ""}
    edges = _edges(graph.operators, [], {0: 0, 1: 1, 2: 2}, dtypes)
    assert [(edge["name"], edge["dtype"]) for edge in edges] == [("y", "")]
