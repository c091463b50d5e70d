"""Times of nodes and operators: profile names, owners of nodes, groups."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import NodeProto, TensorProto, helper

from onnx_tflite_plugin.graph.disjoint_sets import DisjointSets
from onnx_tflite_plugin.graph.node_metadata import node_props
from onnx_tflite_plugin.verify.times import bench, profile
from onnx_tflite_plugin.verify.times.bench import TURN_SECONDS, WARM_UP_RUNS, Spread
from onnx_tflite_plugin.verify.times.isolation import _IsolatedOperators
from onnx_tflite_plugin.verify.times.nodes import (
    NodeTime,
    _node_operators,
    _profile_names,
    _profiled_operand_count,
    _subtract_overhead,
    _trimmed_mean,
    label_nodes,
)
from onnx_tflite_plugin.verify.times.profile import (
    Group,
    KindTime,
    OperatorTime,
    _has_gained_nodes,
    group_operators,
)
from tests.helpers.verify_graphs import operator, slot


def node(
    op_type: str, inputs: list[str], outputs: list[str], *operators: int, name: str = "", **attributes: Any
) -> NodeProto:
    proto = helper.make_node(op_type, inputs, outputs, name=name, **attributes)
    if operators:
        helper.set_model_props(proto, node_props([(0, k) for k in operators], "", "", ""))  # type: ignore[arg-type]
    return proto


# --- numbers ----------------------------------------------------------------------------------


def test_trimmed_mean_is_the_interquartile_mean() -> None:
    assert _trimmed_mean([100, 3, 4, 5, 0]) == 4.0
    assert _trimmed_mean([7]) == 7.0
    assert _trimmed_mean([3, 8]) == 5.5, "no time lies between the quartiles 4.25 and 6.75"


def test_spread_is_median_and_quartiles() -> None:
    assert Spread.of([4, 1, 3, 2, 5]) == Spread(3.0, 2.0, 4.0)


def test_profiling_overhead_is_never_negative() -> None:
    assert list(_subtract_overhead([], [], 3.0)) == []
    assert list(_subtract_overhead([6.0, 0.5], [1, 3], 2.5)) == [2.5, 0.0]


@pytest.mark.parametrize(
    ("seconds", "count"),
    [(TURN_SECONDS, 1), (TURN_SECONDS / 7, 7), (10 * TURN_SECONDS, 1), (0.0, round(TURN_SECONDS / 1e-7))],
)
def test_times_enough_runs_to_fill_a_turn_after_warm_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, count: int
) -> None:
    calls: list[int] = []
    clock = SimpleNamespace(perf_counter=lambda: 5.0 + (seconds if len(calls) > WARM_UP_RUNS else 0.0))
    monkeypatch.setattr(bench, "time", clock)
    assert bench._runs_per_turn(lambda: calls.append(1)) == count
    assert len(calls) == WARM_UP_RUNS + 1


# --- nodes ------------------------------------------------------------------------------------


def test_unnamed_nodes_are_matched_by_kind_and_number() -> None:
    nodes = [
        node("Conv", [], ["a"]),
        node("Add", [], ["b"], name="op1"),
        node("Conv", [], ["c"]),
        node("Mul", [], ["d"]),
    ]
    seconds = {"Conv_10": 1.0, "Conv_9": 2.0, "op1": 3.0, "Odd_x": 4.0}
    assert list(_profile_names(nodes, seconds)) == ["Conv_9", "op1", "Conv_10", ""]


def test_node_belongs_to_operator_by_name_then_outputs_then_inputs() -> None:
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
    assert list(_node_operators(converted, nodes)) == [5, 3, None, 7, 7, 11, None]


def test_label_nodes_keeps_names_of_shared_and_outer_values() -> None:
    inner = helper.make_graph(
        [node("Neg", ["y"], ["i"], 4)], "inner", [], [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)]
    )
    nodes = [
        node("Add", ["x", "own"], ["y"], 3),
        node("Mul", ["y", "shared"], ["z"]),
        node("If", ["c", "shared"], ["out"], 4, then_branch=inner),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "c", "out", "y")]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]) for name in ("own", "shared")]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:3], constants, value_info=infos[3:])
    labeled_graph = label_nodes(helper.make_model(graph)).graph
    assert [(item.name, list(item.input), list(item.output)) for item in labeled_graph.node] == [
        ("op3#0", ["x", "op3#0:in1"], ["op3#0:0"]),
        ("", ["op3#0:0", "shared"], ["z"]),
        ("op4#2", ["c", "shared"], ["out"]),
    ]
    assert [item.name for item in labeled_graph.initializer] == ["op3#0:in1", "shared"]
    assert [item.name for item in labeled_graph.value_info] == ["op3#0:0"]
    (branch,) = (attribute.g for attribute in labeled_graph.node[2].attribute)
    assert (list(branch.node[0].input), list(branch.node[0].output)) == (["op3#0:0"], ["op4#3:0"])
    assert branch.output[0].name == "op4#3:0"
    assert graph.node[0].name == ""


# --- groups -----------------------------------------------------------------------------------


def groups(times: list[NodeTime], nodes: list[NodeProto]) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Group four operators: A computes t1, B t2, C t3, D t4.

    B reads t1, C reads t1 and t2, D reads t3.
    """
    t = [slot(k) for k in range(5)]
    operators = [
        operator(inputs, [t[k + 1]], index=k, code=code)
        for k, (code, inputs) in enumerate([("A", [t[0]]), ("B", [t[1]]), ("C", [t[1], t[2]]), ("D", [t[3], None])])
    ]
    proto: Any = SimpleNamespace(graph=SimpleNamespace(node=nodes))
    found_groups = group_operators(operators, proto, times)
    return [
        (tuple(op.index for op in group.operators), tuple(node.op_type for node in group.nodes))
        for group in found_groups
    ]


