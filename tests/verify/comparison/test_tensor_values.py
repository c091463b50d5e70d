"""Test which ONNX values are compared_values with a TFLite tensor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.verify import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence, values_by_tensor
from tests.helpers.verify_graphs import entry_of, operator, slot, subgraph

NINE_STEPS_OFF = Comparison("t2", "step", 9.0, 1.0, 1.0)


def test_skips_dequantized_values_and_values_without_a_tensor() -> None:
    compared_values = [
        TensorValue("integers", 0, 1, encoding="stored"),
        TensorValue("floats", 0, 0, encoding="float"),
        TensorValue("as stored", 0, 0, encoding="stored"),
        TensorValue("last", 0, 2, encoding="float"),
    ]
    skipped_values = [
        TensorValue("elsewhere", 1, 0, encoding="stored"),
        TensorValue("beyond", 0, 3, encoding="stored"),
        TensorValue("none", 0, -1, encoding="stored"),
        TensorValue("dequantized", 0, 1, encoding="float"),
    ]
    graph = subgraph(inputs=[slot(0), slot(1, "int8", scale=0.5), slot(2)])
    session: Any = SimpleNamespace(tensor_values=[*skipped_values, *compared_values])
    assert values_by_tensor(entry_of(graph), session) == {
        1: compared_values[:1],
        0: compared_values[1:3],
        2: compared_values[3:],
    }


def test_divergence_names_the_onnx_value_if_it_differs() -> None:
    texts = [Divergence(slot(2), operator([slot(0)], [slot(2)]), name, NINE_STEPS_OFF).text for name in ("t2", "v")]
    assert "ONNX value" not in texts[0]
    assert "(ONNX value 'v')" in texts[1]
