"""Tests of ``runtime.Session``: states match LiteRT, and inputs are checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import MissingExtra
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.graph.model_metadata import read_states
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.verify import LiteRT


def counter() -> bytes:
    """Return y = x + v with a variable v, which is first [1, 2] and then the last y."""
    model = ModelBuilder()
    init, g = model.subgraph("init"), model.main
    handle = init.tensor("h", (), "resource")
    init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
    init.operator("ASSIGN_VARIABLE", [handle, init.constant("start", [1.0, 2.0])], [])
    x, handle, value, y = g.input("x", (2,)), g.tensor("h", (), "resource"), g.tensor("r", (2,)), g.tensor("y", (2,))
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
    g.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
    g.operator("READ_VARIABLE", [handle], [value])
    g.operator("ADD", [value, x], [y])
    g.operator("ASSIGN_VARIABLE", [handle, y], [])
    g.output(y)
    return model.build()


def two_signatures() -> bytes:
    """Return a model with the signatures "count" and "read".

    "count" adds a filtered image to a variable; "read" returns the variable.
    """
    model = ModelBuilder()
    init, g, read = model.subgraph("init"), model.main, model.subgraph("read")
    shape = (1, 3, 5, 2)
    handle = init.tensor("h", (), "resource")
    init.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
    init.operator("ASSIGN_VARIABLE", [handle, init.constant("start", np.zeros(shape, np.float32))], [])
    handles_and_values = []
    for graph in (g, read):
        handle, value = graph.tensor("h", (), "resource"), graph.tensor("r", shape)
        graph.operator("CALL_ONCE", [], [], {"init_subgraph_index": init.index})
        graph.operator("VAR_HANDLE", [], [handle], {"shared_name": "v"})
        graph.operator("READ_VARIABLE", [handle], [value])
        handles_and_values.append((handle, value))
    x, filtered, total, y = g.input("x", shape), g.tensor("f", shape), g.tensor("t", shape), g.tensor("y", shape)
    weights = np.arange(4, dtype=np.float32).reshape(2, 1, 1, 2) / 4
    kernel, bias = g.constant("w", weights), g.constant("b", np.zeros(2, np.float32))
    strides = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    g.operator("CONV_2D", [x, kernel, bias], [filtered], strides)
    g.operator("ADD", [handles_and_values[0][1], filtered], [total])
    g.operator("CONV_2D", [total, kernel, bias], [y], strides)
    g.operator("ASSIGN_VARIABLE", [handles_and_values[0][0], y], [])
    g.output(y)
    results = read.tensor("results", shape)
    read.operator("NEG", [handles_and_values[1][1]], [results])
    read.output(results)
    model.signature("count", {"x": x}, {"y": y})
    model.signature("read", {}, {"results": results}, subgraph=read.index)
    return model.build()


def test_sessions_of_signatures_share_states() -> None:
    count = Session(otp.convert(two_signatures(), signature="count").proto.SerializeToString())
    reading_session = Session(
        otp.convert(two_signatures(), signature="read").proto.SerializeToString(), states_of=count
    )
    from ai_edge_litert.interpreter import Interpreter

    litert = Interpreter(model_content=two_signatures())
    runners = {key: litert.get_signature_runner(key) for key in ("count", "read")}
    rng = np.random.default_rng(0)
    results = []
    for _ in range(50):
        x = rng.standard_normal((1, 3, 5, 2)).astype(np.float32)
        np.testing.assert_allclose(count.run({"x": x})["y"], runners["count"](x=x)["y"], rtol=1e-5, atol=1e-6)
        results.append(reading_session.run({})["results"])
        np.testing.assert_allclose(results[-1], runners["read"]()["results"], rtol=1e-5, atol=1e-6)
    assert np.abs(results[-1] - results[-2]).max() > 0.1
    reading_session.reset()
    np.testing.assert_array_equal(reading_session.run({})["results"], np.zeros((1, 3, 5, 2)))
    assert not count.save()["v"].any()


def test_rejects_sharing_a_state_of_different_shape() -> None:
    with pytest.raises(
        ValueError,
        match=r"state 'v' is float32 \[2\], but in the session of states_of it is float32 \[1, 3, 5, 2\]",
    ):
        Session(
            otp.convert(counter()).proto.SerializeToString(),
            states_of=Session(otp.convert(two_signatures(), signature="count").proto.SerializeToString()),
        )


def test_states_match_litert_until_reset(tmp_path: Path) -> None:
    otp.convert(counter()).save(tmp_path / "counter.onnx")
    session = Session(tmp_path / "counter.onnx")
    assert [port.name for port in session.inputs] == ["x"]
    assert [port.name for port in session.outputs] == ["y"]
    litert = LiteRT(counter(), "builtin")
    rng = np.random.default_rng(0)
    inputs = []
    for _ in range(4):
        x = rng.standard_normal(2).astype(np.float32)
        (expected,) = litert.run([x])
        outputs = session.run({"x": x})
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], expected)
        inputs.append(x)
    session.reset()
    np.testing.assert_array_equal(session.run({"x": inputs[0]})["y"], inputs[0] + np.array([1, 2], np.float32))


def test_sessions_do_not_share_states_by_default() -> None:
    proto = otp.convert(counter()).proto.SerializeToString()
    first, second = Session(proto), Session(proto)
    for _ in range(3):
        first.run({"x": [1, 1]})
    assert second.run({"x": [0, 0]})["y"].tolist() == [1, 2]


def test_restored_session_continues_like_litert() -> None:
    """The state is restored in the session itself and in a new one."""
    proto = otp.convert(counter()).proto.SerializeToString()
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(2).astype(np.float32) for _ in range(6)]
    litert = LiteRT(counter(), "builtin")
    expected = [litert.run([x])[0] for x in inputs]
    session = Session(proto)
    assert session.save() == {}
    for x in inputs[:3]:
        session.run({"x": x})
    saved_states = session.save()
    for resumed in (session, Session(proto), session.stream()):
        resumed.restore(saved_states)
        for x, y in zip(inputs[3:], expected[3:], strict=True):
            np.testing.assert_array_equal(resumed.run({"x": x})["y"], y)
    np.testing.assert_array_equal(saved_states["v"], expected[2])


def test_streams_share_the_model_but_not_states() -> None:
    session = Session(otp.convert(counter()).proto.SerializeToString())
    streams = [session.stream() for _ in range(3)]
    for run in range(5):
        for k, stream in enumerate(streams):
            assert stream.run({"x": [k, 1]})["y"].tolist() == [1 + k * (run + 1), 3 + run]
    assert session.run({"x": [0, 0]})["y"].tolist() == [1, 2]


def test_restore_rejects_unknown_states() -> None:
    session = Session(otp.convert(counter()).proto.SerializeToString())
    session.run({"x": [1, 1]})
    with pytest.raises(ValueError, match="there is no state 'w'; the model's states are 'v'"):
        session.restore({"w": np.zeros(2, np.float32)})
    with pytest.raises(ValueError, match=r"state 'v' is float32 \[2\]; the array has shape \[3\]"):
        session.restore({"v": np.zeros(3, np.float32)})
    assert session.run({"x": [0, 0]})["y"].tolist() == [2, 3]
    session.restore({})
    assert session.run({"x": [0, 0]})["y"].tolist() == [1, 2]


# --- handwritten ONNX models ------------------------------------------------------------------


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str]]],
    outputs: Sequence[tuple[str, int, Sequence[int | str]]],
    states: Sequence[Mapping[str, Any]] = (),
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = 21,
) -> bytes:
    sides = [[helper.make_tensor_value_info(*port) for port in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *sides, list(constants))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 10 if opset < 25 else 13
    if states:
        helper.set_model_props(proto, {PREFIX + "state": json.dumps(list(states))})
    return proto.SerializeToString()


def accumulator(**state: Any) -> bytes:
    ports = [(name, TensorProto.FLOAT, [2]) for name in ("x", "v", "y", "v:next")]
    nodes = [helper.make_node("Add", ["x", "v"], ["y"]), helper.make_node("Identity", ["y"], ["v:next"])]
    state_entry = {"input": "v", "output": "v:next", "dtype": "float32", "shape": [2], **state}
    return model(nodes, [ports[1], ports[0]], [ports[3], ports[2]], [state_entry])


@pytest.mark.parametrize(("initial", "first_output"), [(5, [5, 5]), ([3, 4], [3, 4]), (0, [0, 0])])
def test_required_state_starts_from_metadata(initial: Any, first_output: list[float]) -> None:
    session = Session(accumulator(initial=initial))
    assert session.run({"x": [0, 0]})["y"].tolist() == first_output
    assert session.run({"x": [1, 1]})["y"].tolist() == [n + 1 for n in first_output]
    session.reset()
    assert session.run({"x": [0, 0]})["y"].tolist() == first_output


def test_later_session_continues_from_shared_states() -> None:
    first = Session(accumulator(initial=5))
    assert first.run({"x": [1, 2]})["y"].tolist() == [6, 7]
    later = Session(accumulator(initial=5), states_of=first)
    assert later.run({"x": [1, 2]})["y"].tolist() == [7, 9]
    assert first.run({"x": [1, 2]})["y"].tolist() == [8, 11]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "no array for 'x'; the model's inputs are 'x'"),
        ({"X": [1, 2]}, "there is no input 'X'; the model's inputs are 'x'"),
        ({"x": [1, 2], "v": [1, 2]}, "'v' is a state"),
        ({"x": np.zeros(2)}, r"input 'x' is float32 \[2\], not float64; .*astype\('float32'\)"),
        ({"x": ["one", "two"]}, r"input 'x' is float32 \[2\], not text"),
        ({"x": [[1, 2]]}, r"input 'x' is float32 \[2\]; the array has shape \[1, 2\]"),
        ({"x": [1, 2, 3]}, r"the array has shape \[3\]"),
    ],
)
def test_rejected_inputs_leave_states_unchanged(inputs: dict[str, Any], text: str) -> None:
    session = Session(accumulator(initial=0))
    session.run({"x": [1, 1]})
    with pytest.raises(ValueError, match=text):
        session.run(inputs)
    assert session.run({"x": [0, 0]})["y"].tolist() == [1, 1]


def test_dynamic_dimensions_accept_any_size() -> None:
    ports = [(name, TensorProto.INT64, ["n", 2]) for name in ("x", "y")]
    session = Session(model([helper.make_node("Identity", ["x"], ["y"])], ports[:1], ports[1:]))
    assert str(session.inputs[0]) == "int64 [n, 2]"
    for n in (0, 1, 5):
        assert session.run({"x": np.ones((n, 2), np.int64)})["y"].shape == (n, 2)
    with pytest.raises(ValueError, match=r"int64 \[n, 2\]; the array has shape \[2, 3\]"):
        session.run({"x": np.ones((2, 3), np.int64)})


def test_strings_may_be_str_or_bytes() -> None:
    ports = [(name, TensorProto.STRING, [2]) for name in ("x", "y")]
    session = Session(model([helper.make_node("Identity", ["x"], ["y"])], ports[:1], ports[1:]))
    for strings in (["a", "kůň"], np.array([b"a", "kůň".encode()], object), np.array(["a", "kůň"])):
        assert session.run({"x": strings})["y"].tolist() == ["a", "kůň"]
    with pytest.raises(ValueError, match=r"input 'x' is string \[2\], not int64"):
        session.run({"x": np.array([1, 2])})


@pytest.mark.parametrize(
    ("number", "dtype", "values"),
    [
        (TensorProto.INT4, ml_dtypes.int4, [-8, -1, 0, 3, 7]),
        (TensorProto.UINT4, ml_dtypes.uint4, [0, 1, 15, 8, 9]),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, [-2, 0.5, 0, 1, 448]),
    ],
)
def test_runs_dtypes_missing_from_numpy(number: int, dtype: Any, values: list[float]) -> None:
    """ONNX Runtime's numpy interface rejects these dtypes."""
    ports = [("x", number, [5]), ("real", TensorProto.FLOAT, [5]), ("y", number, [5])]
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [1.0])
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["real"]),
        helper.make_node("QuantizeLinear", ["real", "s"], ["y"], output_dtype=number),
    ]
    session = Session(model(nodes, ports[:1], ports[1:], constants=[scale]))
    x = np.array(values).astype(dtype)
    outputs = session.run({"x": x})
    assert outputs["real"].tolist() == values
    assert outputs["y"].dtype == x.dtype
    assert outputs["y"].astype(np.float32).tolist() == values
    with pytest.raises(ValueError, match=f"is {np.dtype(dtype).name}"):
        session.run({"x": np.zeros(5, np.int8)})


