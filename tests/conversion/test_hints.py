"""Hints on a model whose quantized inputs and outputs became float32."""

from __future__ import annotations

import logging
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases import builtin_cases
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.presentation.hints import input_hints, table_hints
from onnx_tflite_plugin.source.model import Quantization, Tensor

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
HINTS = (
    "input 'image' takes float32 instead of int8: pass real values, (int8 value + 128) / 255",
    "output 'probabilities' is float32 instead of int8: the values are real; do not dequantize them",
)


def quantized_tensor(dtype: str, scale: tuple[float, ...], zero_point: tuple[int, ...]) -> Tensor:
    return Tensor(0, 0, "x", dtype, (1, 2), (1, 2), quantization=Quantization(scale, zero_point, 1))


@pytest.mark.parametrize("options", [{"quantization": "float"}, {"target": "portable"}], ids=str)
def test_float_interface_of_a_quantized_file_is_explained(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "onnx_tflite_plugin"):
        conversion = otp.convert(DIGITS, **options)
    assert conversion.report.hints == HINTS
    assert repr(conversion).endswith("; see report.hints>")
    assert f"<p>hint: {escape(HINTS[1])}</p>" in conversion._repr_html_()
    assert HINTS[0] in caplog.messages


def test_quantized_interface_needs_no_hint() -> None:
    conversion = otp.convert(DIGITS)
    assert not conversion.report.hints
    assert "report.hints" not in repr(conversion)


@pytest.mark.parametrize(
    ("tensor", "formula"),
    [
        (quantized_tensor("uint8", (1 / 255,), (0,)), "uint8 value / 255"),
        (quantized_tensor("uint8", (0.0078125,), (128,)), "(uint8 value - 128) * 0.0078125"),
        (quantized_tensor("int8", (0.5,), (-3,)), "(int8 value + 3) * 0.5"),
        (quantized_tensor("int16", (2.0,), (0,)), "int16 value * 2"),
        (quantized_tensor("int8", (1.0, 2.0), (0, 0)), "scale * (int8 value - zero point) with the scales of the file"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_formula_has_scale_and_zero_point(tensor: Tensor, formula: str) -> None:
    (hint,) = input_hints([GraphValue("x", "float32", (1, 2))], {"x": tensor})
    assert hint == f"input 'x' takes float32 instead of {tensor.dtype}: pass real values, {formula}"


def test_inputs_with_the_same_formula_share_a_hint() -> None:
    tensor = quantized_tensor("uint8", (0.25,), (0,))
    values = [GraphValue(f"x{k}", "float32", (1, 2)) for k in range(5)]
    (hint,) = input_hints(values, {value.name: tensor for value in values})
    assert hint.startswith("inputs 'x0', 'x1', 'x2' and 2 more take float32 instead of uint8")


def softmax(dtype: str) -> bytes:
    model = ModelBuilder()
    x = model.main.input("x", (2, 5), dtype, quantization=quant(0.001))
    y = model.main.tensor(
        "y", (2, 5), dtype, quantization=quant(1 / 32768) if dtype == "int16" else quant(1 / 256, -128)
    )
    model.main.operator("SOFTMAX", [x], [y], {"beta": 1.0})
    model.main.output(y)
    return model.build()


@pytest.mark.parametrize(("dtype", "count"), [("int16", 1), ("int8", 0)])
def test_tables_that_make_a_file_large_are_a_hint(dtype: str, count: int) -> None:
    hints = otp.convert(softmax(dtype)).report.hints
    assert sum("kB of constants are lookup tables" in hint and "of SOFTMAX;" in hint for hint in hints) == count


def test_tables_that_are_computed_at_load_time_are_a_hint() -> None:
    """The table of an int8 LSTM is stored as differences of its entries."""
    (case,) = [
        case for case in builtin_cases() if (case.op, case.name) == ("UNIDIRECTIONAL_SEQUENCE_LSTM", "int8 plain")
    ]
    hints = otp.convert(case.build()).report.hints
    assert any(
        "kB of constants are lookup tables" in hint and "of UNIDIRECTIONAL_SEQUENCE_LSTM;" in hint for hint in hints
    )


@pytest.mark.parametrize(("index_count", "hint_count"), [(1 << 14, 1), (1 << 13, 0)])
@pytest.mark.parametrize("quantizes_dynamically", [False, True])
def test_constant_indices_that_make_a_file_large_are_a_hint(
    index_count: int, hint_count: int, *, quantizes_dynamically: bool
) -> None:
    """The hint names options only if dynamic quantization gathers."""
    indices = ir.Value(name="indices", const_value=ir.tensor(np.zeros(index_count, np.int32)))
    data = ir.Value(name="data")
    gather = ir.node("Gather", [data, indices], metadata_props=node_props([(0, 7)], "pack.module:patches", "", ""))
    graph = ir.Graph([data], gather.outputs, nodes=[gather], initializers=[indices], name="g")
    op = SimpleNamespace(subgraph=0, index=7, code="PATCHES")
    source: Any = SimpleNamespace(operators=lambda: [SimpleNamespace(op=op, members=())])
    model = ir.Model(graph, ir_version=10)
    hints = [*table_hints(model, source, quantizes_dynamically=quantizes_dynamically)]
    assert len(hints) == hint_count
    assert all("66 of 66 kB of constants are indices, not weights" in hint for hint in hints)
    assert all(": PATCHES" in hint for hint in hints)
    assert all(("; --target generic and --weights fold" in hint) == quantizes_dynamically for hint in hints)
