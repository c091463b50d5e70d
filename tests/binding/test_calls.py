"""Calls of subgraphs: no recursion, bounded names and operator counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from onnx_tflite_plugin.api import out
from onnx_tflite_plugin.binding import inlining
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, TooLarge
from onnx_tflite_plugin.graph.node_metadata import source_operators
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering import scope
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Dims
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import verify
from tests.helpers.changed_files import Change, change_fields, option, option2


def loop(graph: GraphBuilder, value: TensorRef, cond: int, body: int, name: str) -> TensorRef:
    result = graph.tensor(name, value.shape)
    graph.operator("WHILE", [value], [result], {"cond_subgraph_index": cond, "body_subgraph_index": body})
    return result


def condition(model: ModelBuilder) -> None:
    graph = model.subgraph("condition")
    x = graph.input("x", ())
    graph.operator("LESS", [x, graph.constant("end", np.float32(3))], [more := graph.tensor("more", (), "bool")])
    graph.output(more)


def nested_loops(depth: int, names: Sequence[str] = ("loop",)) -> bytes:
    """Return nested loops, one per name in each body; the innermost body adds."""
    model = ModelBuilder()
    x = model.main.input("x", ())
    model.main.output(loop(model.main, x, 1, 2, "loop"))
    condition(model)
    for level in range(depth):
        graph = model.subgraph(f"body{level}")
        x = graph.input("x", ())
        if level < depth - 1:
            for name in names:
                x = loop(graph, x, 1, level + 3, name)
            graph.output(x)
        else:
            graph.operator("ADD", [x, graph.constant("one", np.float32(1))], [y := graph.tensor("y", ())])
            graph.output(y)
    return model.build()


def nested_conditions(depth: int) -> bytes:
    """Return loops nested in the conditions of loops."""
    model = ModelBuilder()
    x = model.main.input("x", ())
    model.main.output(loop(model.main, x, 2, 1, "loop"))
    body = model.subgraph("body")
    x = body.input("x", ())
    body.operator("ADD", [x, body.constant("one", np.float32(1))], [y := body.tensor("y", ())])
    body.output(y)
    for level in range(depth):
        graph = model.subgraph(f"condition{level}")
        x = graph.input("x", ())
        value = loop(graph, x, level + 3, 1, "loop") if level < depth - 1 else x
        graph.operator(
            "LESS", [value, graph.constant("end", np.float32(3))], [more := graph.tensor("more", (), "bool")]
        )
        graph.output(more)
    return model.build()


def loop_with_stale_condition() -> bytes:
    """Return a loop over three elements, whose condition stores a stale size of seven."""
    model = ModelBuilder()
    model.main.output(loop(model.main, model.main.input("x", (3,)), 1, 2, "loop"))
    graph = model.subgraph("condition")
    x = graph.input("x", (7,))
    graph.operator("REDUCE_MAX", [x, graph.constant("axis", np.int32([0]))], [maximum := graph.tensor("most", ())])
    graph.operator("LESS", [maximum, graph.constant("end", np.float32(9))], [more := graph.tensor("more", (), "bool")])
    graph.output(more)
    body = model.subgraph("body")
    x = body.input("x", (3,))
    body.operator("ADD", [x, body.constant("one", np.float32(1))], [y := body.tensor("y", (3,))])
    body.output(y)
    return model.build()


def test_condition_operands_keep_sizes_despite_stored_ones() -> None:
    data = loop_with_stale_condition()
    verification = verify(data, otp.convert(data))
    assert verification.ok, verification.text


def test_node_names_grow_by_one_part_per_level() -> None:
    names = [node.name or "" for node in otp.convert(nested_loops(12)).model.graph.all_nodes()]
    assert 10 < max(name.count("op") for name in names) <= 14
    assert max(map(len, names)) < 120


@pytest.mark.parametrize("intermediate", [0, 1])
def test_recursive_subgraph_is_refused_before_lowering(intermediate: int) -> None:
    model = ModelBuilder()
    x = model.main.input("x", ())
    model.main.output(loop(model.main, x, 1, 2, "loop"))
    condition(model)
    for level in range(intermediate + 1):
        graph = model.subgraph(f"body{level}")
        x = graph.input("x", ())
        graph.output(loop(graph, x, 1, 2 + (level + 1) % (intermediate + 1), "loop"))
    with pytest.raises(
        InvalidModel, match=r"subgraphs\[2\].operators\[0\]: WHILE calls subgraph 2, which contains the call"
    ):
        otp.convert(model.build())


def test_calls_nested_more_than_64_deep_are_refused() -> None:
    assert otp.convert(nested_loops(20)).report.operators["WHILE"] == 20
    with pytest.raises(ConversionError, match="subgraph calls are nested more than 64 levels deep"):
        otp.convert(nested_loops(70))


def test_nested_conditions_grow_linearly() -> None:
    counts = [
        sum(1 for _ in otp.convert(nested_conditions(depth), check="standard").model.graph.all_nodes())
        for depth in (10, 20, 30)
    ]
    assert counts[2] - counts[1] == counts[1] - counts[0] < 100


def test_loops_that_double_per_level_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "first", "second"
    assert otp.convert(nested_loops(5, names))
    monkeypatch.setattr(scope, "MAX_INLINED", 500)
    with pytest.raises(ConversionError, match="more than 500 operators"):
        otp.convert(nested_loops(30, names))


def build_composite(scale: float, zero_point: int, *, stateful: bool = False) -> bytes:
    """Return a model that calls a composite twice.

    The composite adds its operand to itself, or if ``stateful`` to its state. Its tensors have ``scale`` and ``zero_point``.
    """
    model = ModelBuilder()
    inner = model.subgraph("sum")
    a, b, y = (inner.tensor(n, (2, 37), "int8", quantization=quant(scale, zero_point)) for n in "aby")
    inner.inputs.append(a)
    if stateful:
        float_a = inner.tensor("float_a", (2, 37))
        state, total = inner.tensor("kept", (2, 37), variable=True), inner.tensor("total", (2, 37))
        inner.operator("DEQUANTIZE", [a], [float_a])
        inner.operator("ADD", [float_a, state], [total])
        inner.operator("QUANTIZE", [total], [y])
    else:
        inner.inputs.append(b)
        inner.operator("ADD", [a, b], [y])
    inner.output(y)
    g = model.main
    x = g.input("x", (2, 37), "int8", quantization=quant(0.05, 3))
    options = {"decomposition_subgraph_index": inner.index, "composite_attributes": {"axes": [1]}}
    for name in ("first", "second"):
        result = g.tensor(name, (2, 37), "int8", quantization=quant(0.05, 3))
        g.operator("COMPOSITE.test.sum", [x] if stateful else [x, x], [result], options)
        x = result
    g.output(x)
    return model.build()


def test_call_is_inlined_only_if_both_sides_have_equal_scales() -> None:
    inlined, called = otp.convert(build_composite(0.05, 3)), otp.convert(build_composite(0.02, 20))
    assert inlined.report.operators == {"ADD": 2}
    assert called.report.operators["COMPOSITE.test.sum"] == 2
    assert verify(build_composite(0.05, 3), inlined).ok
    assert verify(build_composite(0.02, 20), called).ok


def test_inlined_operators_record_all_enclosing_calls() -> None:
    model = ModelBuilder()
    options = [{"decomposition_subgraph_index": k, "composite_attributes": {}} for k in (1, 2)]
    graphs = [model.main, model.subgraph("outer"), model.subgraph("inner")]
    for k, graph in enumerate(graphs):
        x, middle, y = graph.input("x", (2, 3)), graph.tensor("middle", (2, 3)), graph.tensor("y", (2, 3))
        graph.operator("ABS", [x], [middle])
        if k < 2:
            graph.operator("COMPOSITE.test.inside", [middle], [y], options[k])
        else:
            graph.operator("NEG", [middle], [y])
        graph.output(y)
    nodes = otp.convert(model.build()).model.graph
    operator_paths = {tuple(source_operators(node.metadata_props)) for node in nodes}
    assert operator_paths == {((0, 0),), ((0, 1), (1, 0)), ((0, 1), (1, 1), (2, 0)), ((0, 1), (1, 1), (2, 1))}


def test_inlined_operators_keep_absent_operands_and_constants() -> None:
    model = ModelBuilder()
    inner = model.subgraph("inner")
    x, y, z = inner.input("x", (2, 3)), inner.tensor("y", (2, 3)), inner.tensor("z", (2, 3))
    w = inner.constant("w", np.arange(9, dtype=np.float32).reshape(3, 3))
    for operand, result in ((x, y), (y, z)):
        inner.operator("FULLY_CONNECTED", [operand, w, None], [result])
    inner.output(z)
    a, b = model.main.input("a", (2, 3)), model.main.tensor("b", (2, 3))
    model.main.operator(
        "COMPOSITE.test.twice", [a], [b], {"decomposition_subgraph_index": 1, "composite_attributes": {}}
    )
    model.main.output(b)
    conversion = otp.convert(model.build())
    assert conversion.report.operators == {"FULLY_CONNECTED": 2}
    assert [tuple(tensor.dims) for tensor in conversion.proto.graph.initializer] == [(3, 3)]
    assert verify(model.build(), conversion).ok


def doubling_calls(levels: int) -> bytes:
    """Return a model whose subgraphs each call the next one twice; the last is a TANH."""
    model = ModelBuilder()
    graphs = [model.main, *(model.subgraph(f"level {k}") for k in range(levels))]
    for k, graph in enumerate(graphs):
        x, middle, y = graph.input("x", (2, 3)), graph.tensor("middle", (2, 3)), graph.tensor("y", (2, 3))
        options = {"decomposition_subgraph_index": k + 1, "composite_attributes": {}}
        if k == levels:
            graph.operator("TANH", [x], [y])
        else:
            graph.operator("COMPOSITE.test.twice", [x], [middle], options)
            graph.operator("COMPOSITE.test.twice", [middle], [y], options)
        graph.output(y)
    return model.build()


def test_expanded_operators_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file holds 7 operators. 4 + 8 calls and 8 results replace the calls."""
    monkeypatch.setattr(inlining, "MAX_ADDED_OPERATORS", 13)
    conversion = otp.convert(doubling_calls(3))
    assert conversion.report.operators == {"TANH": 8}
    assert verify(doubling_calls(3), conversion).ok
    monkeypatch.setattr(inlining, "MAX_ADDED_OPERATORS", 12)
    with pytest.raises(TooLarge, match=r"op \d COMPOSITE\.test\.twice .* inlining subgraph \d"):
        otp.convert(doubling_calls(3))


