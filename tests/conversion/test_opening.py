"""Every model that is written opens in ONNX Runtime; what has no kernel there is refused, with what may help."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from drawing import Draw, drawn

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph import opening
from onnx_tflite_plugin.graph.kernels import advice


def without_kernel(g: GraphBuilder) -> int:
    x, y = g.input("x", (2, 3), "uint64"), g.tensor("y", (2,), "uint64")
    g.operator("REDUCE_MIN", [x, g.constant("axis", np.array([1], np.int32))], [y])
    return y


def test_what_onnx_runtime_does_not_open_is_refused_unless_asked_for() -> None:
    with pytest.raises(ConversionError, match="does not open what was converted"):
        otp.convert(drawn(without_kernel))
    assert otp.convert(drawn(without_kernel), check="standard").proto.graph.node
    assert otp.convert(drawn(without_kernel), target="generic").proto.graph.node


def spelled_as_int4(g: GraphBuilder) -> int:
    x, y = g.input("x", (1, 2, 2, 4), "int4"), g.tensor("y", (1, 4, 4, 1), "int4")
    g.operator("DEPTH_TO_SPACE", [x], [y], {"block_size": 2})
    return y


@pytest.mark.parametrize("build", [without_kernel, spelled_as_int4])
def test_no_other_opset_is_named_where_onnx_runtime_has_a_kernel_in_none(build: Draw) -> None:
    with pytest.raises(ConversionError, match="Could not find an implementation") as caught:
        otp.convert(drawn(build))
    assert "--opset" not in str(caught.value.problems[0].hint)
    assert "--check standard" in str(caught.value.problems[0].hint)


def test_an_opset_is_named_where_onnx_runtime_has_a_kernel_in_it() -> None:
    node = ir.node("QuantizeLinear", [value("x", "FLOAT"), value("scale", "FLOAT"), value("point", "INT16")])
    node.outputs[0].type = ir.TensorType(ir.DataType.INT16)
    model = ir.Model(ir.Graph(node.inputs, node.outputs, nodes=[node], opset_imports={"": 18}), ir_version=9)
    reason = "NOT_IMPLEMENTED : Could not find an implementation for QuantizeLinear(13) node with name ''"
    assert advice(model, reason, (13, 18)).startswith("--quantization float")
    assert advice(model, reason, (13, 22)).startswith("--opset 22 may help")


def value(name: str, dtype: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType[dtype]), shape=ir.Shape(()))


def summed(dtype: str) -> Draw:
    """ADD of this dtype."""

    def build(g: GraphBuilder) -> int:
        x, y = g.input("x", (2, 3), dtype), g.tensor("y", (2, 3), dtype)
        g.operator("ADD", [x, x], [y])
        return y

    return build


@pytest.mark.parametrize(("dtype", "opened"), [("float32", False), ("int32", False), ("uint64", True)])
def test_a_large_model_is_opened_where_it_computes_in_a_dtype_that_few_kernels_take(
    dtype: str, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening one takes as long as running it for the first time."""
    tried = []
    model = otp.convert(drawn(without_kernel if dtype == "uint64" else summed(dtype)), check="standard").model
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *given, **options: tried.append(given))
    proto = ir.to_proto(model)
    for cheap, expected in ((0, opened), (proto.ByteSize(), True)):
        monkeypatch.setattr(opening, "CHEAP", cheap)
        tried.clear()
        opening.check_opens(model, proto, "auto", (18, 18))
        assert bool(tried) is expected


FUNCTIONS = """<ir_version: 8, opset_import: ["": 18, "own": 1, "foreign": 1]> g (float[2, 3] x) => (float[2, 3] y) {
    a = own.half (x)
    b = com.microsoft.Gelu (a)
    y = foreign.relu9 (b)
}
<domain: "own", opset_import: ["": 18]> half (x) => (y) { two = Constant <value_float = 2.0> () y = Div (x, two) }"""


def test_domains_that_need_a_library_are_neither_onnx_runtime_s_nor_of_the_model_s_functions() -> None:
    assert opening.foreign_domains(ir.from_proto(onnx.parser.parse_model(FUNCTIONS))) == ("foreign",)
