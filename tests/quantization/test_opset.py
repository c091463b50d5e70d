"""The opset that a model needs, and the error if an older one is requested."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, quant
from conformance.cases.image.pooling import pool_case
from onnx_tflite_plugin.api import builtin
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.host import Host
from tests.helpers.single_output import build_model


def dense(g: GraphBuilder, dtype: str, weights: str) -> int:
    q = quant(0.05)
    array = np.ones((7, 5), getattr(ml_dtypes, weights, None) or weights)
    operands = [g.input("x", (3, 5), dtype, quantization=q), g.constant("w", array, weights, quantization=quant(0.1))]
    g.operator("FULLY_CONNECTED", operands, [y := g.tensor("y", (3, 7), dtype, quantization=q)])
    return y


@pytest.mark.parametrize(
    ("dtype", "weights", "min_opset", "hint"),
    [
        ("int8", "int4", 13, "opset=21 or weights='fold'"),
        ("int16", "int8", 13, "opset=21"),
        ("int16", "int4", 13, "opset=21"),
        ("int8", "int8", 22, "opset=22"),
    ],
)
def test_folding_is_suggested_if_only_constants_need_a_newer_opset(
    dtype: str, weights: str, min_opset: int, hint: str
) -> None:
    host = Host(packs="builtin", handlers={"FULLY_CONNECTED": replace(builtin("FULLY_CONNECTED"), min_opset=min_opset)})
    with pytest.raises(UnsupportedOperator) as refused:
        otp.convert(build_model(lambda g: dense(g, dtype, weights)), target="generic", opset=20, host=host)
    assert [problem.hint for problem in refused.value.problems] == [hint]
    assert "FULLY_CONNECTED" in refused.value.problems[0].where


@pytest.mark.parametrize("min_opset", [20, 22])
def test_default_opset_is_raised_if_an_operator_needs_it(min_opset: int) -> None:
    host = Host(packs="builtin", handlers={"FULLY_CONNECTED": replace(builtin("FULLY_CONNECTED"), min_opset=min_opset)})
    assert otp.convert(build_model(lambda g: dense(g, "int8", "int8")), host=host).model.opset_imports[""] == min_opset


@pytest.mark.parametrize(("opset", "operand"), [(20, "FLOAT"), (21, "INT8")])
def test_int8_is_pooled_between_dq_and_q_only_where_onnx_runtime_loads_it(opset: int, operand: str) -> None:
    model = pool_case("MAX_POOL_2D", "int8", "int8", "VALID").build()
    graph = otp.convert(model, target="generic", opset=opset).model.graph
    (node,) = (node for node in graph if node.op_type == "MaxPool")
    assert node.inputs[0].dtype.name == operand
