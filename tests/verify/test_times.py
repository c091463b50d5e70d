"""Times of nodes and operators: what a profile names, which operator a node is of, what belongs together."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import NodeProto, TensorProto, helper

from onnx_tflite_plugin.graph.metadata import node_props
from onnx_tflite_plugin.verify.times import bench, profile
from onnx_tflite_plugin.verify.times.bench import TURN, WARM, Spread
from onnx_tflite_plugin.verify.times.isolation import _IsolatedOperators
from onnx_tflite_plugin.verify.times.nodes import (
    NodeTime,
    _middle,
    _names,
    _operators,
    _profiled_slots,
    _subtract_overhead,
    label_nodes,
)
from onnx_tflite_plugin.verify.times.profile import (
    Group,
    KindTime,
    OperatorTime,
    _gained_nodes,
    _Parts,
    group_operators,
)
from tests.helpers.verify_graphs import operator, slot


def node(kind: str, inputs: list[str], outputs: list[str], *operators: int, name: str = "", **more: Any) -> NodeProto:
    made = helper.make_node(kind, inputs, outputs, name=name, **more)
    if operators:
        helper.set_model_props(made, node_props([(0, k) for k in operators], "", "", ""))  # type: ignore[arg-type]
    return made


# --- numbers ----------------------------------------------------------------------------------


def test_of_times_the_mean_of_the_middle_half_counts() -> None:
    assert _middle([100, 3, 4, 5, 0]) == 4.0
    assert _middle([7]) == 7.0


def test_a_spread_is_the_median_between_the_quartiles() -> None:
    assert Spread.of([4, 1, 3, 2, 5]) == Spread(3.0, 2.0, 4.0)


def test_what_the_profile_adds_is_no_less_than_nothing() -> None:
    assert list(_subtract_overhead([], [], 3.0)) == []
    assert list(_subtract_overhead([6.0, 0.5], [1, 3], 2.5)) == [2.5, 0.0]


@pytest.mark.parametrize(("seconds", "count"), [(TURN, 1), (TURN / 7, 7), (10 * TURN, 1), (0.0, round(TURN / 1e-7))])
def test_as_many_runs_as_fill_a_turn_are_timed_after_some_to_warm_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    calls: list[int] = []
    clock = SimpleNamespace(perf_counter=lambda: 5.0 + (seconds if len(calls) > WARM else 0.0))
    monkeypatch.setattr(bench, "time", clock)
    assert bench._count(lambda: calls.append(1)) == count
    assert len(calls) == WARM + 1


# --- nodes ------------------------------------------------------------------------------------


def test_nodes_without_a_name_are_told_by_kind_in_the_order_of_their_numbers() -> None:
    nodes = [
        node("Conv", [], ["a"]),
        node("Add", [], ["b"], name="op1"),
        node("Conv", [], ["c"]),
        node("Mul", [], ["d"]),
    ]
    seconds = {"Conv_10": 1.0, "Conv_9": 2.0, "op1": 3.0, "Odd_x": 4.0}
    assert list(_names(nodes, seconds)) == ["Conv_9", "op1", "Conv_10", ""]


def test_a_node_is_of_the_operator_that_it_is_named_after_else_that_computes_its_results_else_its_operands() -> None:
    converted: Any = SimpleNamespace(graph=SimpleNamespace(node=[node("Conv", [], ["y"], name="op3#0")]))
    nodes = [
        node("QLinearConv", ["x"], ["z"], name="op5#1"),
        node("Conv", ["x"], ["y"], name="fused"),
        node("ReorderInput", ["x"], ["r"]),
        node("Conv", ["r", "op7#2:in1"], ["s"], name="Conv_nchwc"),
        node("Add", ["s"], ["t"]),
        node("Add", ["q"], ["t2"], name="prefix_op11#3/x"),
        node("Add", ["q"], ["t3"], name="loop12#3"),
    ]
    assert list(_operators(converted, nodes)) == [5, 3, None, 7, 7, 11, None]


def test_a_copy_has_its_nodes_and_values_named_after_operators_but_for_what_is_outside_or_shared() -> None:
    inner = helper.make_graph(
        [node("Neg", ["y"], ["i"], 4)], "inner", [], [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)]
    )
    nodes = [
        node("Add", ["x", "own"], ["y"], 3),
        node("Mul", ["y", "shared"], ["z"]),
        node("If", ["c", "shared"], ["out"], 4, then_branch=inner),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "c", "out", "y")]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]) for name in ("own", "shared")]
    made = helper.make_graph(nodes, "g", ends[:2], ends[2:3], constants, value_info=ends[3:])
    copy = label_nodes(helper.make_model(made)).graph
    assert [(one.name, list(one.input), list(one.output)) for one in copy.node] == [
        ("op3#0", ["x", "op3#0:in1"], ["op3#0:0"]),
        ("", ["op3#0:0", "shared"], ["z"]),
        ("op4#2", ["c", "shared"], ["out"]),
    ]
    assert [one.name for one in copy.initializer] == ["op3#0:in1", "shared"]
    assert [one.name for one in copy.value_info] == ["op3#0:0"]
    (branch,) = (attribute.g for attribute in copy.node[2].attribute)
    assert (list(branch.node[0].input), list(branch.node[0].output)) == (["op3#0:0"], ["op4#3:0"])
    assert branch.output[0].name == "op4#3:0"
    assert made.node[0].name == ""


# --- groups -----------------------------------------------------------------------------------


def groups(times: list[NodeTime], nodes: list[NodeProto]) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Group operators by their results: A makes t1, B makes t2 of it, C makes t3 of t1 and t2, D makes t4 of t3."""
    t = [slot(k) for k in range(5)]
    operators = [
        operator(inputs, [t[k + 1]], index=k, code=code)
        for k, (code, inputs) in enumerate([("A", [t[0]]), ("B", [t[1]]), ("C", [t[1], t[2]]), ("D", [t[3], None])])
    ]
    proto: Any = SimpleNamespace(graph=SimpleNamespace(node=nodes))
    found = group_operators(operators, proto, times)
    return [(tuple(op.index for op in group.operators), tuple(node.op_type for node in group.nodes)) for group in found]


