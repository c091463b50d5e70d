"""Storage dtypes of states and of subgraph boundaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.api import Raw, SameScale, builtin
from tests.quantization.plan_models import QUANTIZATION, SHAPE, call, dense, int8_input, plan_model, storage_by_name


@pytest.mark.parametrize("behavior", [Raw(), Raw(shift_safe=True), SameScale()])
def test_subgraph_interfaces_keep_the_files_dtype(behavior: Raw | SameScale) -> None:
    """The behavior that the calling operator declares does not matter."""

    def branching(g: GraphBuilder) -> None:
        for name in ("then", "else"):
            inner = g.model.subgraph(name)
            inner.output(dense(inner, inner.input(f"{name}_x", SHAPE, "int8", quantization=QUANTIZATION), f"{name}_y"))
        condition, x = g.input("which", (), "bool"), int8_input(g)
        operand = dense(g, x, "operand")
        y = g.tensor("y", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("IF", [condition, operand], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
        g.output(dense(g, y, "z"))

    dtypes = storage_by_name(*plan_model(branching, IF=replace(builtin("IF"), quantization=behavior)))
    assert {name: dtypes[name] for name in ("operand", "y", "then_x", "then_y", "else_x", "else_y")} == dict.fromkeys(
        ("operand", "y", "then_x", "then_y", "else_x", "else_y"), "int8"
    )
    assert (dtypes["x"], dtypes["z"]) == ("uint8", "uint8")


def test_states_keep_the_files_dtype() -> None:
    def stateful(g: GraphBuilder) -> None:
        x, state = int8_input(g), g.tensor("state", SHAPE, "int8", quantization=QUANTIZATION, variable=True)
        total = g.tensor("total", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("ADD", [dense(g, x, "inner"), state], [total])
        g.output(total)

    dtypes = storage_by_name(*plan_model(stateful))
    assert (dtypes["state"], dtypes["inner"], dtypes["total"]) == ("int8", "uint8", "uint8")


def assign(g: GraphBuilder, value: int | None = None, name: str = "state") -> int:
    """Add a resource variable and its assignment."""
    handle = g.tensor(f"handle {name} {value}", (1,), "resource")
    g.operator("VAR_HANDLE", [], [handle], {"shared_name": name})
    if value is not None:
        g.operator("ASSIGN_VARIABLE", [handle, value], [])
    return handle


def test_resource_variable_has_the_dtype_of_its_reads_and_writes() -> None:
    def stateful(g: GraphBuilder) -> None:
        inner = g.model.subgraph("before the first run")
        assign(inner, inner.constant("initial", np.ones(SHAPE, np.int8), quantization=QUANTIZATION))
        g.operator("CALL_ONCE", [], [], {"init_subgraph_index": inner.index})
        old_value = g.tensor("before", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("READ_VARIABLE", [assign(g)], [old_value])
        assign(g, dense(g, old_value, "after"))
        g.output(dense(g, int8_input(g)))

    dtypes = storage_by_name(*plan_model(stateful))
    assert (dtypes["initial"], dtypes["before"], dtypes["after"]) == ("uint8", "uint8", "uint8")


def test_resource_variable_keeps_its_dtype_if_a_user_does() -> None:
    def stateful(g: GraphBuilder) -> None:
        old_value = g.tensor("before", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("READ_VARIABLE", [assign(g)], [old_value])
        assign(g, call(g, "NEG", dense(g, old_value, "inner"), "less"))
        g.output(dense(g, int8_input(g)))

    dtypes = storage_by_name(*plan_model(stateful))
    assert (dtypes["before"], dtypes["less"], dtypes["y"]) == ("int8", "int8", "uint8")


def test_variables_that_share_a_value_keep_the_same_dtype() -> None:
    def stateful(g: GraphBuilder) -> None:
        old_value = g.tensor("before", SHAPE, "int8", quantization=QUANTIZATION)
        g.operator("READ_VARIABLE", [assign(g, name="second")], [old_value])
        shared_dense = dense(g, old_value, "both")
        assign(g, shared_dense, "second")
        assign(g, shared_dense, "first")
        assign(g, call(g, "NEG", dense(g, old_value, "inner"), "less"), "first")
        g.output(dense(g, int8_input(g)))

    dtypes = storage_by_name(*plan_model(stateful))
    assert (dtypes["before"], dtypes["both"], dtypes["less"], dtypes["y"]) == ("int8", "int8", "int8", "uint8")


def shared_state_model(signature_count: int) -> bytes:
    """Return a model with the signatures "count" and "double" of one int8 state.

    "count" adds its input to the state; "double" returns twice the state.
    """
    model = ModelBuilder()
    shape = (1, 5)
    init, main, double = model.subgraph("init"), model.main, model.subgraph("double")
    handle = init.tensor("h", (), "resource")
    init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
    initial = init.constant("start", np.full(shape, 3, np.int8), quantization=QUANTIZATION)
    init.operator("ASSIGN_VARIABLE", [handle, initial], [])
    states = []
    for g in (main, double):
        handle, value = g.tensor("h", (), "resource"), g.tensor("r", shape, "int8", quantization=QUANTIZATION)
        g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
        g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        g.operator("READ_VARIABLE", [handle], [value])
        states.append((handle, value))
    x = main.input("x", shape, "int8", quantization=QUANTIZATION)
    total, y = (main.tensor(name, shape, "int8", quantization=QUANTIZATION) for name in ("t", "y"))
    main.operator("ADD", [states[0][1], x], [total])
    main.operator("MUL", [total, x], [y])
    main.operator("ASSIGN_VARIABLE", [states[0][0], total], [])
    main.output(y)
    twice = double.tensor("twice", shape, "int8", quantization=QUANTIZATION)
    double.operator("ADD", [states[1][1], states[1][1]], [twice])
    double.output(twice)
    model.signature("count", {"x": x}, {"y": y})
    if signature_count > 1:
        model.signature("double", {}, {"twice": twice}, subgraph=double.index)
    return model.build()


def test_state_shared_by_signatures_keeps_the_file_dtype() -> None:
    """One signature reads what the other writes, in separate conversions."""

    def state_dtypes(signature_count: int, signature: str) -> dict[str, str]:
        conversion = otp.convert(shared_state_model(signature_count), signature=signature)
        return {str(value.name): str(value.dtype) for value in conversion.model.graph.inputs if value.name == "v"}

    assert state_dtypes(1, "count") == {"v": "UINT8"}
    assert state_dtypes(2, "count") == state_dtypes(2, "double") == {"v": "INT8"}