def test_composites_that_double_per_level_are_refused_early() -> None:
    start = time.process_time()
    with pytest.raises(TooLarge, match=r"expands the model to more than 20,121 operators"):
        otp.convert(doubling_calls(60))
    assert time.process_time() - start < 20


def test_copies_of_tensors_and_operators_have_distinct_hashes() -> None:
    """Otherwise dictionaries of tensors or operators would take quadratic time."""
    bound = Host().bind(read(doubling_calls(6)), TARGETS["generic"], 21)
    assert len({hash(call.op) for call in bound.operators()}) == 64
    assert len({hash(call.op[out(0)]) for call in bound.operators()}) == 64


def test_call_of_a_stateful_subgraph_is_not_inlined() -> None:
    data = build_composite(0.05, 3, stateful=True)
    conversion = otp.convert(data)
    assert conversion.report.operators["COMPOSITE.test.sum"] == 2
    assert verify(data, conversion).ok


def test_recursive_composite_is_refused() -> None:
    model = ModelBuilder()
    options = {"decomposition_subgraph_index": 1, "composite_attributes": {"axes": [1]}}
    for graph in (model.main, model.subgraph("again")):
        x, y = graph.input("x", (2, 3)), graph.tensor("y", (2, 3))
        graph.operator("COMPOSITE.test.self", [x], [y], options)
        graph.output(y)
    with pytest.raises(InvalidModel, match=r"COMPOSITE\.test\.self calls subgraph 1, which contains the call"):
        otp.convert(model.build())


