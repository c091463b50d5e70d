"""Variable tensors that handlers of packs read and write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, TensorRef
from conformance.models import random_array
from onnx_tflite_plugin.api import Handler, Implicit, Terminate, handler, out
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.runtime import Session
from tests.helpers.changed_files import change_fields, change_subgraph_tensor

ADD_TO, ASSIGN_TO = "CUSTOM.AddTo", "CUSTOM.AssignTo"
SHAPE = (1, 5, 7, 3)
CHANNELS_FIRST = {0: "n c h w", 1: "n c h w"}


@handler(
    ADD_TO, max_version=1, layout=Implicit({**CHANNELS_FIRST, out(0): "n c h w"}), axes="n h w c, n h w c -> n h w c"
)
def add_to_variable(ctx: Any, x: Any, variable: Any) -> Any:
    """Add the operand to the variable in channels-first layout."""
    total = ctx.ops.Add(x, variable)
    ctx.assign(1, total)
    return total


@handler(ASSIGN_TO, max_version=1, layout=Terminate())
def assign_to_variable(ctx: Any, x: Any, variable: Any) -> tuple[()]:
    """Assign the operand to the variable; return nothing."""
    ctx.assign(1, ctx.ops.Sub(x, variable))
    return ()


@handler("CUSTOM.Read", max_version=1, layout=Terminate())
def read(ctx: Any, x: Any, variable: Any) -> Any:
    """Return the sum of operand and variable, without changing the variable."""
    return ctx.ops.Sub(x, variable)


def convert_model(*operators: Handler) -> Conversion:
    """Convert a chain of operators on one variable.

    The output is the sum of the last result and the variable.
    """
    model = ModelBuilder()
    g = model.main
    x, variable = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True)
    for operator in operators:
        results = [] if operator is assign_to_variable else [g.tensor("y", SHAPE)]
        g.operator(operator.code, [x, variable], results)
        x = results[0] if results else x
    y = g.tensor("total", SHAPE)
    g.operator("ADD", [x, variable], [y])
    g.output(y)
    host = Host(packs="builtin", handlers={operator.code: operator for operator in operators})
    return otp.convert(model.build(), host=host)


def runs_of(conversion: Conversion, inputs: list[Any]) -> list[Any]:
    session = Session(conversion)
    return [session.run({"x": x})["total"] for x in inputs]


INPUTS = [np.round(5 * random_array(*SHAPE, seed=str(k))) for k in range(3)]


def test_channels_first_assignment_is_stored_in_file_layout() -> None:
    conversion, variable = convert_model(add_to_variable), np.zeros(SHAPE)
    assert conversion.report.states == ("held",)
    for x, y in zip(INPUTS, runs_of(conversion, INPUTS), strict=True):
        variable += x
        np.testing.assert_array_equal(y, variable + variable)


def test_variable_is_transposed_once_for_all_readers() -> None:
    """The second operator adds to what the first one assigned."""
    conversion, variable = convert_model(add_to_variable, add_to_variable), np.zeros(SHAPE)
    for x, y in zip(INPUTS, runs_of(conversion, INPUTS), strict=True):
        first = x + variable
        variable = first + first
        np.testing.assert_array_equal(y, variable + variable)
    assert conversion.report.transposes == convert_model(add_to_variable).report.transposes


def test_operator_without_outputs_writes_its_variable() -> None:
    variable = np.zeros(SHAPE)
    for x, y in zip(INPUTS, runs_of(convert_model(assign_to_variable), INPUTS), strict=True):
        variable = x - variable
        np.testing.assert_array_equal(y, x + variable)


def test_unchanged_variable_is_passed_through() -> None:
    conversion = convert_model(read)
    states = [value for value in conversion.model.graph.outputs if value.name != "total"]
    reported = [(value.name, tuple(value.shape or ()), value.dtype) for value in states]
    assert reported == [("held:next", SHAPE, ir.DataType.FLOAT)]
    session = Session(conversion)
    session.restore({"held": INPUTS[0]})
    for x in INPUTS:
        np.testing.assert_array_equal(session.run({"x": x})["total"], x)
        np.testing.assert_array_equal(session.save()["held"], INPUTS[0])


def computed_variable(*, is_late: bool) -> Conversion:
    """Convert x plus a variable that is set to |x| before or after the sum."""
    model = ModelBuilder()
    g = model.main
    x, variable, y = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True), g.tensor("total", SHAPE)
    operators: list[tuple[str, list[TensorRef], list[TensorRef]]] = [
        ("ABS", [x], [variable]),
        ("ADD", [x, variable], [y]),
    ]
    for operator in reversed(operators) if is_late else operators:
        g.operator(*operator)
    g.output(y)
    return otp.convert(model.build())


def test_variable_computed_before_its_readers_is_not_a_state() -> None:
    conversion = computed_variable(is_late=False)
    assert conversion.report.states == ()
    for x, y in zip(INPUTS, runs_of(conversion, INPUTS), strict=True):
        np.testing.assert_array_equal(y, x + np.abs(x))


def test_variable_computed_after_its_readers_is_read_by_the_next_run() -> None:
    conversion, variable = computed_variable(is_late=True), np.zeros(SHAPE)
    assert conversion.report.states == ("held",)
    for x, y in zip(INPUTS, runs_of(conversion, INPUTS), strict=True):
        np.testing.assert_array_equal(y, x + variable)
        variable = np.abs(x)


def test_value_of_another_conversion_is_rejected() -> None:
    operands: list[Any] = []

    @handler(ASSIGN_TO, max_version=1, layout=Terminate())
    def keep_first_operand(ctx: Any, x: Any, variable: Any) -> tuple[()]:
        operands.append(x)
        ctx.assign(1, ctx.ops.Add(operands[0], variable))
        return ()

    def convert_variable_model() -> Conversion:
        model = ModelBuilder()
        g = model.main
        x, variable = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True)
        g.operator(ASSIGN_TO, [x, variable], [])
        g.output(variable)
        return otp.convert(model.build(), host=Host(packs="builtin", handlers={ASSIGN_TO: keep_first_operand}))

    convert_variable_model()
    with pytest.raises(ConversionError, match="operand 'x' belongs to another conversion, not to this model"):
        convert_variable_model()


def test_initial_value_may_be_computed_in_a_variable() -> None:
    """Operators compute the initial value of the state in a subgraph that runs once."""
    case = "CALL_ONCE-initial_values_computed_by_operators"
    verified = otp.convert(change_fields(case, change_subgraph_tensor(1, "sum", is_variable=True)), verify=True)
    assert verified.report.states == ("state",)
    assert verified.verification is not None
    assert verified.verification.ok
