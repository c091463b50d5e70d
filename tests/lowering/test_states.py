"""Recurrent operators with ``--state reset``, and the effect of carried states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.cases.sequence.lstm.bidirectional import BidirectionalLstm
from conformance.cases.sequence.rnn import BIDIRECTIONAL, Rnn
from conformance.cases.sequence.svdf import Svdf
from conformance.cases.state.variables import constant_state, previous_input
from conformance.lstms import Lstm
from conformance.models import Net
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import layout_constraint
from onnx_tflite_plugin.layout.states import state_groups
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import LiteRT

LAYERS = {
    "LSTM": (Lstm(time_major=True).build, "LSTM"),
    "LSTM both ways": (BidirectionalLstm().build, "LSTM"),
    "RNN": (Rnn(time_major=True).build, "RNN"),
    "RNN both ways": (Rnn(op=BIDIRECTIONAL, time_major=True).build, "RNN"),
}


def build_model(build: Callable[[Net], None]) -> bytes:
    model = Net()
    build(model)
    return model.build()


@pytest.mark.parametrize("name", LAYERS)
def test_layer_with_zero_initial_state_is_one_node_without_states(name: str) -> None:
    build, onnx = LAYERS[name]
    conversion = otp.convert(build_model(build), state="reset")
    assert [value.name for value in conversion.model.graph.inputs] == ["x0"]
    (node,) = (node for node in conversion.model.graph if node.op_type == onnx)
    assert len([value for value in node.inputs if value is not None]) == 4  # the input, two matrices and the biases
    assert not {"Scan", "Loop", "If"} & {node.op_type for node in conversion.model.graph}
    assert conversion.report.states == ()


@pytest.mark.parametrize("build", [*(build for build, _ in LAYERS.values()), Svdf().build, Svdf("int8", "int8").build])
def test_state_still_matters_after_fifty_runs(build: Callable[[Net], None]) -> None:
    """A session that is reset before the last run differs from LiteRT's result."""
    data, rng = build_model(build), np.random.default_rng(3)
    session, original = Session(otp.convert(data).proto.SerializeToString()), LiteRT(data, "builtin")
    tensor = original.entry.inputs[0]
    for _ in range(50):
        random_values = rng.standard_normal(tensor.shape) * (40 if tensor.dtype == "int8" else 1)
        x = random_values.astype(tensor.dtype)
        saved, (expected,) = session.save(), original.run([x])
        (result,) = session.run({"x0": x}).values()
    session.restore({})
    assert saved
    (reset_result,) = session.run({"x0": x}).values()
    error = np.abs(expected.astype(float) - result).max()
    assert error <= (1 if tensor.dtype == "int8" else 1e-5 * np.ptp(expected))
    assert np.abs(expected.astype(float) - reset_result).max() > 10 * max(error, 1e-3)


@pytest.mark.parametrize(
    "layer", [Lstm(projection_size=13), Lstm(projection_size=5, projection_bias=False, time_major=True, peephole=True)]
)
@pytest.mark.parametrize("state", ["io", "reset"])
def test_layer_with_projection_is_one_node(layer: Lstm, state: str) -> None:
    conversion = otp.convert(build_model(layer.build), state=state)
    assert conversion.report.nodes["LSTM"] == 1
    assert not {"Scan", "Loop", "If"} & {node.op_type for node in conversion.model.graph}


@pytest.mark.parametrize("options", [{"cell_clip": 0.9}, {"proj_clip": 0.9}])
def test_clipped_layer_with_projection_becomes_a_scan(options: dict[str, float]) -> None:
    nodes = otp.convert(build_model(Lstm(projection_size=13, options=tuple(options.items())).build)).report.nodes
    assert (nodes["Scan"], nodes.get("LSTM", 0)) == (1, 0)


def read_and_assign(shape: tuple[int, ...]) -> bytes:
    """Return a variable of 30 elements, read as [5, 6] and assigned in this shape."""
    model = ModelBuilder()
    g = model.main
    handle, value, negated = g.tensor("h", (), "resource"), g.tensor("r", (5, 6)), g.tensor("y", (5, 6))
    g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
    g.operator("READ_VARIABLE", [handle], [value])
    g.operator("NEG", [value], [negated])
    g.output(negated)
    g.operator("ASSIGN_VARIABLE", [handle, g.input("x", shape)], [])
    return model.build()


@pytest.mark.parametrize(("shape", "grouped"), [((5, 6), 2), ((6, 5), 0), ((1, 5, 6), 0)])
def test_state_used_in_two_shapes_keeps_the_file_layout(shape: tuple[int, ...], grouped: int) -> None:
    target = TARGETS["onnxruntime"]
    model = resolve(Host(packs="builtin").bind(read(read_and_assign(shape)), target, 18), target, 18)
    groups, pinned = state_groups(
        model, {bound: layout_constraint(bound) for bound in model.operators()}, lambda _: False
    )
    assert sum(map(len, groups.values())) == grouped
    assert len(pinned) == 2 - grouped


def test_two_states_may_have_the_same_next_value() -> None:
    """State a starts at 1, b at 2; both become x + a, and y = x + a + b."""
    model = ModelBuilder()
    init, g = model.subgraph("init"), model.main
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
    handles, values = [], []
    for name, initial in (("a", 1.0), ("b", 2.0)):
        handle = init.tensor(f"h{name}", (), "resource")
        init.operator("VAR_HANDLE", [], [handle], {"shared_name": name})
        init.operator("ASSIGN_VARIABLE", [handle, init.constant(f"first {name}", [initial, initial, initial])], [])
        handles.append(g.tensor(f"h{name}", (), "resource"))
        values.append(g.tensor(f"r{name}", (3,)))
        g.operator("VAR_HANDLE", [], [handles[-1]], {"shared_name": name})
        g.operator("READ_VARIABLE", [handles[-1]], [values[-1]])
    x, total, y = g.input("x", (3,)), g.tensor("total", (3,)), g.tensor("y", (3,))
    g.operator("ADD", [x, values[0]], [total])
    g.operator("ADD", [total, values[1]], [y])
    for handle in handles:
        g.operator("ASSIGN_VARIABLE", [handle, total], [])
    g.output(y)
    session, original = Session(otp.convert(model.build()).proto.SerializeToString()), LiteRT(model.build())
    for k in range(4):
        array = np.array([k, 5, -7], np.float32)
        np.testing.assert_array_equal(session.run({"x": array})["y"], original.run([array])[0])
    assert np.array_equal(*session.save().values())


def test_constant_next_state_is_copied_by_identity() -> None:
    graph = otp.convert(build_model(constant_state)).proto.graph
    (state,) = (value.name for value in graph.output if value.name.endswith(":next"))
    assert [node.op_type for node in graph.node if state in node.output] == ["Identity"]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_input_stored_as_state_keeps_its_name(dtype: str) -> None:
    conversion = otp.convert(build_model(previous_input(dtype)))
    assert [value.name for value in conversion.model.graph.inputs] == ["x0", "state"]
    assert [port.name for port in conversion.report.inputs] == ["x0"]