@pytest.mark.needs("onnxruntime", "1.24", "int2")
@pytest.mark.parametrize(
    ("number", "dtype", "values"),
    [(TensorProto.INT2, ml_dtypes.int2, [-2, -1, 0, 1, 1]), (TensorProto.UINT2, ml_dtypes.uint2, [3, 2, 1, 0, 3])],
)
def test_runs_2_bit_dtypes(number: int, dtype: Any, values: list[float]) -> None:
    ports = [("x", number, [5]), ("real", TensorProto.FLOAT, [5]), ("y", number, [5])]
    nodes = [
        helper.make_node("Cast", ["x"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["real"], ["y"], to=number),
    ]
    outputs = Session(model(nodes, ports[:1], ports[1:], opset=25)).run({"x": np.array(values).astype(dtype)})
    assert outputs["real"].tolist() == values
    assert outputs["y"].dtype == np.dtype(dtype)
    assert outputs["y"].astype(np.float32).tolist() == values


def test_carries_bfloat16_states() -> None:
    ports = [(name, TensorProto.BFLOAT16, [2]) for name in ("x", "v", "y", "v:next")]
    nodes = [helper.make_node("Identity", ["v"], ["y"]), helper.make_node("Identity", ["x"], ["v:next"])]
    state = {"input": "v", "output": "v:next", "dtype": "bfloat16", "shape": [2], "initial": [0.5, -2]}
    session = Session(model(nodes, ports[:2], ports[2:], [state]))
    array = np.array([1.5, 3], ml_dtypes.bfloat16)
    assert session.run({"x": array})["y"].tolist() == [0.5, -2]
    saved_states = session.save()
    assert saved_states["v"].dtype == ml_dtypes.bfloat16
    twice = np.array([3, 6], ml_dtypes.bfloat16)
    assert session.run({"x": twice})["y"].tolist() == [1.5, 3]
    session.restore(saved_states)
    assert session.run({"x": array})["y"].tolist() == [1.5, 3]


# --- loading ----------------------------------------------------------------------------------


def test_missing_onnxruntime_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r'pip install "onnx-tflite-plugin\[runtime\]"'):
        Session(b"")


def test_load_errors_describe_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.onnx"):
        Session(tmp_path / "no.onnx")
    with pytest.raises(ValueError, match="the model cannot be loaded"):
        Session(b"no model")
    tflite = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
    for model in (tflite, tflite.read_bytes()):
        with pytest.raises(ValueError, match=r"it is a TFLite model.*give onnx_tflite_plugin\.convert\(model\)"):
            Session(model)


def test_loads_external_weights(tmp_path: Path) -> None:
    ports = [(name, TensorProto.FLOAT, [2000]) for name in ("x", "y")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2000], np.full(2000, 2.0, np.float32))
    proto = onnx.load_model_from_string(
        model([helper.make_node("Mul", ["x", "w"], ["y"])], ports[:1], ports[1:], constants=[weight])
    )
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full(2000, 2.0, np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert Session(str(tmp_path / "m.onnx")).run({"x": np.ones(2000, np.float32)})["y"].sum() == 4000


def test_shared_state_keeps_the_layout_of_the_file() -> None:
    (state,) = read_states(otp.convert(two_signatures(), signature="count").model.metadata_props)
    assert state.shape == (1, 3, 5, 2)
