"""Tests of the facts that the page shows."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from conformance.cases.control.branches import image_branches
from conformance.cases.fusions import normalization
from conformance.models import Net
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import CarriedState, write_states
from onnx_tflite_plugin.graph.node_metadata import node_props, top_level_operators
from onnx_tflite_plugin.page.content import (
    _count_names,
    _count_nodes,
    _edges,
    _facts,
    _graph_value,
    _interface_rows,
    _operator_rows,
    _subgraph_of,
    collect_page_data,
)
from onnx_tflite_plugin.page.groups import group_operators, nodes_without_operator
from onnx_tflite_plugin.page.measurements import Measurements
from onnx_tflite_plugin.page.stored_dtypes import worst_errors
from onnx_tflite_plugin.page.transposes import transpose_rows
from onnx_tflite_plugin.progress import Stages
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.structure import constant_producers
from onnx_tflite_plugin.verify.times import profile
from onnx_tflite_plugin.verify.times.nodes import NodeTime, label_nodes
from tests.helpers.verify_graphs import operator, slot


def info(name: str, *shape: int | str | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(*nodes: tuple[str, list[int]]) -> Any:
    """Return a model of nodes, given as types and operator indices."""
    onnx_nodes = [helper.make_node(kind, ["a"], ["b"]) for kind, _ in nodes]
    for node, (kind, operators) in zip(onnx_nodes, nodes, strict=True):
        helper.set_model_props(node, node_props([(0, k) for k in operators], f"pack:{kind.lower()}", "", ""))  # type: ignore[arg-type]
    return SimpleNamespace(graph=SimpleNamespace(node=onnx_nodes))


def test_node_kinds_are_sorted_by_frequency() -> None:
    assert _count_names(["Add", "Conv", "Conv", "Mul"]) == ["2 Conv", "Add", "Mul"]
    assert _count_names([]) == []


@pytest.mark.parametrize(
    ("value_info", "dtype", "shape"),
    [
        (info("x", 2, "n", None), "float32", [2, "n", None]),
        (info("x", 0, dtype=TensorProto.DOUBLE), "float64", [0]),
        (info("x", dtype=TensorProto.INT8), "int8", []),
    ],
)
def test_edge_has_dtype_shape_and_authored_description(
    value_info: onnx.ValueInfoProto, dtype: str, shape: list[int | str | None]
) -> None:
    authored = [{"name": "y", "labels": ["b"]}, {"name": "x", "labels": ["a"]}]
    assert _graph_value(value_info, authored) == {
        "name": "x",
        "dtype": dtype,
        "shape": shape,
        "labels": ["a"],
        "metadata": ["1 label: a"],
    }
    assert _graph_value(value_info, authored[:1]) == {"name": "x", "dtype": dtype, "shape": shape}


def test_page_describes_metadata_as_the_command_does() -> None:
    image: dict[str, Any] = {"kind": "image", "scale": [1 / 128], "zero_point": [128], "range": [[0.0], [255.0]]}
    authored = [{"name": "x", "mean": [127.5], "std": [127.5], "unknown": 3, **image}]
    facts = _graph_value(info("x", 1, dtype=TensorProto.UINT8), authored)
    assert facts["metadata"] == ["image, pass pixels 0 to 255: the scale already normalizes them, (x - 127.5) / 127.5"]


def test_operator_has_output_time_and_error() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3), "int8", quantization=quant(0.5, 3))
    f, y = g.tensor("f", (2, 3)), g.tensor("y", (2, 3))
    g.operator("DEQUANTIZE", [x], [f])
    g.operator("NEG", [f], [y])
    g.operator("QUANTIZE", [y], [z := g.tensor("z", (2, 3), "int8", quantization=quant(0.5, 3))])
    g.operator("VAR_HANDLE", [], [h := g.tensor("h", (), "resource")], {"shared_name": "v"})
    g.operator("ASSIGN_VARIABLE", [h, y], [])
    g.output(z)
    source = read(model.build())
    operators = source.main.operators
    errors = [
        {"tensor": 1, "text": "off", "first_wrong": True}, {"tensor": 2, "text": "far off", "first_wrong": False},
    ]  # fmt: skip
    groups = group_operators(operators, model_of(("DequantizeLinear", [0])))
    rows = list(_operator_rows(source, operators, groups, {0: 1.23456e-6, 2: 7e-6}, errors, {}))
    assert [(row["index"], row["code"], row["name"], row["dtype"], row["shape"]) for row in rows] == [
        (0, "DEQUANTIZE", "f", "float32", [2, 3]), (1, "NEG", "y", "float32", [2, 3]), (2, "QUANTIZE", "z", "int8", [2, 3]),
        (3, "VAR_HANDLE", "h", "resource", []), (4, "ASSIGN_VARIABLE", "", "", []),
    ]  # fmt: skip
    assert [row["microseconds"] for row in rows] == [1.23, None, 7.0, None, None]
    assert [row["float_island"] for row in rows] == [True, True, False, False, False]
    assert [row["first"] for row in rows] == [True, False, False, False, False]
    assert [row["wrong"] for row in rows] == ["off", "", "", "", ""]
    assert [row["nodes"] for row in rows] == [["DequantizeLinear"], [], [], [], []]
    assert rows[1]["layout"] == "Transparent"
    assert [row["quantization"] != "" for row in rows] == [True, False, True, False, False], "float NEG has none"


def test_results_of_constants_are_constant() -> None:
    constant, sparse, x = slot(0, values=np.ones(1)), slot(1), slot(4)
    operators = [
        operator([constant], [sparse]), operator([sparse], [slot(2)], index=1), operator([slot(2), x], [slot(3)], index=2),
    ]  # fmt: skip
    assert {op.index for op in constant_producers(operators).values()} == {0, 1}


def test_tensor_in_several_values_has_its_largest_error() -> None:
    def row(tensor: int, error: float | None, *, ok: bool = True) -> dict[str, Any]:
        return {"tensor": tensor, "max_error": error, "tolerance": 2.0, "ok": ok}

    rows = [
        row(1, 1.0),
        row(2, 1.0),
        row(1, 2.0),
        row(2, 0.0),
        row(3, 1.0),
        row(3, None),
        row(4, 9.0, ok=False),
        row(4, 1.0),
    ]
    assert list(worst_errors(rows)) == [rows[2], rows[1], rows[5], rows[6]]


def test_operators_are_those_of_the_converted_signature() -> None:
    model = ModelBuilder()
    for name, code in (("first", "NEG"), ("second", "EXP")):
        graph = model.main if name == "first" else model.subgraph(name)
        graph.operator(code, [x := graph.input("x", (3,))], [y := graph.tensor("y", (3,))])
        graph.output(y)
        model.signature(name, {"a": x}, {"b": y}, subgraph=0 if name == "first" else 1)
    source = read(model.build())
    for key, code in (("second", "EXP"), ("first", "NEG"), (None, "NEG")):
        proto = otp.convert(model.build(), signature=key).proto
        assert [op.code for op in _subgraph_of(source, proto).operators] == [code]


def test_tensor_has_one_edge_per_consumer() -> None:
    x, y, z, w = slot(0), slot(1), slot(2), slot(3, values=np.ones(1))
    operators = [operator([x], [y, None]), operator([y, y, None, w, x], [z], index=1), operator([y], [w], index=2)]
    edges = [(edge["from"], edge["to"], edge["name"]) for edge in _edges(operators, [], {0: 0, 1: 1, 2: 2}, {})]
    assert edges == [(0, 1, "t1"), (0, 2, "t1")]


def test_states_are_listed_separately_unless_removed() -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["kept"], ["kept:next"])],
        "g",
        [info("x", 2), info("kept", 3)],
        [info("y", 2), info("kept:next", 3), info("gone:next", 3)],
        [helper.make_tensor("w", TensorProto.FLOAT, [5], [0.0] * 5)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("other", 7), helper.make_opsetid("", 18)])
    rules: dict[str, str] = {}
    states = [CarriedState(name, f"{name}:next", "float32", (3,), None) for name in ("kept", "gone")]
    write_states(rules, states)
    helper.set_model_props(model, rules)
    facts = _facts(b"12345", model, 3)
    names = {side: [fact["name"] for fact in facts[side]] for side in ("inputs", "outputs", "states")}
    assert names == {"inputs": ["x"], "outputs": ["y"], "states": ["kept"]}
    assert facts["states"][0]["next"] == "kept:next"
    assert (facts["tflite_bytes"], facts["operators"], facts["nodes"], facts["opset"]) == (5, 3, 2, 18)
    assert (facts["onnx_bytes"], facts["constant_bytes"]) == (model.ByteSize(), 5 * 4)


def test_page_and_report_count_the_same_bytes_of_onnx_constants() -> None:
    net = Net()
    image_branches("IF", 2)(net)
    conversion = otp.convert(net.build())
    assert _facts(b"", conversion.proto, 1)["constant_bytes"] == sum(conversion.report.constants.values()) > 0


def test_every_transpose_of_the_file_is_listed_with_its_operators() -> None:
    inner = helper.make_graph([helper.make_node("Transpose", ["d"], ["e"])], "inner", [], [info("e", 1)])
    nodes = [
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
        helper.make_node("Transpose", ["b"], ["c"]),
        helper.make_node("Add", ["c", "c"], ["d"]),
        helper.make_node("If", ["f"], ["g"], then_branch=inner, else_branch=inner),
    ]
    helper.set_model_props(nodes[0], node_props([(0, 12)], "", "", ""))  # type: ignore[arg-type]
    nodes[3].attribute[0].g.value_info.append(info("d", 7, 11))
    nodes.append(helper.make_node("Transpose", ["h"], ["i"]))
    nodes.append(helper.make_node("Transpose", ["w"], ["v"]))
    initializer = helper.make_tensor("w", TensorProto.FLOAT, [64, 32], np.zeros(2048))
    inputs = [info("a", 2, 3, 5), info("f", dtype=TensorProto.BOOL), info("h", 2, None)]
    model = helper.make_model(helper.make_graph(nodes, "main", inputs, [info("c")], [initializer]))
    assert list(transpose_rows(model)) == [
        {"tensor": "a", "perm": "0, 2, 1", "shape": [2, 3, 5], "elements": 30, "operators": [12], "inside": ""},
        {"tensor": "b", "perm": "", "shape": [2, 5, 3], "elements": 30, "operators": [], "inside": ""},
        *[{"tensor": "d", "perm": "", "shape": [7, 11], "elements": 77, "operators": [], "inside": "If"}] * 2,
        {"tensor": "h", "perm": "", "shape": [2, None], "elements": None, "operators": [], "inside": ""},
        {"tensor": "w", "perm": "", "shape": [64, 32], "elements": 2048, "operators": [], "inside": ""},
    ]
    assert _count_nodes(model) == {"nodes": 8, "inner_nodes": 2, "containers": ["If"]}


def test_inputs_and_outputs_are_ends_of_edges() -> None:
    x, y = slot(0), slot(1)
    graph: Any = SimpleNamespace(inputs=(x,), outputs=(y,))
    interface = list(_interface_rows(graph, {"t1": "scores"}, {}))
    assert [(end["index"], end["side"], end["name"]) for end in interface] == [
        ("input0", "input", "t0"),
        ("output0", "output", "scores"),
    ]
    edges = [(edge["from"], edge["to"], edge["name"]) for edge in _edges([operator([x], [y])], interface, {0: 0}, {})]
    assert edges == [("input0", 0, "t0"), (0, "output0", "scores")]


def test_node_of_several_operators_is_counted_once() -> None:
    """Operators that share a node are one group with the nodes of all of them."""
    operators = [operator([slot(k)], [slot(k + 1)], index=k) for k in range(7)]
    nodes = (("Conv", [3, 5]), ("Relu", [5]), ("Add", [5, 6]), ("Exp", [4]), ("Abs", []))
    groups = group_operators(operators, model_of(*nodes))
    assert [(group.index, group.operator_range, group.nodes) for group in groups] == [
        (0, "0", ()), (1, "1", ()), (2, "2", ()), (4, "4", ("Exp",)), (3, "3, 5, 6", ("Conv", "Relu", "Add")),
    ]  # fmt: skip
    assert groups[-1].handler == "conv"


def test_group_is_named_after_few_operators_or_its_handler() -> None:
    def code(*codes: str) -> str:
        operators = [operator([slot(k)], [slot(k + 1)], code=code, index=k) for k, code in enumerate(codes)]
        (group,) = group_operators(operators, model_of(("Norm", list(range(len(codes))))))
        return group.code

    assert code("ADD") == "ADD"
    assert code("PAD", "CONV_2D") == "PAD, CONV_2D"
    assert code("SLICE", "SLICE", "ADD") == "2 SLICE, ADD"
    assert code("MEAN", "SUB", "MUL", "ADD", "MUL") == "NORM (5 operators)"


def test_time_of_a_fusion_is_that_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """LayerNormalization is one entry with one node and one time."""
    data = next(
        case for case in normalization.cases() if case.name == "LayerNormalization of Keras, scaled, shifted"
    ).build()
    proto = otp.convert(data).proto
    (norm,) = (node for node in proto.graph.node if node.op_type == "LayerNormalization")
    first, *_, last = top_level_operators(props(norm.metadata_props))
    monkeypatch.setattr(
        "onnx_tflite_plugin.page.measurements.measure_conversion",
        lambda *arguments: Measurements([], "within", False, {first: 4e-6, last: 1e-6}, 3e-6),
    )
    page = collect_page_data(data, proto, "m")
    (fused,) = (row for row in page.operators if first in row["operators"])
    assert "LayerNormalization" in fused["nodes"]
    assert len(fused["operators"]) > 4
    assert (fused["microseconds"], fused["layout"]) == (5.0, "Fused")
    assert fused["code"] == f"LAYER_NORMALIZATION ({len(fused['operators'])} operators)"
    assert [row["microseconds"] for row in page.operators if row is not fused] == [None] * (len(page.operators) - 1)
    assert page.facts["unowned_microseconds"] == 3.0
    node_count = sum(int(text.split()[0]) if " " in text else 1 for row in page.operators for text in row["nodes"])
    assert node_count + len(page.facts["unowned"]) == page.facts["nodes"]
    assert not any(edge["from"] == edge["to"] for edge in page.edges)


def test_nodes_inside_an_unowned_if_are_listed_with_it() -> None:
    inner = helper.make_graph([helper.make_node("Neg", ["d"], ["e"])], "inner", [], [info("e", 1)])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["f"], ["g"], then_branch=inner, else_branch=inner),
            helper.make_node("Abs", ["g"], ["h"]),
        ],
        "main",
        [],
        [info("h", 1)],
    )
    assert nodes_without_operator(helper.make_model(graph)) == (["If", "Abs"], ["Neg", "Neg"])


def calls() -> bytes:
    """Return a model of operators that call subgraphs.

    0: ABS; 1 and 2: calls of EXP and of a call of NEG; 3: an IF with two branches; 4: SIN.
    """
    model = ModelBuilder()
    g = model.main
    x, condition = g.input("x", (2, 3)), g.input("c", (), "bool")

    def subgraph(name: str, *codes: str, calls: int | None = None) -> int:
        inner = model.subgraph(name)
        value = inner.input("u", (2, 3))
        for code in codes:
            inner.operator(code, [value], [result := inner.tensor(code, (2, 3))])
            value = result
        if calls is not None:
            build_composite(inner, value, result := inner.tensor("called", (2, 3)), calls)
            value = result
        inner.output(value)
        return inner.index

    def build_composite(graph: GraphBuilder, value: TensorRef, result: TensorRef, called: int) -> None:
        options = {"name": "vendor.thing", "decomposition_subgraph_index": called}
        graph.operator("STABLEHLO_COMPOSITE", [value], [result], options)

    negated = subgraph("negated", "NEG")
    outer = subgraph("outer", "EXP", calls=negated)
    a, b, c, d, e = (g.tensor(name, (2, 3)) for name in "abcde")
    g.operator("ABS", [x], [a])
    build_composite(g, a, b, outer)
    build_composite(g, b, c, outer)
    branches = {"then_subgraph_index": subgraph("then", "COS"), "else_subgraph_index": subgraph("else", "RSQRT")}
    g.operator("IF", [condition, c], [d], branches)
    g.operator("SIN", [d], [e])
    g.output(e)
    return model.build()


def test_inlined_nodes_belong_to_the_call() -> None:
    proto = otp.convert(calls()).proto
    groups = group_operators(read(calls()).main.operators, proto)
    assert {group.index: group.nodes for group in groups} == {
        0: ("Abs",), 1: ("Exp", "Neg"), 2: ("Exp", "Neg"), 3: ("Reshape", "If"), 4: ("Sin",),
    }  # fmt: skip
    assert {group.index: sorted(group.inner) for group in groups if group.inner} == {3: ["Cos", "Reciprocal", "Sqrt"]}
    (branching,) = (node for node in proto.graph.node if node.op_type == "If")
    inner = [node for attribute in branching.attribute for node in attribute.g.node]
    assert {top_level_operators(props(node.metadata_props)) for node in inner} == {(3,)}
    op_types = [node.name.partition("#")[0] for node in label_nodes(proto).graph.node]
    assert op_types == ["op0", "op1", "op1", "op2", "op2", "op3", "op3", "op4"]
    operators = structure.read(calls()).main.operators
    groups = list(
        profile.group_operators(
            operators, proto, [NodeTime("Abs", 0, 1.0), NodeTime("Neg", 2, 3.0), NodeTime("X", None, 5.0)]
        )
    )
    assert ((), (5.0,)) in [
        (tuple(op.index for op in group.operators), tuple(node.seconds for node in group.nodes)) for group in groups
    ]
    assert sorted(op.index for group in groups for op in group.operators) == [0, 1, 2, 3, 4]


# --- progress ---------------------------------------------------------------------------------


def test_stages_of_all_runs_count_together() -> None:
    stages = Stages()
    for stage in ("LiteRT, run 1 of 2", "LiteRT, run 2 of 2", "ONNX Runtime, run 1 of 1"):
        stages(stage)
    stages.finish()
    assert [*stages.seconds] == ["LiteRT", "ONNX Runtime"]


def test_stages_are_reported_at_start_and_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[tuple[str, int]] = []
    with caplog.at_level(logging.INFO, "onnx_tflite_plugin"):
        stages = Stages(lambda stage: reported.append((stage, len(caplog.records))))
        stages("one")
        stages("two")
        stages.finish()
        stages.finish()
        Stages()("no callback")
    assert reported == [("one", 0), ("two", 1)]
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == ["one", "two"]
    assert all(0 <= float(record.getMessage().split()[1]) < 60 for record in caplog.records)
