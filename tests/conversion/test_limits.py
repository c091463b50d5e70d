"""Limits of a conversion: the memory budget, and linear time."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.api import Refusal, spend_budget
from onnx_tflite_plugin.api.budget import budget
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.layout.shared_axes import OperatorLayout, SharedAxes
from onnx_tflite_plugin.layout.tensor_layout import TensorLayout
from tests.helpers.single_output import BuildGraph, build_model


def large_state(g: GraphBuilder) -> int:
    x, y = g.input("x", (1,)), g.tensor("y", (1 << 28,))
    g.operator("ADD", [x, g.tensor("v", (1 << 28,), variable=True)], [y])
    return y


def large_resize(g: GraphBuilder) -> int:
    size = 1 << 28
    x, y = g.input("x", (1, 1, 1, 1)), g.tensor("y", (1, size, 1, 1))
    g.operator("RESIZE_NEAREST_NEIGHBOR", [x, g.constant("size", np.array([size, 1], np.int32))], [y])
    return y


def fold_state(g: GraphBuilder) -> int:
    size, inner = 1 << 29, g.model.subgraph("init")
    for graph in (g, inner):
        graph.operator("VAR_HANDLE", [], [handle := graph.tensor("v", (), "resource")], {"shared_name": "v"})
        if graph is inner:
            big, shape = graph.tensor("big", (size,)), graph.constant("shape", np.array([size], np.int32))
            graph.operator("BROADCAST_TO", [graph.constant("one", np.ones(1, np.float32)), shape], [big])
            graph.operator("ASSIGN_VARIABLE", [handle, big], [])
        else:
            graph.operator("READ_VARIABLE", [handle], [y := graph.tensor("y", (size,))])
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": 1})
    g.operators.insert(0, g.operators.pop())
    return y


@pytest.mark.parametrize("build", [large_state, large_resize, fold_state])
def test_arrays_created_by_conversion_have_a_memory_budget(build: BuildGraph) -> None:
    with pytest.raises(ConversionError, match=r"1\.07 GB(; | \()ONNX_TFLITE_PLUGIN_BUDGET=BYTES raises the limit"):
        otp.convert(build_model(build))


def test_environment_variable_sets_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(g: GraphBuilder) -> int:
        x, y = g.input("x", (1,)), g.tensor("y", (1000,))
        g.operator("ADD", [x, g.tensor("v", (1000,), variable=True)], [y])
        return y

    otp.convert(build_model(state))
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_BUDGET", "7999")
    with pytest.raises(ConversionError, match="would take 8000 bytes"):
        otp.convert(build_model(state))
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_BUDGET", "plenty")
    otp.convert(build_model(state))


def test_budget_is_shared_by_all_arrays_of_a_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_BUDGET", "100")
    for _ in range(2):
        with budget():
            spend_budget(15, 4)
            spend_budget(10, 4)
            with pytest.raises(Refusal, match="a table would take 4 bytes"):
                spend_budget(1, 4, "a table")


def many_readers(count: int) -> bytes:
    """Return a model in which ``count`` operators read one tensor.

    A CONCATENATION reads each of their results twice.
    """
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 3))
    results = [g.tensor(f"y{k}", (1, 3)) for k in range(count)]
    for y in results:
        g.operator("ABS", [x], [y])
    g.operator("CONCATENATION", [*results, *results], [z := g.tensor("z", (1, 6 * count))], {"axis": 1})
    g.output(z)
    return model.build()


def test_layout_work_is_linear_in_the_number_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    original = SharedAxes.operator_layout

    def count_calls(axes: SharedAxes, layout: TensorLayout, slot: int) -> OperatorLayout | None:
        nonlocal calls
        calls += 1
        return original(axes, layout, slot)

    monkeypatch.setattr(SharedAxes, "operator_layout", count_calls)
    call_counts = []
    for count in (40, 80):
        calls = 0
        otp.convert(many_readers(count), check="standard")
        call_counts.append(calls)
    assert 0 < call_counts[1] < 2.2 * call_counts[0]
