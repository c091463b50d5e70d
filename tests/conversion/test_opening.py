"""Converted models must load in ONNX Runtime; errors name missing kernels."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.kernels import suggest_options
from tests.helpers.single_output import BuildGraph, build_model


def without_kernel(g: GraphBuilder) -> int:
    x, y = g.input("x", (2, 3), "uint64"), g.tensor("y", (2,), "uint64")
    g.operator("REDUCE_MIN", [x, g.constant("axis", np.array([1], np.int32))], [y])
    return y


def test_model_rejected_by_onnx_runtime_is_an_error_by_default() -> None:
    with pytest.raises(ConversionError, match="does not open the converted model"):
        otp.convert(build_model(without_kernel))
    assert otp.convert(build_model(without_kernel), check="standard").proto.graph.node
    assert otp.convert(build_model(without_kernel), target="generic").proto.graph.node


def depth_to_space_int4(g: GraphBuilder) -> int:
    x, y = g.input("x", (1, 2, 2, 4), "int4"), g.tensor("y", (1, 4, 4, 1), "int4")
    g.operator("DEPTH_TO_SPACE", [x], [y], {"block_size": 2})
    return y


@pytest.mark.parametrize("build", [without_kernel, depth_to_space_int4])
def test_suggests_no_opset_if_none_has_a_kernel(build: BuildGraph) -> None:
    with pytest.raises(ConversionError, match="Could not find an implementation") as caught:
        otp.convert(build_model(build))
    assert "opset" not in str(caught.value.problems[0].hint)
    assert str(caught.value.problems[0].hint) == "check='standard' writes the model for a runtime that has this kernel"


def test_failure_names_the_tflite_operator_of_the_node() -> None:
    with pytest.raises(ConversionError) as caught:
        otp.convert(build_model(depth_to_space_int4))
    assert caught.value.problems[0].where == "op 0, output 'y': node 'op0/Reshape', Reshape of int4, int64"


def test_suggests_an_opset_with_a_kernel() -> None:
    node = ir.node("QuantizeLinear", [value("x", "FLOAT"), value("scale", "FLOAT"), value("point", "INT16")])
    node.outputs[0].type = ir.TensorType(ir.DataType.INT16)
    model = ir.Model(ir.Graph(node.inputs, node.outputs, nodes=[node], opset_imports={"": 18}), ir_version=9)
    reason = "NOT_IMPLEMENTED : Could not find an implementation for QuantizeLinear(13) node with name ''"
    assert suggest_options(model, reason, (13, 18)).startswith("--quantization float")
    assert suggest_options(model, reason, (13, 22)).startswith("--opset 22 may help")


def value(name: str, dtype: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(()))
