"""Tests of ``runtime.Session`` on small models: shared states, valid inputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.runtime import Port, Session

X = np.array([1, 2], np.float32)


def accumulator(*states: str, dtype: Any = TensorProto.FLOAT, sizes: Sequence[Any] = (2,), initial: Any = 5) -> bytes:
    """Return a model with y = x + sum(states); the next state is 2 * state + x."""
    name = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.BFLOAT16: "bfloat16"}[dtype]
    nodes = []
    for state in states:
        nodes.append(helper.make_node("Cast", [state], [f"{state}:real"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Sum", [f"{state}:real", f"{state}:real", "x"], [f"{state}:sum"]))
        nodes.append(helper.make_node("Cast", [f"{state}:sum"], [f"{state}:next"], to=dtype))
    nodes.append(helper.make_node("Sum", ["x", *(f"{state}:real" for state in states)], ["y"]))
    x, y = (helper.make_tensor_value_info(port, TensorProto.FLOAT, sizes) for port in ("x", "y"))
    state_inputs, state_outputs = (
        [helper.make_tensor_value_info(state + end, dtype, sizes) for state in states] for end in ("", ":next")
    )
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x, *state_inputs], [y, *state_outputs]),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    proto.ir_version = 10
    shape = [size if isinstance(size, int) else -1 for size in sizes]
    entries = [
        {"input": state, "output": f"{state}:next", "dtype": name, "shape": shape, "initial": initial}
        for state in states
    ]
    helper.set_model_props(proto, {PREFIX + "state": json.dumps(entries)})
    return bytes(proto.SerializeToString())


def identity_session(dtype: Any, sizes: Sequence[Any] | None, *names: str) -> Session:
    """Return a session whose outputs are its inputs."""
    ports = [[helper.make_tensor_value_info(name + end, dtype, sizes) for name in names] for end in ("", " out")]
    nodes = [helper.make_node("Identity", [name], [f"{name} out"]) for name in names]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ports[0], ports[1]), opset_imports=[helper.make_opsetid("", 21)]
    )
    proto.ir_version = 10
    return Session(proto.SerializeToString())


@pytest.mark.parametrize("wrong_shape", [(7, 3, 2), (7, 2, 5), (7, 3), (7, 3, 5, 1)])
def test_input_must_match_fixed_dimensions(wrong_shape: tuple[int, ...]) -> None:
    session = identity_session(TensorProto.FLOAT, ("n", 3, 5), "x")
    assert session.run({"x": np.zeros((7, 3, 5), np.float32)})["x out"].shape == (7, 3, 5)
    with pytest.raises(ValueError, match=r"input 'x' is float32 \[n, 3, 5\]; the array has shape"):
        session.run({"x": np.zeros(wrong_shape, np.float32)})


def test_port_text_shows_dynamic_dimensions() -> None:
    assert str(Port("x", "float", (None, "n", 3))) == "float32 [?, n, 3]"
    assert str(Port("x", "string", ())) == "string []"


def test_quantization_of_a_session_equals_that_of_the_report() -> None:
    conversion = otp.convert("examples/digits_int8.tflite")
    session = Session(conversion.proto.SerializeToString())
    for ports, graph_values in (
        (session.inputs, conversion.report.inputs),
        (session.outputs, conversion.report.outputs),
    ):
        for port, graph_value in zip(ports, graph_values, strict=True):
            assert port.scale
            for name in ("scale", "zero_point", "axis", "mean", "std"):
                assert getattr(port, name) == getattr(graph_value, name)


def test_session_uses_given_onnx_runtime_options(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    Session(accumulator("v"), options=options)
    assert (tmp_path / "optimized.onnx").is_file()


def test_repr_names_up_to_three_inputs_and_outputs() -> None:
    text = repr(identity_session(TensorProto.FLOAT, (2,), "a", "b", "c", "d"))
    assert text == "<Session: a, b, c → a out, b out, c out; no states>"


def test_returns_bfloat16_results_for_float_inputs() -> None:
    ports = [
        [helper.make_tensor_value_info(name, dtype, [2])]
        for name, dtype in (("x", TensorProto.FLOAT), ("y", TensorProto.BFLOAT16))
    ]
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    proto = helper.make_model(helper.make_graph([node], "g", *ports), opset_imports=[helper.make_opsetid("", 21)])
    proto.ir_version = 10
    result = Session(proto.SerializeToString()).run({"x": X})["y"]
    assert (result.dtype, result.tolist()) == (np.dtype(ml_dtypes.bfloat16), [1, 2])


# --- states -----------------------------------------------------------------------------------


def test_new_stream_and_omitted_states_start_from_initial_values() -> None:
    session = Session(accumulator("v", "w"))
    session.run({"x": X})
    assert session.stream().run({"x": X})["y"].tolist() == [11, 12]
    session.restore({"v": X})
    assert session.run({"x": X})["y"].tolist() == [7, 9]


def test_save_and_restore_copy_states() -> None:
    session, x = Session(accumulator("v")), X.copy()
    session.restore({"v": x})
    x[:] = 99
    saved_states = session.save()
    saved_states["v"][:] = 99
    assert session.run({"x": X})["y"].tolist() == [2, 4]
    session.save()["v"][:] = 99
    assert session.run({"x": X})["y"].tolist() == [4, 8]


def test_session_saves_only_states_of_its_model() -> None:
    first = Session(accumulator("v", "w"))
    second = Session(accumulator("v"), states_of=first)
    assert first.run({"x": X})["y"].tolist() == [11, 12]
    assert {*second.save()} == {"v"}
    assert second.run({"x": X})["y"].tolist() == [12, 14]
    assert {*first.save()} == {"v", "w"}


def test_rejects_sharing_a_state_of_different_dtype() -> None:
    with pytest.raises(
        ValueError, match=r"state 'v' is float64 \[2\], but in the session of states_of it is float32 \[2\]"
    ):
        Session(accumulator("v", dtype=TensorProto.DOUBLE), states_of=Session(accumulator("v")))


def test_carries_bfloat16_states_with_float_inputs() -> None:
    session = Session(accumulator("v", dtype=TensorProto.BFLOAT16))
    assert [session.run({"x": X})["y"].tolist() for _ in range(3)] == [[6, 7], [12, 14], [24, 28]]


def test_dynamic_state_starts_with_size_1() -> None:
    session = Session(accumulator("v", sizes=("n", 2)))
    assert session.run({"x": np.ones((3, 2), np.float32)})["y"].tolist() == [[6, 6]] * 3
    assert session.save()["v"].shape == (3, 2)


# --- inputs -----------------------------------------------------------------------------------


def test_names_all_missing_inputs() -> None:
    session = identity_session(TensorProto.FLOAT, [2], "a", "b", "c")
    with pytest.raises(ValueError, match=r"no array for 'a', 'c'; the model's inputs are 'a', 'b', 'c'"):
        session.run({"b": X})


def test_input_of_unknown_rank_accepts_any_shape() -> None:
    session = identity_session(TensorProto.FLOAT, None, "a")
    for shape in ((), (3,), (2, 3, 5)):
        assert session.run({"a": np.ones(shape, np.float32)})["a out"].shape == shape


def test_rejects_numbers_beyond_the_dtype() -> None:
    with pytest.raises(ValueError, match=r"input 'a' is int32 \[1\]; 1099511627776 is outside its range"):
        identity_session(TensorProto.INT32, [1], "a").run({"a": [2**40]})


def test_strings_may_be_an_array_of_bytes() -> None:
    session = identity_session(TensorProto.STRING, [2], "a")
    assert session.run({"a": np.array([b"one", b"two"])})["a out"].tolist() == ["one", "two"]


def test_later_runs_leave_earlier_results_unchanged() -> None:
    session = Session(accumulator("a"))
    first = session.run({"x": X})["y"]
    copy = first.copy()
    session.run({"x": 3 * X})
    np.testing.assert_array_equal(first, copy)


def test_reset_restores_initial_states() -> None:
    session = Session(accumulator("a", "b"))
    first = session.run({"x": X})["y"]
    session.run({"x": X})
    session.reset()
    np.testing.assert_array_equal(session.run({"x": X})["y"], first)


def test_accepts_arrays_of_any_memory_order() -> None:
    session = identity_session(TensorProto.FLOAT, (2, 3), "a")
    array = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(session.run({"a": array})["a out"], array)