def node_times(*operators: int | None) -> list[NodeTime]:
    return [NodeTime(f"N{k}", k, 1.0) for k in operators]


KINDS = [node(kind, [], [], k) for k, kind in enumerate(("Abs", "Relu", "Conv", "Mul"))]


def test_timed_operators_have_their_own_group_after_unowned_nodes() -> None:
    assert groups(node_times(0, 1, 2, None, 3, 0), KINDS) == [
        ((), ("NNone",)), ((0,), ("N0", "N0")), ((1,), ("N1",)), ((2,), ("N2",)), ((3,), ("N3",)),
    ]  # fmt: skip
    assert groups(node_times(0, 1, 2, 3), KINDS)[0] == ((0,), ("N0",))


def test_operators_sharing_a_node_form_one_group() -> None:
    nodes_with_shared = [*KINDS, node("Both", [], [], 1, 3)]
    assert groups(node_times(0, 1, 2), nodes_with_shared) == [((0,), ("N0",)), ((1, 3), ("N1",)), ((2,), ("N2",))]


def test_operator_without_nodes_joins_a_fused_reader_or_its_producer() -> None:
    """B is read only by C, A by two operators, and C by D."""
    fused_times = [*node_times(0), NodeTime("FusedRelu", 2, 1.0)]
    assert groups(fused_times, KINDS) == [((0,), ("N0",)), ((1, 2, 3), ("FusedRelu",))]
    assert groups(node_times(0, 2), KINDS) == [((0, 1), ("N0",)), ((2, 3), ("N2",))]
    reordered_times = [NodeTime("ReorderInput", 1, 1.0), *node_times(0, 2)]
    assert groups(reordered_times, KINDS) == [((0, 1), ("N0", "ReorderInput")), ((2, 3), ("N2",))]


def test_operator_with_nodes_or_two_readers_is_not_joined() -> None:
    fused_times = [*node_times(0, 1), NodeTime("ReorderInput", 1, 1.0), NodeTime("FusedRelu", 2, 1.0)]
    assert groups(fused_times, KINDS)[:2] == [((0,), ("N0",)), ((1,), ("N1", "ReorderInput"))]
    all_times = [NodeTime("FusedAbs", 1, 1.0), *node_times(2, 3)]
    assert groups(all_times, KINDS) == [((0,), ()), ((1,), ("FusedAbs",)), ((2,), ("N2",)), ((3,), ("N3",))]