@pytest.mark.parametrize("index", [-1, 77])
@pytest.mark.parametrize(
    ("case", "make_change"),
    [
        ("IF-loop_in_a_branch", lambda index: option("then_subgraph_index", index)),
        ("WHILE-float32,_cumulative_sum", lambda index: option("body_subgraph_index", index)),
        (
            "STABLEHLO_CASE-different_shape_in_each_branch",
            lambda index: option2("branch_subgraph_indices", [1, 2, index]),
        ),
    ],
)
def test_missing_subgraph_is_reported_with_calling_operator(
    case: str, make_change: Callable[[int], Change], index: int
) -> None:
    with pytest.raises(
        InvalidModel, match=rf"subgraphs\[0\].operators\[\d\]: [A-Z_]+ calls subgraph {index}; the model has \d"
    ):
        otp.convert(change_fields(case, make_change(index)))


def test_constant_graph_input_is_refused_without_operators() -> None:
    model = ModelBuilder()
    x = model.main.constant("x", np.float32([2, 3, 5]))
    model.main.inputs.append(x)
    model.main.output(x)
    with pytest.raises(InvalidModel, match=r"subgraphs\[0\].inputs\[0\]: tensor 0 'x' is a constant"):
        otp.convert(model.build())


def test_subgraph_without_caller_is_not_validated() -> None:
    model = ModelBuilder()
    g, spare = model.main, model.subgraph("spare")
    g.operator("ABS", [g.input("x", (2, 3))], [y := g.tensor("y", (2, 3))])
    g.output(y)
    constant = spare.constant("held", np.float32([2, 3, 5]))
    spare.inputs.append(constant)
    spare.operator("EXP", [constant], [result := spare.tensor("made", (3,))])
    spare.output(result)
    assert otp.convert(model.build()).report.nodes == {"Abs": 1}


@pytest.mark.parametrize("branch_dims", [(2, 3), (None, 3)])
def test_branch_may_have_static_sizes_where_the_call_is_dynamic(branch_dims: Dims) -> None:
    model = ModelBuilder()
    g = model.main
    operands = [g.input("asked", (), "bool"), g.input("x", None)]
    for code in ("ABS", "EXP"):
        branch = model.subgraph(code)
        branch.operator(code, [branch.input("in", branch_dims)], [result := branch.tensor("out", branch_dims)])
        branch.output(result)
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    g.operator("IF", operands, [y := g.tensor("y", (2, 3))], options)
    g.output(y)
    data = model.build()
    verification = verify(data, otp.convert(data), shapes={"x": (2, 3)})
    assert verification.ok, verification.text
