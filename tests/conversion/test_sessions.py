"""runtime.Session on models of a few nodes: whose the states are, and what is taken for an input."""

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

from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.runtime import Port, Session

X = np.array([1, 2], np.float32)


def adding(*states: str, dtype: Any = TensorProto.FLOAT, sizes: Sequence[Any] = (2,), initial: Any = 5) -> bytes:
    """y is x and the sum of the states, each of which becomes twice itself and x."""
    name = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.BFLOAT16: "bfloat16"}[dtype]
    nodes = []
    for state in states:
        nodes.append(helper.make_node("Cast", [state], [f"{state}:real"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Sum", [f"{state}:real", f"{state}:real", "x"], [f"{state}:sum"]))
        nodes.append(helper.make_node("Cast", [f"{state}:sum"], [f"{state}:next"], to=dtype))
    nodes.append(helper.make_node("Sum", ["x", *(f"{state}:real" for state in states)], ["y"]))
    x, y = (helper.make_tensor_value_info(port, TensorProto.FLOAT, sizes) for port in ("x", "y"))
    before, after = (
        [helper.make_tensor_value_info(state + end, dtype, sizes) for state in states] for end in ("", ":next")
    )
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x, *before], [y, *after]), opset_imports=[helper.make_opsetid("", 21)]
    )
    proto.ir_version = 10
    shape = [size if isinstance(size, int) else -1 for size in sizes]
    reported = [
        {"input": state, "output": f"{state}:next", "dtype": name, "shape": shape, "initial": initial}
        for state in states
    ]
    helper.set_model_props(proto, {PREFIX + "state": json.dumps(reported)})
    return bytes(proto.SerializeToString())


def handing_on(dtype: Any, sizes: Sequence[Any] | None, *names: str) -> Session:
    """Every input is an output."""
    ports = [[helper.make_tensor_value_info(name + end, dtype, sizes) for name in names] for end in ("", " out")]
    nodes = [helper.make_node("Identity", [name], [f"{name} out"]) for name in names]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ports[0], ports[1]), opset_imports=[helper.make_opsetid("", 21)]
    )
    proto.ir_version = 10
    return Session(proto.SerializeToString())


@pytest.mark.parametrize("wrong", [(7, 3, 2), (7, 2, 5), (7, 3), (7, 3, 5, 1)])
def test_every_size_that_is_fixed_must_be_the_inputs(wrong: tuple[int, ...]) -> None:
    session = handing_on(TensorProto.FLOAT, ("n", 3, 5), "x")
    assert session.run({"x": np.zeros((7, 3, 5), np.float32)})["x out"].shape == (7, 3, 5)
    with pytest.raises(ValueError, match=r"input 'x' is float32 \[n, 3, 5\]; the array has shape"):
        session.run({"x": np.zeros(wrong, np.float32)})


def test_sizes_that_a_run_tells_are_shown_as_such() -> None:
    assert str(Port("x", "float", (None, "n", 3))) == "float32 [?, n, 3]"
    assert str(Port("x", "string", ())) == "string []"


def test_options_of_onnx_runtime_are_those_that_are_given(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    Session(adding("v"), options=options)
    assert (tmp_path / "optimized.onnx").is_file()


def test_a_session_names_three_of_its_inputs_and_outputs() -> None:
    text = repr(handing_on(TensorProto.FLOAT, (2,), "a", "b", "c", "d"))
    assert text == "<Session: a, b, c → a out, b out, c out; no states>"


def test_results_of_a_dtype_that_numpy_lacks_come_of_inputs_that_it_has() -> None:
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
    session = Session(adding("v", "w"))
    session.run({"x": X})
    assert session.stream().run({"x": X})["y"].tolist() == [11, 12]
    session.restore({"v": X})
    assert session.run({"x": X})["y"].tolist() == [7, 9]


def test_what_is_saved_or_was_restored_is_a_copy() -> None:
    session, given = Session(adding("v")), X.copy()
    session.restore({"v": given})
    given[:] = 99
    kept = session.save()
    kept["v"][:] = 99
    assert session.run({"x": X})["y"].tolist() == [2, 4]
    session.save()["v"][:] = 99
    assert session.run({"x": X})["y"].tolist() == [4, 8]


def test_a_session_has_the_states_of_its_own_model_alone() -> None:
    first = Session(adding("v", "w"))
    second = Session(adding("v"), states_of=first)
    assert first.run({"x": X})["y"].tolist() == [11, 12]
    assert {*second.save()} == {"v"}
    assert second.run({"x": X})["y"].tolist() == [12, 14]
    assert {*first.save()} == {"v", "w"}


def test_a_state_of_another_dtype_is_not_shared() -> None:
    with pytest.raises(
        ValueError, match=r"state 'v' is float64 \[2\], but in the session to share it with it is float32 \[2\]"
    ):
        Session(adding("v", dtype=TensorProto.DOUBLE), states_of=Session(adding("v")))


def test_states_of_a_dtype_that_numpy_lacks_are_carried_beside_floats() -> None:
    session = Session(adding("v", dtype=TensorProto.BFLOAT16))
    assert [session.run({"x": X})["y"].tolist() for _ in range(3)] == [[6, 7], [12, 14], [24, 28]]


def test_a_state_of_dynamic_sizes_begins_with_sizes_of_1() -> None:
    session = Session(adding("v", sizes=("n", 2)))
    assert session.run({"x": np.ones((3, 2), np.float32)})["y"].tolist() == [[6, 6]] * 3
    assert session.save()["v"].shape == (3, 2)


# --- inputs -----------------------------------------------------------------------------------


def test_each_input_that_is_missing_is_named() -> None:
    session = handing_on(TensorProto.FLOAT, [2], "a", "b", "c")
    with pytest.raises(ValueError, match=r"no array for 'a', 'c'; the model's inputs are 'a', 'b', 'c'"):
        session.run({"b": X})


def test_an_input_of_unknown_rank_takes_any_shape() -> None:
    session = handing_on(TensorProto.FLOAT, None, "a")
    for shape in ((), (3,), (2, 3, 5)):
        assert session.run({"a": np.ones(shape, np.float32)})["a out"].shape == shape


def test_a_number_beyond_the_dtype_is_refused_as_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"input 'a' is int32 \[1\]; the given value cannot be converted"):
        handing_on(TensorProto.INT32, [1], "a").run({"a": [2**40]})


def test_text_may_be_an_array_of_bytes() -> None:
    session = handing_on(TensorProto.STRING, [2], "a")
    assert session.run({"a": np.array([b"one", b"two"])})["a out"].tolist() == ["one", "two"]


def test_later_runs_leave_earlier_results_unchanged() -> None:
    session = Session(adding("a"))
    first = session.run({"x": X})["y"]
    kept = first.copy()
    session.run({"x": 3 * X})
    np.testing.assert_array_equal(first, kept)


def test_state_starts_anew_after_a_reset_between_runs() -> None:
    session = Session(adding("a", "b"))
    first = session.run({"x": X})["y"]
    session.run({"x": X})
    session.reset()
    np.testing.assert_array_equal(session.run({"x": X})["y"], first)


def test_array_of_any_memory_order_is_accepted() -> None:
    session = handing_on(TensorProto.FLOAT, (2, 3), "a")
    array = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(session.run({"a": array})["a out"], array)