def test_detects_node_kinds_gained_by_fusion() -> None:
    nodes: Any = defaultdict(list, {7: [NodeTime("QLinearConv", 7, 1.0)]})
    for old_kinds, is_gained in (({"Add"}, True), ({"Conv"}, False), (set(), True)):
        kinds: Any = defaultdict(set, {7: old_kinds})
        assert _has_gained_nodes({"Conv", "Mul"}, [7], kinds, nodes) is is_gained
    assert not _has_gained_nodes({"Mul"}, [7], defaultdict(set), nodes)
    assert not _has_gained_nodes({"Conv"}, [8], defaultdict(set), nodes)


def test_joined_sets_are_identified_by_their_smallest_member() -> None:
    sets = DisjointSets()
    for first, second in ((5, 7), (7, 3), (9, 8), (3, 3)):
        sets.join(first, second)
    assert [sets.representative(k) for k in (3, 5, 7, 8, 9, 4)] == [3, 3, 3, 8, 8, 4]


def test_loss_of_a_kind_is_the_sum_over_its_operators() -> None:
    assert KindTime(("A",), 2, 3.0, 7.0).loss == 4.0


def test_group_outputs_are_read_outside_or_returned() -> None:
    t = [slot(k) for k in range(5)]
    first = operator([t[0]], [t[1], None, t[2]])
    second = operator([t[1], None], [t[3], t[4]], index=1)
    isolated: Any = _IsolatedOperators.__new__(_IsolatedOperators)
    isolated._outputs = {2}
    isolated._readers = {0: {0}, 1: {1}, 4: {2}}
    assert isolated._needed_results([first]) == [1, 2]
    assert isolated._needed_results([first, second]) == [2, 4]
    assert isolated._needed_results([second]) == [4]


def test_group_is_named_by_its_last_output_and_sums_node_times() -> None:
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


def test_subtracts_profiling_overhead_in_proportion_to_slots() -> None:
    assert list(_subtract_overhead([3.0], [1], 1.0)) == [1.0]
    assert list(_subtract_overhead([3.0, 1.0], [3, 1], 2.0)) == [1.5, 0.5]


@pytest.mark.parametrize(("seconds", "rounds"), [(1e-6, 200), (0.01, 100), (1.0, 20)])
def test_profiles_for_a_second_within_round_limits(
    monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: int
) -> None:
    """Rows are sorted by loss."""
    ops = [operator([slot(k)], [slot(k + 1)], index=k) for k in range(3)]
    seconds_by_operator = {0: 0.5, 1: 0.25, 2: 1.0}
    nodes = [node("Abs", [f"v{k}"], [f"v{k + 1}"], k) for k in range(3)]
    calls: list[int] = []
    limits: list[float | None] = []
    litert: Any = SimpleNamespace(run=lambda arrays: None, tensors=dict)
    graph = SimpleNamespace(operators=ops)
    trial: Any = SimpleNamespace(
        entry=SimpleNamespace(subgraph=graph), data=b"", litert_session=lambda kernels, *, preserve: litert
    )

    def measure(proto: Any, feeds: Any, runs: int, run_seconds: float | None) -> list[NodeTime]:
        calls.append(runs)
        limits.append(run_seconds)
        return [NodeTime("Abs", k, seconds_by_operator[k]) for k in range(3)]

    monkeypatch.setattr(profile, "node_times", measure)
    monkeypatch.setattr(profile, "isolated_times", lambda data, groups, graph, tensors, runs: [0.125, None, 0.875])
    proto: Any = SimpleNamespace(graph=SimpleNamespace(node=nodes))
    rows = profile.profile(trial, proto, [], {}, seconds, lambda stage: None)
    assert [row.operators for row in rows] == [(0,), (1,), (2,)]
    assert [row.loss for row in rows] == [0.375, 0.25, 0.125]
    assert calls == [rounds]
    profile.profile(trial, proto, [], {}, seconds, lambda stage: None, threads=2)
    assert limits == [seconds, None], "the time of a run with several threads is no limit"


def test_loop_overhead_counts_every_body_node_in_each_step() -> None:
    body = helper.make_graph([helper.make_node("Abs", ["v"], ["r"], name="inner")], "body", [], [])
    node = helper.make_node("Scan", ["x", "y"], ["z"], name="outer", body=body)
    assert _profiled_operand_count(node, {"outer": 1.0, "inner": 7.0}) == 1 + 3 + 7 * 3