def node_times(*operators: int | None) -> list[NodeTime]:
    return [NodeTime(f"N{k}", k, 1.0) for k in operators]


KINDS = [node(kind, [], [], k) for k, kind in enumerate(("Abs", "Relu", "Conv", "Mul"))]


def test_an_operator_whose_nodes_are_timed_is_by_itself_and_nodes_of_none_are_told_first() -> None:
    assert groups(node_times(0, 1, 2, None, 3, 0), KINDS) == [
        ((), ("NNone",)), ((0,), ("N0", "N0")), ((1,), ("N1",)), ((2,), ("N2",)), ((3,), ("N3",)),
    ]  # fmt: skip
    assert groups(node_times(0, 1, 2, 3), KINDS)[0] == ((0,), ("N0",))


def test_operators_that_share_a_node_are_together() -> None:
    shared = [*KINDS, node("Both", [], [], 1, 3)]
    assert groups(node_times(0, 1, 2), shared) == [((0,), ("N0",)), ((1, 3), ("N1",)), ((2,), ("N2",))]


def test_one_without_a_node_joins_its_reader_where_that_has_gained_one_of_its_kind_else_what_it_reads() -> None:
    """C is the one reader of B; the nodes of A have two, and D reads C."""
    fused = [*node_times(0), NodeTime("FusedRelu", 2, 1.0)]
    assert groups(fused, KINDS) == [((0,), ("N0",)), ((1, 2, 3), ("FusedRelu",))]
    assert groups(node_times(0, 2), KINDS) == [((0, 1), ("N0",)), ((2, 3), ("N2",))]
    moved = [NodeTime("ReorderInput", 1, 1.0), *node_times(0, 2)]
    assert groups(moved, KINDS) == [((0, 1), ("N0", "ReorderInput")), ((2, 3), ("N2",))]


def test_one_with_a_node_or_two_readers_stays_by_itself() -> None:
    fused = [*node_times(0, 1), NodeTime("ReorderInput", 1, 1.0), NodeTime("FusedRelu", 2, 1.0)]
    assert groups(fused, KINDS)[:2] == [((0,), ("N0",)), ((1,), ("N1", "ReorderInput"))]
    both = [NodeTime("FusedAbs", 1, 1.0), *node_times(2, 3)]
    assert groups(both, KINDS) == [((0,), ()), ((1,), ("FusedAbs",)), ((2,), ("N2",)), ((3,), ("N3",))]


def test_a_reader_has_gained_a_kind_that_it_was_not_converted_to() -> None:
    nodes: Any = defaultdict(list, {7: [NodeTime("QLinearConv", 7, 1.0)]})
    for own, gained in (({"Add"}, True), ({"Conv"}, False), (set(), True)):
        kinds: Any = defaultdict(set, {7: own})
        assert _gained_nodes({"Conv", "Mul"}, [7], kinds, nodes) is gained
    assert not _gained_nodes({"Mul"}, [7], defaultdict(set), nodes)
    assert not _gained_nodes({"Conv"}, [8], defaultdict(set), nodes)


