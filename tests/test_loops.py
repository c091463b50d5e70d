"""Loops that count: what a Loop does at each of its time steps."""

from __future__ import annotations

import onnx
import pytest

from conformance.cases.control.loops import filtered
from conformance.cases.control.loops_counted import CARRIED, STACKED, Rows
from conformance.models import Net
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host


def loop_of(rows: Rows) -> onnx.NodeProto:
    model = Net()
    rows.draw(model)
    graph = convert(model.build(), host=Host(packs="builtin")).proto.graph
    return next(node for node in graph.node if node.op_type == "Loop")


def in_body(node: onnx.NodeProto) -> list[str]:
    return [inner.op_type for attribute in node.attribute for inner in attribute.g.node]


@pytest.mark.parametrize("name", STACKED)
def test_rows_written_in_turn_are_stacked_by_the_loop(name: str) -> None:
    node = loop_of(STACKED[name])
    assert not {"Concat", "Slice"} & {*in_body(node)}
    rows = STACKED[name]
    limit_and_condition, total, counters = 2, 1, 2 if rows.exits else int(rows.lags)
    assert len(node.input) == limit_and_condition + total + counters


@pytest.mark.parametrize("name", CARRIED)
def test_an_array_that_anybody_else_sees_is_carried(name: str) -> None:
    assert "Concat" in in_body(loop_of(CARRIED[name]))


def test_a_condition_that_only_counts_is_not_asked() -> None:
    assert not {"Less", "And"} & {*in_body(loop_of(Rows()))}
    assert "And" in in_body(loop_of(Rows(exits=True)))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_what_convolutions_in_a_loop_hand_on_lies_as_they_want_it(dtype: str) -> None:
    model = Net()
    filtered(dtype, model)
    conversion = convert(model.build(), host=Host(packs="builtin"))
    assert conversion.report.transposes == 2
    (node,) = (node for node in conversion.proto.graph.node if node.op_type == "Loop")
    assert "Transpose" not in in_body(node)
