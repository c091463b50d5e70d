"""Tests of counts, states and the summary line of a report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, serialize_table
from conformance.cases import builtin_cases
from conformance.cases.control.branches import image_branches as branches
from conformance.cases.state.variables import VariableNet
from conformance.cases.tensor.sparse import add_densified_constant
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.report import node_counts
from onnx_tflite_plugin.source import read
from tests.helpers.passes_networks import Network, image


def test_counts_nodes_of_inner_graphs() -> None:
    net = Net()
    branches("IF", 2)(net)
    conversion = otp.convert(net.build())
    inner = [
        node.op_type
        for outer in conversion.proto.graph.node
        for attribute in outer.attribute
        for node in attribute.g.node
    ]
    op_types = [node.op_type for node in conversion.proto.graph.node] + inner
    assert inner
    assert conversion.report.nodes == {op_type: op_types.count(op_type) for op_type in op_types}


def test_counts_nodes_per_domain() -> None:
    x = ir.Value(name="x")
    nodes = [
        ir.node("Gelu", [x]),
        ir.node("Gelu", [x], domain="com.microsoft"),
        ir.node("Gelu", [x], domain="com.microsoft"),
    ]
    model = ir.Model(ir.Graph([x], [nodes[-1].outputs[0]], nodes=nodes), ir_version=10)
    assert [*node_counts(model).items()] == [("com.microsoft.Gelu", 2), ("Gelu", 1)]


def test_counts_fused_operators() -> None:
    net = Network()
    y = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 4, (1, 1))
    net.output(net.call("MUL", [y, constant(random_array(4))], net.spec(y).with_shape(1, 5, 7, 4)))
    report = otp.convert(net.build()).report
    assert report.fused
    assert report.operators == {"CONV_2D": 1, "MUL": 1}


def test_operator_shared_with_a_fusion_counts_once() -> None:
    case_id = "CONV_2D-decomposed,_int8,_PAD_read_by_another_operator"
    report = otp.convert(next(case for case in builtin_cases() if case.id == case_id).build()).report
    assert report.fused
    assert report.operators == {"CONV_2D": 1, "PAD": 1, "RELU": 1}


def test_write_only_state_has_an_input() -> None:
    net = VariableNet()
    spec = tensor(2, 3)
    x = net.input(spec)
    net.variable(spec, np.zeros((2, 3))).assign(x)
    net.output(net.call("NEG", [x], spec))
    conversion = otp.convert(net.build())
    names = [info.name for info in conversion.proto.graph.input]
    assert conversion.report.states == ("state",)
    assert "state" in names


def test_raw_integers_of_unequal_scales_need_a_target_kernel() -> None:
    """Dequantizing would change the result, because the kernel selects raw integers."""
    net = Net()
    x, y = (net.input(Spec((2, 3), "int8", scale, 0, name=name)) for name, scale in (("x", 0.1), ("y", 0.3)))
    condition = net.input(Spec((2, 3), "bool", name="condition"))
    net.output(net.call("SELECT_V2", [condition, x, y], Spec((2, 3), "int8", 0.2, 0)))
    with pytest.raises(
        ConversionError, match="int8 values, for which target tensorrt has no Where; convert with quantization='float'"
    ):
        otp.convert(net.build(), target="tensorrt")
    assert otp.convert(net.build(), target="tensorrt", quantization="float").report.outputs[0].dtype == "float32"


def test_constant_ignores_its_shape_signature() -> None:
    net = Net()
    y = net.call("ADD", [tensor(2, 3), constant(random_array(1, 3))], tensor(2, 3))
    net.output(y)
    table = net.model.table()
    tensors = table.fields["subgraphs"][0].fields["tensors"]
    [addend] = [table for table in tensors if list(table.fields["shape"]) == [1, 3]]
    addend.fields["shape_signature"] = [-1, 3]
    [constant_tensor] = [stored for stored in read(serialize_table(table)).main.tensors if stored.is_constant]
    assert constant_tensor.dims == (1, 3)


def test_one_channel_image_is_not_reported_as_transposed() -> None:
    net = Network()
    net.output(net.conv(net.input(image(1, 5, 7, 1, dtype="float32")), 1, (1, 1)))
    report = otp.convert(net.build()).report
    assert report.nodes.get("Transpose", 0) == report.transposes == 0
    assert report.transposed == ()


def test_transposes_that_a_rewrite_removed_are_marked() -> None:
    net = Network()
    net.output(net.conv(net.input(image(1, 32, 32, 3, dtype="float32")), 8, (3, 3), stride=2))
    for optimize, count in (("none", 2), ("faithful", 1)):
        report = otp.convert(net.build(), optimize=optimize).report
        assert report.nodes["Transpose"] == count
        assert [row.is_removed for row in report.transposed] == [count == 1, False]


def test_transposes_that_handlers_emit_are_counted_by_operator() -> None:
    net = Net()
    net.output(net.call("WHERE", [tensor(2, 3, dtype="bool")], tensor(None, 2, dtype="int64")))
    report = otp.convert(net.build()).report
    assert report.operator_transposes == {"op 0 WHERE v1 'y0'": 1}
    transpose_net = Net()
    transpose_net.output(
        transpose_net.call("TRANSPOSE", [tensor(2, 3), constant(np.array([1, 0], np.int32))], tensor(3, 2))
    )
    report = otp.convert(transpose_net.build()).report
    assert (report.transposes, report.operator_transposes) == (1, {})


def test_report_counts_matches_that_a_rewrite_declined() -> None:
    report = otp.convert("examples/digits_int8.tflite").report
    assert report.passes_declined["fold_depthwise"] == {"there are more than 8 channels": 1}


def test_report_line_counts_omitted_outputs() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (5, 7))
    for k, code in enumerate(("NEG", "ABS", "EXP", "SIN", "COS")):
        y = g.tensor(f"y{k}", (5, 7))
        g.operator(code, [x], [y])
        g.output(y)
    assert otp.convert(model.build()).report.line.startswith("x → y0, y1, y2 and 2 more; ")


@pytest.mark.parametrize(
    ("outputs", "reported"),
    [("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more"), ("abcde", "a, b, c and 2 more")],
)
def test_report_line_names_up_to_three_outputs(outputs: str, reported: str) -> None:
    report = otp.convert(builtin_cases()[0].build()).report
    graph_outputs = tuple(replace(report.outputs[0], name=name) for name in outputs)
    assert f" → {reported}; " in replace(report, outputs=graph_outputs).line


@pytest.mark.parametrize(("transposed", "reported"), [(0, "0 Transposes"), (1, "1 Transpose"), (2, "2 Transposes")])
def test_report_line_ends_with_the_number_of_transposes(transposed: int, reported: str) -> None:
    report = otp.convert(builtin_cases()[0].build()).report
    assert replace(report, nodes={"Add": 1, "Transpose": transposed}).line.endswith(f" nodes, {reported}")


def test_report_has_the_bytes_of_stored_constants_by_dtype() -> None:
    net = Net()
    dense = add_densified_constant(net, constant(random_array(6, 8)))
    net.output(net.call("ADD", [tensor(6, 8), dense], tensor(6, 8)))
    report = otp.convert(net.build()).report
    assert report.constants == {"float32": 6 * 8 * 4}
    assert [*report.file_constants] == ["sparse float32"]
    (sparse,) = [row for row in otp.inspect(net.build())["constants"] if row["sparse"]]
    assert (sparse["dtype"], sparse["count"]) == ("float32", 1)
    assert sparse["bytes"] == report.file_constants["sparse float32"] != 6 * 8 * 4


def test_bytes_of_stored_constants_do_not_depend_on_options() -> None:
    model = ModelBuilder()
    value = model.main.input("x", (1, 6))
    for name, shape in (("a", (1, 2, 3)), ("b", (1, 6))):
        result = model.main.tensor(name, shape)
        sizes = model.main.constant(f"{name} sizes", np.array(shape, np.int32))
        model.main.operator("RESHAPE", [value, sizes], [result])
        value = result
    model.main.output(value)
    for options in ({}, {"dynamic_batch": True}, {"outputs": ("a",)}):
        report = otp.convert(model.build(), **options).report
        rows = otp.inspect(model.build())["constants"]
        assert report.file_constants == {row["dtype"]: row["bytes"] for row in rows} == {"int32": 20}
