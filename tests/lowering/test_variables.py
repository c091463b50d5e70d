"""Variable tensors that handlers of packs read and write."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.models import random_array
from onnx_tflite_plugin.api import Handler, Implicit, Terminate, handler, out
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.runtime import Session

GROWN, KEPT = "CUSTOM.Grown", "CUSTOM.Kept"
SHAPE = (1, 5, 7, 3)
FIRST = {0: "n c h w", 1: "n c h w"}


@handler(GROWN, max_version=1, layout=Implicit({**FIRST, out(0): "n c h w"}), axes="n h w c, n h w c -> n h w c")
def add_to_variable(ctx: Any, x: Any, held: Any) -> Any:
    """Add the operand to the variable, channels first."""
    total = ctx.ops.Add(x, held)
    ctx.assign(1, total)
    return total


@handler(KEPT, max_version=1, layout=Terminate())
def assign_to_variable(ctx: Any, x: Any, held: Any) -> tuple[()]:
    """Assign the operand to the variable; return nothing."""
    ctx.assign(1, ctx.ops.Sub(x, held))
    return ()


@handler("CUSTOM.Read", max_version=1, layout=Terminate())
def read(ctx: Any, x: Any, held: Any) -> Any:
    """Return the sum of operand and variable, without changing the variable."""
    return ctx.ops.Sub(x, held)


def convert_model(*operators: Handler) -> Conversion:
    """Convert a chain of operators on one variable; the output is the last one's result plus the variable."""
    model = ModelBuilder()
    g = model.main
    x, held = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True)
    for operator in operators:
        results = [] if operator is assign_to_variable else [g.tensor("y", SHAPE)]
        g.operator(operator.code, [x, held], results)
        x = results[0] if results else x
    y = g.tensor("total", SHAPE)
    g.operator("ADD", [x, held], [y])
    g.output(y)
    host = Host(packs="builtin", handlers={operator.code: operator for operator in operators})
    return otp.convert(model.build(), host=host)


def runs_of(conversion: Conversion, fed: list[Any]) -> list[Any]:
    session = Session(conversion)
    return [session.run({"x": x})["total"] for x in fed]


FED = [np.round(5 * random_array(*SHAPE, seed=str(k))) for k in range(3)]


def test_channels_first_assignment_is_stored_in_file_layout() -> None:
    conversion, held = convert_model(add_to_variable), np.zeros(SHAPE)
    assert conversion.report.states == ("held",)
    for x, y in zip(FED, runs_of(conversion, FED), strict=True):
        held += x
        np.testing.assert_array_equal(y, held + held)


def test_variable_is_transposed_once_for_all_readers() -> None:
    """The second operator adds to what the first one assigned."""
    conversion, held = convert_model(add_to_variable, add_to_variable), np.zeros(SHAPE)
    for x, y in zip(FED, runs_of(conversion, FED), strict=True):
        first = x + held
        held = first + first
        np.testing.assert_array_equal(y, held + held)
    assert conversion.report.transposes == convert_model(add_to_variable).report.transposes


def test_operator_without_outputs_writes_its_variable() -> None:
    held = np.zeros(SHAPE)
    for x, y in zip(FED, runs_of(convert_model(assign_to_variable), FED), strict=True):
        held = x - held
        np.testing.assert_array_equal(y, x + held)


def test_unchanged_variable_is_passed_through() -> None:
    conversion = convert_model(read)
    states = [value for value in conversion.model.graph.outputs if value.name != "total"]
    reported = [(value.name, tuple(value.shape or ()), value.dtype) for value in states]
    assert reported == [("held:next", SHAPE, ir.DataType.FLOAT)]
    session = Session(conversion)
    session.restore({"held": FED[0]})
    for x in FED:
        np.testing.assert_array_equal(session.run({"x": x})["total"], x)
        np.testing.assert_array_equal(session.save()["held"], FED[0])


def test_operator_whose_output_is_a_variable_is_refused() -> None:
    model = ModelBuilder()
    g = model.main
    x, held, y = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True), g.tensor("y", SHAPE)
    g.operator("ABS", [x], [held])
    g.operator("ADD", [x, held], [y])
    g.output(y)
    with pytest.raises(ConversionError, match="the output is the variable tensor 'held'"):
        otp.convert(model.build())


def test_value_of_another_conversion_is_rejected() -> None:
    given: list[Any] = []

    @handler(KEPT, max_version=1, layout=Terminate())
    def keep_first_operand(ctx: Any, x: Any, held: Any) -> tuple[()]:
        given.append(x)
        ctx.assign(1, ctx.ops.Add(given[0], held))
        return ()

    def twice() -> Conversion:
        model = ModelBuilder()
        g = model.main
        x, held = g.input("x", SHAPE), g.tensor("held", SHAPE, variable=True)
        g.operator(KEPT, [x, held], [])
        g.output(held)
        return otp.convert(model.build(), host=Host(packs="builtin", handlers={KEPT: keep_first_operand}))

    twice()
    with pytest.raises(ConversionError, match="operand 'x' is not a value of this model"):
        twice()
