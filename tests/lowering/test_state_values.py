"""The dtype, shape and initial value of states."""

from __future__ import annotations

from typing import cast

import numpy as np
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.api.budget import ENVIRONMENT_VARIABLE, OverBudget
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.graph.constants import evaluate_constant
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.ir_values import set_type
from onnx_tflite_plugin.lowering.state import State, States
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import verify

X = np.asarray([[2, -3, 5], [-7, 11, -13]], np.float32)


def emitter(opset: int = 18) -> Emitter:
    return Emitter(opset, UniqueNames(), TARGETS["generic"].wider_dtypes)


def state_of(dims: tuple[int | None, ...] = (2, 3)) -> State:
    state = State("v", "v", emitter())
    state.declare("float32", dims)
    return state


@pytest.mark.parametrize(("dtype", "dims"), [("int32", (2, 3)), ("float32", (2, 5)), ("float32", (2, 3, 1))])
def test_state_with_two_dtypes_or_shapes_is_refused(dtype: str, dims: tuple[int, ...]) -> None:
    with pytest.raises(Refusal, match="in ONNX a state has one dtype and shape"):
        state_of().declare(dtype, dims)


def test_dynamic_size_matches_any_size() -> None:
    state = state_of((None, 3))
    state.declare("float32", (2, 3))
    assert state.initial_value.shape == (1, 3)


def test_state_assigned_before_it_is_read_has_an_input() -> None:
    state = state_of()
    state.set(state.emitter.constant(X))
    assert state.input is not None
    assert state.get() is not state.input


def test_initial_value_after_first_use_is_refused() -> None:
    state = state_of()
    state.get()
    state.initializing = True
    with pytest.raises(Refusal, match="after operators that use it"):
        state.set(state.emitter.constant(X))


@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (20, 2)])
def test_initial_value_is_computed_at_the_opset_of_the_model(opset: int, axis: int) -> None:
    """The default axis of DFT is 1 before opset 20, and -2 from then on."""
    builder = emitter(opset)
    signal = np.arange(30, dtype=np.float32).reshape(1, 3, 5, 2)
    (spectrum,) = builder.emit("DFT", [signal], {})
    (doubled,) = builder.emit("Add", [spectrum, spectrum], {})
    expected = 2 * np.fft.fft(signal[..., 0] + 1j * signal[..., 1], axis=axis)
    np.testing.assert_allclose(
        evaluate_constant(doubled, builder.domains, "a test"), np.stack([expected.real, expected.imag], -1), atol=1e-3
    )


def test_initial_value_may_use_operators_with_absent_operands() -> None:
    builder = emitter()
    (clipped,) = builder.emit("Clip", [X, None, np.float32(4)], {})
    np.testing.assert_array_equal(evaluate_constant(clipped, builder.domains, "a test"), X.clip(None, 4))


def test_initial_value_that_depends_on_an_input_is_rejected() -> None:
    builder = emitter()
    x = builder.register(set_type(ir.Value(name="x"), "float32", (2, 3)))
    (sums,) = builder.emit("Add", [X, x], {})
    with pytest.raises(LookupError, match="'x' is a runtime value"):
        evaluate_constant(sums, builder.domains, "a test")


@pytest.mark.parametrize(("dtype", "initial"), [("int8", 7), ("uint8", 0), ("int16", 0)])
def test_variable_starts_with_zero_bytes_or_the_int8_zero_point(dtype: str, initial: int) -> None:
    """ResetVariableTensor, core/subgraph.cc."""
    tensor = Tensor(0, 0, "v", dtype, (2, 3), (2, 3), None, Quantization((0.5,), (7,), 0), True)
    layout = cast(LayoutPlan, None)  # used only for states that subgraphs share
    states = States(emitter(), layout, StoragePlan(TARGETS["generic"], {}, {}))
    np.testing.assert_array_equal(states.variable_state(tensor, "v").initial_value, np.full((2, 3), initial))


@pytest.mark.parametrize("size_kind", ["constant", "computed"])
def test_initial_value_beyond_the_budget_is_not_computed(size_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may request arrays of any size, by constant or computed sizes."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "1000")
    builder = emitter()
    sizes = np.asarray([13, 17]) if size_kind == "constant" else builder.emit("Concat", [[13], [17]], {"axis": 0})[0]
    (large,) = builder.emit("Expand", [np.asarray(2, np.float32), sizes], {})
    with pytest.raises(OverBudget, match="would take 1768 bytes"):
        evaluate_constant(large, builder.domains, "a test")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "1768")
    np.testing.assert_array_equal(evaluate_constant(large, builder.domains, "a test"), np.full((13, 17), 2))


def test_zero_initial_value_beyond_the_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "1000")
    with pytest.raises(OverBudget, match="initial value of the state 'v' would take 1768 bytes"):
        _ = state_of((13, None, 17)).initial_value
    assert state_of((7, 17)).initial_value.shape == (7, 17)


def test_state_has_value_once_read_or_set() -> None:
    read_state, initialized, assigned = state_of(), state_of(), state_of()
    assert not read_state.has_value
    read_state.get()
    initialized.initial = X
    assigned.set(assigned.emitter.constant(X))
    assert (read_state.has_value, initialized.has_value, assigned.has_value) == (True, True, True)


def test_unused_variable_output_is_kept() -> None:
    model = ModelBuilder()
    x, y = model.main.input("x", (2, 3)), model.main.tensor("y", (2, 3))
    model.main.operator("ABS", [x], [y])
    model.main.output(y)
    model.main.output(model.main.tensor("v", (5, 7), variable=True))
    data = model.build()
    conversion = otp.convert(data)
    assert [port.name for port in conversion.report.outputs] == ["y", "v"]
    assert verify(data, conversion).ok
