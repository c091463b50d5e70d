"""Boundary values of subgraphs: flexible layouts, and execution counts."""

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
from onnx_tflite_plugin.layout.boundaries import LOOP_ITERATIONS, boundary_values, execution_counts
from onnx_tflite_plugin.layout.constraints import layout_constraint
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts, propagate_layouts
from onnx_tflite_plugin.layout.tensor_layout import AxisPart
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS

SHAPE = (2, 5, 7, 3)
Body = Callable[[GraphBuilder, int], int]


def bind_model(model: ModelBuilder, **handlers: Handler) -> BoundModel:
    target = TARGETS["onnxruntime"]
    return resolve(Host(packs="builtin", handlers=handlers).bind(read(model.build()), target, 18), target, 18)


def add_abs(g: GraphBuilder, x: int, shape: tuple[int, ...] = SHAPE) -> int:
    y = g.tensor("abs", shape)
    g.operator("ABS", [x], [y])
    return y


def add_subgraph(model: ModelBuilder, name: str, body: Body, shape: tuple[int, ...] = SHAPE) -> int:
    """Return the index of a subgraph of one float32 input."""
    g = model.subgraph(name)
    g.output(body(g, g.input(f"{name} input", shape)))
    return g.index


def add_condition(g: GraphBuilder, x: int) -> int:
    """Return the condition that the minimum of all elements is below 5."""
    minimum, below = g.tensor("least", ()), g.tensor("below", (), "bool")
    g.operator("REDUCE_MIN", [x, g.constant("axes", np.arange(4, dtype=np.int32))], [minimum])
    g.operator("LESS", [minimum, g.constant("most", np.float32(5))], [below])
    return below


def add_loop(g: GraphBuilder, x: int, cond: int, body: int) -> int:
    y = g.tensor("looped", SHAPE)
    g.operator("WHILE", [x], [y], {"cond_subgraph_index": cond, "body_subgraph_index": body})
    return y


def add_if(g: GraphBuilder, x: int, then_branch: int, else_branch: int, shape: tuple[int, ...] = SHAPE) -> int:
    y, condition = g.tensor("chosen", shape), g.tensor("which", (), "bool")
    g.operator("LESS", [g.constant("a", np.float32(2)), g.constant("b", np.float32(3))], [condition])
    g.operator("IF", [condition, x], [y], {"then_subgraph_index": then_branch, "else_subgraph_index": else_branch})
    return y


def boundary_names(model: ModelBuilder, **handlers: Handler) -> list[set[str]]:
    """Return the tensor names of each boundary value with a flexible layout."""
    return [{tensor.name for tensor in value.tensors} for value in boundary_values(bind_model(model, **handlers))]


def test_loop_carried_tensors_are_one_value() -> None:
    model = ModelBuilder()
    cond, body = add_subgraph(model, "cond", add_condition), add_subgraph(model, "body", add_abs)
    g = model.main
    g.output(add_loop(g, g.input("x", SHAPE), cond, body))
    assert boundary_names(model) == [{"x", "cond input", "body input", "abs", "looped"}]


def test_branches_share_inputs_and_share_outputs() -> None:
    model = ModelBuilder()
    then_branch, else_branch = add_subgraph(model, "then", add_abs), add_subgraph(model, "else", add_abs)
    g = model.main
    g.output(add_if(g, g.input("x", SHAPE), then_branch, else_branch))
    assert sorted(boundary_names(model), key=len) == [{"abs", "chosen"}, {"x", "then input", "else input"}]


def test_subgraph_with_undeclared_caller_keeps_file_layout() -> None:
    model = ModelBuilder()
    then_branch, else_branch = add_subgraph(model, "then", add_abs), add_subgraph(model, "else", add_abs)
    cond = add_subgraph(model, "cond", add_condition)
    g = model.main
    x = g.input("x", SHAPE)
    g.output(add_if(g, x, then_branch, else_branch), add_loop(g, x, cond, then_branch))
    assert boundary_names(model, WHILE=replace(builtin("WHILE"), boundary=None)) == []


@pytest.mark.parametrize(
    ("layout", "perms"),
    [
        ((AxisPart(0, 1, 2), AxisPart(3, 1, 3), AxisPart(1, 1, 5), AxisPart(2, 1, 7)), [(0, 1, 2, 3), (0, 3, 1, 2)]),
        ((AxisPart(1, 1, 5), AxisPart(3, 1, 3), AxisPart(2, 1, 7)), [(0, 1, 2, 3)]),
        (
            (AxisPart(0, 1, 2), AxisPart(3, 1, 3), AxisPart(1, 1, 5), AxisPart(2, 1, 7), AxisPart(3, 1, 1)),
            [(0, 1, 2, 3)],
        ),
    ],
    ids=["all axes", "an axis is missing", "an axis is split"],
)
def test_boundary_layouts_only_permute_axes(layout: tuple[AxisPart, ...], perms: list[tuple[int, ...]]) -> None:
    model = ModelBuilder()
    then_branch, else_branch = add_subgraph(model, "then", add_abs), add_subgraph(model, "else", add_abs)
    g = model.main
    x = g.input("x", SHAPE)
    g.output(add_if(g, x, then_branch, else_branch))
    bound_model = bind_model(model)
    values = boundary_values(bound_model)
    constraints = {operator: layout_constraint(operator) for operator in bound_model.operators()}
    interface = InterfaceLayouts({bound_model.main.inputs[0]: layout})
    propagate_layouts(bound_model, constraints, {}, interface, False, lambda constraint, candidate: 0, values)
    [boundary_value] = [value for value in values if bound_model.main.inputs[0] in value.tensors]
    assert boundary_value.perms == perms


@pytest.mark.parametrize(("shape", "count"), [((2, 3), 0), ((2, 5, 3), 2), ((2, 5, 7, 3), 2)])
def test_boundary_values_of_rank_3_and_more_have_flexible_layouts(shape: tuple[int, ...], count: int) -> None:
    model = ModelBuilder()

    def body(g: GraphBuilder, x: int) -> int:
        return add_abs(g, x, shape)

    then_branch, else_branch = add_subgraph(model, "then", body, shape), add_subgraph(model, "else", body, shape)
    g = model.main
    g.output(add_if(g, g.input("x", shape), then_branch, else_branch, shape))
    values = boundary_values(bind_model(model))
    assert len(values) == count
    assert all(value.perms == [tuple(range(len(shape)))] for value in values)


def test_execution_counts_multiply_in_nested_loops() -> None:
    model = ModelBuilder()
    then_branch, else_branch = add_subgraph(model, "then", add_abs), add_subgraph(model, "else", add_abs)
    cond = add_subgraph(model, "cond", add_condition)
    innermost = add_subgraph(model, "innermost", lambda g, x: add_if(g, x, then_branch, else_branch))
    body = add_subgraph(model, "body", lambda g, x: add_loop(g, x, cond, innermost))
    g = model.main
    x = g.input("x", SHAPE)
    g.output(add_if(g, x, then_branch, else_branch), add_loop(g, x, cond, body))
    nested = LOOP_ITERATIONS**2
    assert execution_counts(bind_model(model)) == {
        0: 1, then_branch: nested, else_branch: nested, cond: nested, innermost: nested, body: LOOP_ITERATIONS,
    }  # fmt: skip
