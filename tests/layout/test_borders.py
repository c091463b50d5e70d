"""Values that operators and their subgraphs have in common: which may be free in their order, and how often they are moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.api import Handler, builtin
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.borders import REPEATED, borders, times
from onnx_tflite_plugin.layout.candidates import freedom
from onnx_tflite_plugin.layout.order import Atom
from onnx_tflite_plugin.layout.spread import Edges, spread
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

SHAPE = (2, 5, 7, 3)
Body = Callable[[GraphBuilder, int], int]


def bound(model: ModelBuilder, **handlers: Handler) -> BoundModel:
    target = TARGETS["onnxruntime"]
    return resolve(Host(packs="builtin", handlers=handlers).bind(read(model.build()), target, 18), target, 18)


def absolute(g: GraphBuilder, x: int, shape: tuple[int, ...] = SHAPE) -> int:
    y = g.tensor("abs", shape)
    g.operator("ABS", [x], [y])
    return y


def called(model: ModelBuilder, name: str, body: Body, shape: tuple[int, ...] = SHAPE) -> int:
    """The index of a subgraph of one float32 input."""
    g = model.subgraph(name)
    g.output(body(g, g.input(f"{name} takes", shape)))
    return g.index


def asked(g: GraphBuilder, x: int) -> int:
    """Whether the least number is below 5."""
    least, below = g.tensor("least", ()), g.tensor("below", (), "bool")
    g.operator("REDUCE_MIN", [x, g.constant("axes", np.arange(4, dtype=np.int32))], [least])
    g.operator("LESS", [least, g.constant("most", np.float32(5))], [below])
    return below


def loop(g: GraphBuilder, x: int, cond: int, body: int) -> int:
    y = g.tensor("looped", SHAPE)
    g.operator("WHILE", [x], [y], {"cond_subgraph_index": cond, "body_subgraph_index": body})
    return y


def choice(g: GraphBuilder, x: int, then: int, other: int, shape: tuple[int, ...] = SHAPE) -> int:
    y, which = g.tensor("chosen", shape), g.tensor("which", (), "bool")
    g.operator("LESS", [g.constant("a", np.float32(2)), g.constant("b", np.float32(3))], [which])
    g.operator("IF", [which, x], [y], {"then_subgraph_index": then, "else_subgraph_index": other})
    return y


def joined(model: ModelBuilder, **handlers: Handler) -> list[set[str]]:
    """The names of the tensors of each free border."""
    return [{tensor.name for tensor in border.tensors} for border in borders(bound(model, **handlers))]


def test_what_a_loop_hands_from_step_to_step_is_one_value() -> None:
    model = ModelBuilder()
    cond, body = called(model, "cond", asked), called(model, "body", absolute)
    g = model.main
    g.output(loop(g, g.input("x", SHAPE), cond, body))
    assert joined(model) == [{"x", "cond takes", "body takes", "abs", "looped"}]


def test_branches_take_one_value_and_give_another() -> None:
    model = ModelBuilder()
    then, other = called(model, "then", absolute), called(model, "else", absolute)
    g = model.main
    g.output(choice(g, g.input("x", SHAPE), then, other))
    assert sorted(joined(model), key=len) == [{"abs", "chosen"}, {"x", "then takes", "else takes"}]


def test_a_subgraph_that_an_operator_without_borders_calls_too_keeps_the_files_order() -> None:
    model = ModelBuilder()
    then, other = called(model, "then", absolute), called(model, "else", absolute)
    cond = called(model, "cond", asked)
    g = model.main
    x = g.input("x", SHAPE)
    g.output(choice(g, x, then, other), loop(g, x, cond, then))
    assert joined(model, WHILE=replace(builtin("WHILE"), borders=None)) == []


@pytest.mark.parametrize(
    ("order", "perms"),
    [
        ((Atom(0, 1, 2), Atom(3, 1, 3), Atom(1, 1, 5), Atom(2, 1, 7)), [(0, 1, 2, 3), (0, 3, 1, 2)]),
        ((Atom(1, 1, 5), Atom(3, 1, 3), Atom(2, 1, 7)), [(0, 1, 2, 3)]),
        ((Atom(0, 1, 2), Atom(3, 1, 3), Atom(1, 1, 5), Atom(2, 1, 7), Atom(3, 1, 1)), [(0, 1, 2, 3)]),
    ],
    ids=["whole", "an axis left out", "an axis in two pieces"],
)
def test_an_order_crosses_a_border_where_all_axes_are_in_it_and_whole(
    order: tuple[Atom, ...], perms: list[tuple[int, ...]]
) -> None:
    model = ModelBuilder()
    then, other = called(model, "then", absolute), called(model, "else", absolute)
    g = model.main
    x = g.input("x", SHAPE)
    g.output(choice(g, x, then, other))
    drawn = bound(model)
    crossed = borders(drawn)
    freedoms = {each: freedom(each) for each in drawn.operators()}
    edges = Edges({drawn.main.inputs[0]: order})
    spread(drawn, freedoms, {}, edges, False, lambda free, frame: 0, crossed)
    [taken] = [border for border in crossed if drawn.main.inputs[0] in border.tensors]
    assert taken.perms == perms


@pytest.mark.parametrize(("shape", "free"), [((2, 3), 0), ((2, 5, 3), 2), ((2, 5, 7, 3), 2)])
def test_values_of_three_axes_and_more_may_be_in_another_order(shape: tuple[int, ...], free: int) -> None:
    model = ModelBuilder()

    def body(g: GraphBuilder, x: int) -> int:
        return absolute(g, x, shape)

    then, other = called(model, "then", body, shape), called(model, "else", body, shape)
    g = model.main
    g.output(choice(g, g.input("x", shape), then, other, shape))
    found = borders(bound(model))
    assert len(found) == free
    assert all(border.perms == [tuple(range(len(shape)))] for border in found)


def test_what_is_inside_of_loops_counts_for_the_steps_of_each_and_for_the_most_that_anybody_calls_it() -> None:
    model = ModelBuilder()
    leaf, other = called(model, "leaf", absolute), called(model, "other", absolute)
    cond = called(model, "cond", asked)
    innermost = called(model, "innermost", lambda g, x: choice(g, x, leaf, other))
    body = called(model, "body", lambda g, x: loop(g, x, cond, innermost))
    g = model.main
    x = g.input("x", SHAPE)
    g.output(choice(g, x, leaf, other), loop(g, x, cond, body))
    assert times(bound(model)) == {
        0: 1, leaf: REPEATED**2, other: REPEATED**2, cond: REPEATED**2, innermost: REPEATED**2, body: REPEATED,
    }  # fmt: skip
