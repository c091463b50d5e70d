"""Tests of the operators in ``inspect``: counts, versions, positions, calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder
from conformance.cases.state.variables import running_sum
from conformance.models import Net, tensor
from conformance.weights import block_weights
from onnx_tflite_plugin.api import Decline, builtin
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.inspection import describe_handler
from onnx_tflite_plugin.source import read


def chain(graph: GraphBuilder, *operators: tuple[str, int]) -> None:
    """Add a chain of operators, given as codes and versions."""
    value = graph.input("x", (2, 3))
    for k, (code, version) in enumerate(operators):
        result = graph.tensor(f"{code}{k}", (2, 3))
        graph.operator(code, [value, value] if code == "ADD" else [value], [result], version=version)
        value = result
    graph.output(value)


def test_counts_operators_by_code_with_versions_and_position() -> None:
    model = ModelBuilder()
    chain(model.main, ("ABS", 1), ("ADD", 2), ("ADD", 1), ("ADD", 2))
    chain(model.subgraph("spare"), ("ABS", 1), ("ADD", 1))
    rows = otp.inspect(model.build())["operators"]
    assert [(row["code"], row["count"], row["versions"], row["first"], row["called"]) for row in rows] == [
        ("ADD", 3, [1, 2], "op 1", True),
        ("ABS", 1, [1], "op 0", True),
        ("ABS", 1, [1], "subgraph 1 op 0", False),
        ("ADD", 1, [1], "subgraph 1 op 1", False),
    ]


def test_counts_the_operands_stored_in_the_file_once_by_dtype() -> None:
    model = ModelBuilder()
    for k, (shape, dtype) in enumerate((((3, 5), np.int8), ((2, 3), np.float32), (7, np.int8), (4, np.int32))):
        constant = model.main.constant(f"c{k}", np.ones(shape, dtype))
        buffer = model.main.tensors[constant].fields["buffer"]
        alias = model.main.tensor(f"alias{k}", constant.shape, constant.dtype, buffer=buffer)
        if dtype is not np.int32:
            model.main.operator(
                "ADD", [constant, alias], [model.main.tensor(f"sum{k}", constant.shape, constant.dtype)]
            )
    assert otp.inspect(model.build())["constants"] == [
        {"dtype": "float32", "sparse": False, "count": 1, "bytes": 24},
        {"dtype": "int8", "sparse": False, "count": 2, "bytes": 22},
    ]


def test_resource_state_has_dtype_and_shape_of_its_value() -> None:
    net = Net()
    running_sum("float32")(net)
    (state,) = otp.inspect(net.build())["states"]
    assert (state["kind"], state["name"]) == ("resource", "state")
    assert (state["dtype"], state["shape"]) == ("float32", [3, 5])
    assert "index" not in state


def test_operators_of_another_signature_are_counted_with_the_main_one() -> None:
    model = ModelBuilder()
    chain(model.main, ("ABS", 1))
    other = model.subgraph("other")
    chain(other, ("ABS", 1), ("CUSTOM.Unknown", 1))
    for key, graph in (("a", 0), ("b", 1)):
        model.signature(key, {}, {}, subgraph=graph)
    inspection = otp.inspect(model.build())
    assert [(row["code"], row["count"], row["called"], row["signatures"]) for row in inspection["operators"]] == [
        ("CUSTOM.Unknown", 1, False, ("b",)), ("ABS", 2, True, ()),
    ]  # fmt: skip
    assert inspection["missing"] == []
    assert [(graph["called"], graph["signatures"]) for graph in inspection["subgraphs"]] == [
        (True, ["a"]),
        (False, ["b"]),
    ]


def test_unsupported_operators_come_first() -> None:
    model = ModelBuilder()
    chain(model.main, ("ADD", 1), ("ADD", 1), ("ADD", 99))
    rows = otp.inspect(model.build())["operators"]
    assert [(row["count"], row["versions"], bool(row["missing"])) for row in rows] == [(1, [99], True), (2, [1], False)]


def test_inspection_survives_recursive_and_missing_subgraphs() -> None:
    model = ModelBuilder()
    for graph, calls in ((model.main, (1, 7)), (model.subgraph("second"), (0, 1)), (model.subgraph("spare"), (1,))):
        for index in calls:
            graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": index})
        graph.output(graph.input("x", (2, 3)))
    inspection = otp.inspect(model.build())
    assert [graph["called"] for graph in inspection["subgraphs"]] == [True, True, False]
    assert [(row["count"], row["called"]) for row in inspection["operators"]] == [(4, True), (1, False)]


def test_inspect_uses_the_given_host() -> None:
    model = ModelBuilder()
    chain(model.main, ("CUSTOM.Mine", 1))
    mine = replace(builtin("ABS"), code="CUSTOM.Mine")
    inspection = otp.inspect(model.build(), host=Host(handlers={"CUSTOM.Mine": mine}))
    assert (inspection["missing"], inspection["operators"][0]["pack"]) == ([], "inline")


def test_output_without_rank_has_no_shape() -> None:
    model = ModelBuilder()
    x, y = model.main.input("x", (2, 3)), model.main.tensor("y", None)
    model.main.operator("ABS", [x], [y])
    model.main.output(y)
    inspection = otp.inspect(model.build())
    assert [value["shape"] for value in (*inspection["inputs"], *inspection["outputs"])] == [[2, 3], None]


def test_blockwise_quantization_lists_block_size_and_scale_tensor() -> None:
    net = Net()
    weights = block_weights(net, (5, 64), 32)
    net.output(net.call("FULLY_CONNECTED", [net.input(tensor(3, 64)), weights, None], tensor(3, 5)))
    net.graph.output(weights)
    scales = next(stored.index for stored in read(net.build()).main.tensors if stored.name == "scales")
    inspection = otp.inspect(net.build())["outputs"]
    assert [value["quantization"] for value in inspection] == [None, {"scales": scales, "block_size": 32}]


def test_declining_handler_is_listed_with_its_reason() -> None:
    inspection = describe_handler("ABS", "a-pack", replace(builtin("ABS"), accepts=Decline("no kernel")))
    assert (inspection["code"], inspection["pack"], inspection["error"]) == ("ABS", "a-pack", "no kernel")
    assert describe_handler("ABS", "a-pack", builtin("ABS"))["error"] == ""


def test_operators_of_uncalled_subgraphs_are_not_missing() -> None:
    model = ModelBuilder()
    chain(model.main, ("ABS", 1), ("CUSTOM.Unknown", 1))
    chain(model.subgraph("spare"), ("CUSTOM.Unheard", 1))
    assert otp.inspect(model.build())["missing"] == ["CUSTOM.Unknown"]