def test_sets_that_are_joined_are_told_by_their_least() -> None:
    parts = _Parts()
    for one, other in ((5, 7), (7, 3), (9, 8), (3, 3)):
        parts.join(one, other)
    assert [parts.first(k) for k in (3, 5, 7, 8, 9, 4)] == [3, 3, 3, 8, 8, 4]


def test_what_a_kind_loses_is_the_sum_of_what_its_operators_do() -> None:
    assert KindTime(("A",), 2, 3.0, 7.0).loss == 4.0


def test_results_of_a_group_are_those_that_others_read_or_the_model_returns() -> None:
    t = [slot(k) for k in range(5)]
    first = operator([t[0]], [t[1], None, t[2]])
    second = operator([t[1], None], [t[3], t[4]], index=1)
    alone: Any = _IsolatedOperators.__new__(_IsolatedOperators)
    alone._ends = {2}
    alone._readers = {0: {0}, 1: {1}, 4: {2}}
    assert alone._read_outside([first]) == [1, 2]
    assert alone._read_outside([first, second]) == [2, 4]
    assert alone._read_outside([second]) == [4]


def test_a_group_is_told_by_its_last_output_and_has_the_times_of_its_nodes_together() -> None:
    ops = (
        operator([slot(0)], [slot(1)], index=3, code="CONV_2D"),
        operator([slot(1)], [slot(4)], index=4),
        operator([slot(4)], [None, slot(2)], index=5),
    )
    nodes = NodeTime("Conv", 3, 0.25), NodeTime("Relu", 5, 0.5)
    assert Group(ops, nodes).time_of(0.125) == OperatorTime(
        (3, 4, 5), ("CONV_2D", "OP", "OP"), "t2", ("Conv", "Relu"), 0.125, 0.75
    )
    assert Group((), nodes[:1]).time_of(None) == OperatorTime((), (), "", ("Conv",), None, 0.25)


def test_what_a_profile_adds_is_taken_off_by_slot_even_of_one() -> None:
    assert list(_subtract_overhead([3.0], [1], 1.0)) == [1.0]
    assert list(_subtract_overhead([3.0, 1.0], [3, 1], 2.0)) == [1.5, 0.5]


@pytest.mark.parametrize(("seconds", "rounds"), [(1e-6, 200), (0.01, 100), (1.0, 20)])
def test_a_model_is_profiled_for_a_second_but_neither_too_often_nor_too_seldom(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: int
) -> None:
    """Rows are those that lose most first."""
    ops = [operator([slot(k)], [slot(k + 1)], index=k) for k in range(3)]
    taken = {0: 0.5, 1: 0.25, 2: 1.0}
    nodes = [node("Abs", [f"v{k}"], [f"v{k + 1}"], k) for k in range(3)]
    seen: list[int] = []
    litert: Any = SimpleNamespace(run=lambda arrays: None, tensors=dict)
    graph = SimpleNamespace(operators=ops)
    trial: Any = SimpleNamespace(
        entry=SimpleNamespace(subgraph=graph), data=b"", session=lambda kernels, *, preserve: litert
    )

    def measure(proto: Any, feeds: Any, runs: int) -> list[NodeTime]:
        seen.append(runs)
        return [NodeTime("Abs", k, taken[k]) for k in range(3)]

    monkeypatch.setattr(profile, "node_times", measure)
    monkeypatch.setattr(profile, "isolated_times", lambda data, groups, graph, tensors, runs: [0.125, None, 0.875])
    proto: Any = SimpleNamespace(graph=SimpleNamespace(node=nodes))
    rows = profile.profile(trial, proto, [], {}, seconds, lambda stage: None)
    assert [row.operators for row in rows] == [(0,), (1,), (2,)]
    assert [row.loss for row in rows] == [0.375, 0.25, 0.125]
    assert seen == [rounds]


def test_a_loop_has_the_overhead_of_each_node_of_its_body_in_each_step() -> None:
    body = helper.make_graph([helper.make_node("Abs", ["v"], ["r"], name="inner")], "body", [], [])
    node = helper.make_node("Scan", ["x", "y"], ["z"], name="outer", body=body)
    assert _profiled_slots(node, {"outer": 1.0, "inner": 7.0}) == 1 + 3 + 7 * 3
