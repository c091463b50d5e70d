"""Counting loops: the nodes that a Loop runs per iteration."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest

from conformance.builder import GraphBuilder, TensorRef
from conformance.cases.control.loops import call_like, filter_in_loop, loop
from conformance.cases.control.loops_counted import CARRIED, STACKED, RowLoop
from conformance.models import Net, constant, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.host import Host


def convert_to_loop(rows: RowLoop) -> onnx.NodeProto:
    model = Net()
    rows.build(model)
    graph = convert(model.build(), host=Host(packs="builtin")).proto.graph
    return next(node for node in graph.node if node.op_type == "Loop")


def body_op_types(node: onnx.NodeProto) -> list[str]:
    return [inner.op_type for attribute in node.attribute for inner in attribute.g.node]


@pytest.mark.parametrize("name", STACKED)
def test_rows_written_in_order_become_a_scan_output(name: str) -> None:
    node = convert_to_loop(STACKED[name])
    assert not {"Concat", "Slice"} & {*body_op_types(node)}
    rows = STACKED[name]
    limit_and_condition, total, counters = 2, 1, 2 if rows.exits_at_bound else int(rows.delayed_counter)
    assert len(node.input) == limit_and_condition + total + counters


@pytest.mark.parametrize("name", CARRIED)
def test_array_used_elsewhere_is_loop_carried(name: str) -> None:
    assert "Concat" in body_op_types(convert_to_loop(CARRIED[name]))


def test_condition_on_the_counter_becomes_a_trip_count() -> None:
    assert not {"Less", "And"} & {*body_op_types(convert_to_loop(RowLoop()))}
    assert "And" in body_op_types(convert_to_loop(RowLoop(exits_at_bound=True)))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_loop_carried_layout_follows_convolutions_inside(dtype: str) -> None:
    model = Net()
    filter_in_loop(dtype, model)
    conversion = convert(model.build(), host=Host(packs="builtin"))
    assert conversion.report.transposes == 2
    (node,) = (node for node in conversion.proto.graph.node if node.op_type == "Loop")
    assert "Transpose" not in body_op_types(node)


def test_layouts_propagate_through_loops() -> None:
    model, spec = Net(), tensor(2, 5, 7, 3)
    (result,) = loop(
        model,
        [model.input_through_conv(spec)],
        [spec],
        lambda graph, values: [call_like(graph, "ABS", [values[0]], values[0])],
    )
    model.output(model.output_through_conv(result))
    conversion = convert(model.build(), host=Host(packs="builtin"))
    assert conversion.report.transposes == 2
    assert conversion.report.local_plan_differences


def test_transposes_are_placed_outside_of_loops() -> None:
    """A Transpose inside a loop counts per iteration, so it is placed outside.

    Two convolutions outside prefer the other layout.
    """
    model, spec = Net(), tensor(2, 5, 7, 3)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        """Emit a softmax along the innermost axis of the file."""
        return [call_like(graph, "SOFTMAX", [values[0]], values[0], beta=1.0)]

    (result,) = loop(model, [model.input_through_conv(spec)], [spec], body)
    model.output(model.output_through_conv(result))
    (node,) = (n for n in convert(model.build(), host=Host(packs="builtin")).proto.graph.node if n.op_type == "Loop")
    assert "Transpose" not in body_op_types(node)


def test_loop_carries_sequences_in_any_layout() -> None:
    model, spec, transposed = Net(), tensor(2, 5, 7), tensor(2, 7, 5)
    x = model.call("TRANSPOSE", [spec, constant([0, 2, 1])], transposed)
    (y,) = loop(model, [x], [transposed], lambda graph, values: [call_like(graph, "ABS", [values[0]], values[0])])
    model.output(model.call("TRANSPOSE", [y, constant([0, 2, 1])], spec))
    assert convert(model.build(), host=Host(packs="builtin")).report.transposes == 0
