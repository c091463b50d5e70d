"""Subgraphs that call subgraphs: no circles, no names or operators without bound."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef
from onnx_tflite_plugin.errors import ConversionError, InvalidModel
from onnx_tflite_plugin.lowering import scope


def loop(graph: GraphBuilder, value: TensorRef, cond: int, body: int, name: str) -> TensorRef:
    result = graph.tensor(name, value.shape)
    graph.operator("WHILE", [value], [result], {"cond_subgraph_index": cond, "body_subgraph_index": body})
    return result


def condition(model: ModelBuilder) -> None:
    graph = model.subgraph("condition")
    x = graph.input("x", ())
    graph.operator("LESS", [x, graph.constant("end", np.float32(3))], [more := graph.tensor("more", (), "bool")])
    graph.output(more)


def nested(depth: int) -> bytes:
    """Loops inside each other; the innermost adds."""
    model = ModelBuilder()
    x = model.main.input("x", ())
    model.main.output(loop(model.main, x, 1, 2, "loop"))
    condition(model)
    for level in range(depth):
        graph = model.subgraph(f"body{level}")
        x = graph.input("x", ())
        if level < depth - 1:
            graph.output(loop(graph, x, 1, level + 3, "loop"))
        else:
            graph.operator("ADD", [x, graph.constant("one", np.float32(1))], [y := graph.tensor("y", ())])
            graph.output(y)
    return model.build()


def asking(depth: int) -> bytes:
    """Conditions that are loops, whose conditions are loops: each is asked before and after a step."""
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
        made = loop(graph, x, level + 3, 1, "loop") if level < depth - 1 else x
        graph.operator("LESS", [made, graph.constant("end", np.float32(3))], [more := graph.tensor("more", (), "bool")])
        graph.output(more)
    return model.build()


def test_names_grow_by_one_part_a_level() -> None:
    names = [node.name or "" for node in otp.convert(nested(12)).model.graph.all_nodes()]
    assert 10 < max(name.count("op") for name in names) <= 14
    assert max(map(len, names)) < 120


@pytest.mark.parametrize("through", [0, 1])
def test_a_subgraph_that_calls_itself_is_refused_before_anything_is_lowered(through: int) -> None:
    model = ModelBuilder()
    x = model.main.input("x", ())
    model.main.output(loop(model.main, x, 1, 2, "loop"))
    condition(model)
    for level in range(through + 1):
        graph = model.subgraph(f"body{level}")
        x = graph.input("x", ())
        graph.output(loop(graph, x, 1, 2 + (level + 1) % (through + 1), "loop"))
    with pytest.raises(
        InvalidModel, match=r"subgraphs\[2\].operators\[0\]: WHILE calls subgraph 2, of which it is a part"
    ):
        otp.convert(model.build())


def test_what_is_called_ever_deeper_is_refused() -> None:
    assert otp.convert(nested(20)).report.operators["WHILE"] == 20
    with pytest.raises(ConversionError, match="subgraphs are called 64 deep"):
        otp.convert(nested(70))


def test_conditions_that_double_at_each_level_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert otp.convert(asking(5))
    monkeypatch.setattr(scope, "MOST_INLINED", 500)
    with pytest.raises(ConversionError, match="more than 500 operators"):
        otp.convert(asking(30))
