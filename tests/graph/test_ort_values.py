"""Tests of unique names, metadata of values, and dtypes that NumPy lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_tflite_plugin.graph import metadata, model_metadata, node_metadata, value_metadata
from onnx_tflite_plugin.graph.model_metadata import CarriedState, Part
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.graph.ort_values import dtype_of, from_value, to_value
from onnx_tflite_plugin.graph.tensor_value import TensorValue


def test_unique_names_add_unused_numbers() -> None:
    names = UniqueNames()
    requested = ["a", "a#1", "a", "a", "b", "a#2", "a#1"]
    assert [names.unique(name) for name in requested] == ["a", "a#1", "a#2", "a#3", "b", "a#2#1", "a#1#1"]


NEEDS_INT2 = pytest.mark.needs("onnxruntime", "1.24", "int2")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("int4", ml_dtypes.int4),
        ("uint4", ml_dtypes.uint4),
        pytest.param("int2", ml_dtypes.int2, marks=NEEDS_INT2),
        pytest.param("uint2", ml_dtypes.uint2, marks=NEEDS_INT2),
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8e5m2", ml_dtypes.float8_e5m2),
        ("float", np.float32),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 7)])
def test_arrays_survive_the_conversion_to_ort_values(name: str, dtype: Any, shape: tuple[int, ...]) -> None:
    numbers = np.arange(int(np.prod(shape))) % (4 if "2" in name[-1] and "int" in name else 13)
    array = (numbers - (0 if name.startswith("u") else 2)).astype(dtype).reshape(shape)
    restored = from_value(to_value(array, name), name)
    assert (restored.dtype, restored.shape) == (array.dtype, shape)
    assert restored.tobytes() == array.tobytes()


def test_dtype_names_equal_those_of_onnx_runtime() -> None:
    assert dtype_of(SimpleNamespace(type="tensor(int4)")) == "int4"


class TestMetadata:
    def test_states_are_read_as_written(self) -> None:
        states = (CarriedState("in", "out", "float32", (2, -1)), CarriedState("i", "o", "int8", ()))
        entries: dict[str, str] = {}
        model_metadata.write_states(entries, states)
        assert model_metadata.read_states(entries) == states
        assert not model_metadata.has_reset_states(entries)

    def test_reset_states_are_recorded(self) -> None:
        entries: dict[str, str] = {}
        model_metadata.write_states(entries, [])
        assert (entries, model_metadata.read_states(entries), model_metadata.has_reset_states(entries)) == (
            {},
            (),
            False,
        )
        model_metadata.write_states(entries, [], reset=True)
        assert (model_metadata.read_states(entries), model_metadata.has_reset_states(entries)) == ((), True)

    @pytest.mark.parametrize("text", ["{", "[1]", '[{"input": "a"}]', "null"])
    def test_malformed_states_are_rejected(self, text: str) -> None:
        with pytest.raises(ValueError, match="state cannot be read"):
            model_metadata.read_states({metadata.PREFIX + "state": text})

    @pytest.mark.parametrize(
        ("initial", "expected"), [(None, [0, 0, 0]), (2, [2, 2, 2]), ([4], [4, 4, 4]), ([1, 2, 3], [1, 2, 3])]
    )
    def test_initial_state_is_zeros_a_scalar_or_a_list(self, initial: object, expected: list[int]) -> None:
        array = CarriedState("i", "o", "int16", (3, 1), initial).initial_value()
        assert (array.dtype.name, array.shape, array.reshape(-1).tolist()) == ("int16", (3, 1), expected)

    def test_submodel_part_is_read_as_written(self) -> None:
        entries: dict[str, str] = {}
        model_metadata.write_origin(entries, None, None)
        assert entries == {}
        model_metadata.write_origin(entries, "serve", Part((2, 3), (5,)))
        assert model_metadata.read_origin(entries) == ("serve", Part((2, 3), (5,)))
        assert model_metadata.read_origin({}) == (None, None)
        entries[metadata.PREFIX + "part"] = '{"inputs": [1]}'
        with pytest.raises(ValueError, match="part cannot be read"):
            model_metadata.read_origin(entries)

    def test_remove_origin_keeps_the_rest(self) -> None:
        entries = {"theirs": "x"}
        model_metadata.write_weights(entries, {"int8": 3})
        remaining = dict(entries)
        model_metadata.write_states(entries, [], reset=True)
        model_metadata.write_origin(entries, "serve", Part((0,), (1,)))
        model_metadata.write_author_metadata(entries, {"name": "n", "author": ""})
        assert model_metadata.read_author_metadata(entries) == {"name": "n"}
        model_metadata.remove_origin(entries)
        assert entries == remaining
        assert model_metadata.read_weights(entries) == {"int8": 3}
        metadata.remove_converter_entries(entries)
        assert entries == {"theirs": "x"}

    @pytest.mark.parametrize("text", ["{", "[]"])
    def test_malformed_weights_are_ignored(self, text: str) -> None:
        assert model_metadata.read_weights({metadata.PREFIX + "weights": text}) == {}

    def test_node_metadata_names_operator_handler_and_pack(self) -> None:
        entries = node_metadata.node_props([(0, 3), (2, 5)], "FLOOR", "a-pack", "floor")
        assert node_metadata.source_operators(entries) == ((0, 3), (2, 5))
        assert node_metadata.source_handler(entries) == ("FLOOR", "a-pack")
        assert (node_metadata.source_operators({}), node_metadata.source_handler({})) == ((), ("", ""))

    def test_new_tensor_metadata_replaces_the_old(self) -> None:
        entries: dict[str, str] = {}
        value_metadata.write_tensor(entries, 1, 7, encoding="float", order="0,2,1", shift=-128)
        assert value_metadata.read_tensor("v", entries) == TensorValue("v", 1, 7, (0, 2, 1), -128, "float")
        value_metadata.write_tensor(entries, 0, 5)
        assert value_metadata.read_tensor("v", entries) == TensorValue("v", 0, 5)
        assert value_metadata.holds_tensor(entries)
        assert not value_metadata.holds_tensor({})

    @pytest.mark.parametrize("props", [{}, {"tensor": "3"}, {"tensor": "0:3", "order": "0,2*3"}])
    def test_value_without_a_whole_tensor_has_no_tensor_metadata(self, props: dict[str, str]) -> None:
        assert value_metadata.read_tensor("v", {metadata.PREFIX + key: text for key, text in props.items()}) is None
