"""Metadata is read back unchanged; foreign text is reported or ignored."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from onnx_tflite_plugin.graph import metadata, model_metadata, node_metadata, value_metadata
from onnx_tflite_plugin.graph.metadata import PREFIX
from onnx_tflite_plugin.graph.model_metadata import CarriedState, Part
from onnx_tflite_plugin.graph.tensor_value import TensorValue

MODEL_KEYS = ("state", "signature", "part", "digest", "source")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("order", [None, *permutations(range(3)), (1, 3, 2), (2, -1, 1, 0), (3, -1, 1), (-1,)])
def test_tensor_metadata_restores_layout_and_dtype(order: tuple[int, ...] | None, dtype: str) -> None:
    shape = {(1, 3, 2): (1, 2, 5, 3), (3, -1, 1): (1, 2, 1, 3), (-1,): ()}.get(order or (), (2, 5, 3))
    array = (np.arange(np.prod(shape)).reshape(shape) % 120 - (dtype == "int8") * 60).astype(dtype)
    shift = {"int8": 128, "uint8": -128}.get(dtype, 0)
    value = TensorValue("v", 0, 0, order, shift)
    stored = value.apply(array)
    assert stored.dtype == {"int8": "uint8", "uint8": "int8"}.get(dtype, dtype)
    expected = np.squeeze(array.astype(np.int64) + shift)
    axes = [axis for axis in order or range(array.ndim) if axis >= 0 and array.shape[axis] > 1]
    ranks = {axis: k for k, axis in enumerate(sorted(axes))}
    np.testing.assert_array_equal(np.squeeze(stored), expected.transpose([ranks[axis] for axis in axes]))
    assert stored.ndim == (array.ndim if order is None else len(order))
    restored = value.restore(stored, array.dtype)
    assert restored is not None
    assert restored.dtype == array.dtype
    np.testing.assert_array_equal(np.squeeze(restored), np.squeeze(array))
    if order is not None and -1 not in order and len(order) == array.ndim:
        assert restored.shape == array.shape
    if order is not None:
        assert value.restore(stored[None], array.dtype) is None


@pytest.mark.parametrize(
    ("channels", "text"),
    [
        ([0, 1, 2, -1], "0:3,:1"),
        ([2, 0, 1], "2:1,0:2"),
        ([0, 1, 2, 1, 2, -1, -1], "0:3,1:2,:2"),
        ([-1, 1, -1, 0, 2], ":1,1:1,:1,0:1,2:1"),
    ],
)
def test_metadata_restores_added_copied_and_reordered_channels(channels: list[int], text: str) -> None:
    entries: dict[str, str] = {}
    value_metadata.write_tensor(entries, 0, 7, order="0,3,1,2")
    value_metadata.write_channels(entries, channels)
    assert entries[PREFIX + "channels"] == text
    value = value_metadata.read_tensor("v", entries)
    assert value is not None
    array = np.arange(1, 2 * 5 * 7 * 3 + 1, dtype=np.float32).reshape(2, 5, 7, 3)
    stored = value.apply(array)
    assert stored.shape == (2, len(channels), 5, 7)
    for k, channel in enumerate(channels):
        np.testing.assert_array_equal(stored[:, k], array[..., channel] if channel >= 0 else 0)
    restored = value.restore(stored, array.dtype)
    assert restored is not None
    np.testing.assert_array_equal(restored, array)


def test_value_does_not_fit_a_tensor_with_other_channels() -> None:
    value = TensorValue("v", 0, 0, (0, 3, 1, 2), channels=(0, 1, 2, -1))
    assert value.can_hold(np.zeros((2, 5, 7, 3)))
    assert not value.can_hold(np.zeros((2, 3, 5, 7)))
    assert not value.can_hold(np.zeros((2, 3)))
    assert not TensorValue("v", 0, 0, (1, 0)).can_hold(np.zeros((2, 3, 5)))
    assert TensorValue("v", 0, 0, (2, -1, 1)).can_hold(np.zeros((1, 3, 5)))
    assert TensorValue("v", 0, 0).can_hold(np.zeros((2, 3)))


def test_channels_that_move_twice_are_those_of_the_tensor() -> None:
    entries: dict[str, str] = {}
    value_metadata.write_tensor(entries, 0, 7)
    value_metadata.write_channels(entries, [0, 1, 2, -1])
    value_metadata.write_channels(entries, [3, 2, 0, 1, -1])
    assert entries[PREFIX + "channels"] == ":1,2:1,0:2,:1"


@pytest.mark.parametrize(
    ("initial", "expected"),
    [(None, [[0, 0, 0], [0, 0, 0]]), (7, [[7] * 3] * 2), ([1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]])],
)
def test_initial_state_is_zeros_a_scalar_or_a_flat_list(initial: object, expected: list[list[int]]) -> None:
    entries: dict[str, str] = {}
    model_metadata.write_states(entries, [CarriedState("in", "out", "int32", (2, 3))])
    (state,) = model_metadata.read_states(entries)
    assert state == CarriedState("in", "out", "int32", (2, 3))
    np.testing.assert_array_equal(state._replace(initial=initial).initial_value(), np.asarray(expected, np.int32))
    assert state.initial_value().dtype == np.int32


def test_reset_states_are_recorded_in_metadata() -> None:
    entries: dict[str, str] = {}
    model_metadata.write_states(entries, [])
    assert entries == {}
    assert (model_metadata.read_states(entries), model_metadata.has_reset_states(entries)) == ((), False)
    model_metadata.write_states(entries, [], reset=True)
    assert (model_metadata.read_states(entries), model_metadata.has_reset_states(entries)) == ((), True)


@pytest.mark.parametrize(
    ("signature", "part"), [(None, None), ("serve", None), (None, Part((2,), (5, 7))), ("serve", Part((), (3,)))]
)
def test_origin_is_read_as_written(signature: str | None, part: Part | None) -> None:
    entries: dict[str, str] = {}
    model_metadata.write_origin(entries, signature, part)
    assert len(entries) == (signature is not None) + (part is not None)
    assert model_metadata.read_origin(entries) == (signature, part)


def test_remove_origin_keeps_foreign_metadata() -> None:
    entries = {"author": "somebody", PREFIX + "weights": "{}", **{PREFIX + key: "x" for key in MODEL_KEYS}}
    model_metadata.remove_origin(entries)
    assert entries == {"author": "somebody", PREFIX + "weights": "{}"}
    metadata.remove_converter_entries(entries)
    assert entries == {"author": "somebody"}


@pytest.mark.parametrize(
    "text", ["", "[", "3", '{"inputs": [1]}', '[{"input": "x"}]', '{"inputs": ["a"], "outputs": []}']
)
def test_malformed_metadata_is_reported_or_ignored(text: str) -> None:
    for key, read_metadata in (("state", model_metadata.read_states), ("part", model_metadata.read_origin)):
        with pytest.raises(ValueError, match=rf"the model's {PREFIX}{key} cannot be read"):
            read_metadata({PREFIX + key: text})
    if not text.startswith("{"):
        assert model_metadata.read_weights({PREFIX + "weights": text}) == {}
        with pytest.raises(ValueError):  # noqa: PT011
            model_metadata.read_author_metadata({PREFIX + "source": text})


def test_empty_authored_entries_are_dropped() -> None:
    entries: dict[str, str] = {}
    model_metadata.write_author_metadata(entries, {"name": "", "inputs": []})
    assert (entries, model_metadata.read_author_metadata(entries)) == ({}, {})
    model_metadata.write_author_metadata(entries, {"name": "digits", "license": ""})
    assert model_metadata.read_author_metadata(entries) == {"name": "digits"}
    model_metadata.write_weights(entries, {"int8": 3})
    assert model_metadata.read_weights(entries) == {"int8": 3}
    assert model_metadata.read_weights({}) == {}


def test_node_metadata_names_operator_handler_and_pack() -> None:
    entries = node_metadata.node_props([(0, 3), (2, 5), (0, 4)], "handler", "pack", "name")
    assert node_metadata.source_operators(entries) == ((0, 3), (2, 5), (0, 4))
    assert node_metadata.top_level_operators(entries) == (3, 4)
    assert node_metadata.source_handler(entries) == ("handler", "pack")
    assert (
        node_metadata.source_operators({}),
        node_metadata.top_level_operators({}),
        node_metadata.source_handler({}),
    ) == (
        (),
        (),
        ("", ""),
    )
    assert metadata.converter_entries({**entries, "other": "x"}) == entries


@pytest.mark.parametrize("later_fields", [{}, {"encoding": "float"}, {"order": "0,2,-1,1"}, {"shift": 128}])
def test_tensor_metadata_replaces_earlier_entries(later_fields: dict[str, object]) -> None:
    entries: dict[str, str] = {"other": "x"}
    value_metadata.write_tensor(entries, 3, 5, encoding="float", order="1,0", shift=7)
    value_metadata.write_tensor(entries, 2, 11, **later_fields)  # type: ignore[arg-type]
    order = (0, 2, -1, 1) if "order" in later_fields else None
    encoding, shift = str(later_fields.get("encoding", "stored")), int(later_fields.get("shift", 0))  # type: ignore[call-overload]
    assert value_metadata.read_tensor("v", entries) == TensorValue("v", 2, 11, order, shift, encoding)
    assert value_metadata.holds_tensor(entries)
    assert not value_metadata.holds_tensor({"other": "x"})
    assert value_metadata.read_tensor("v", {}) is None
    assert value_metadata.read_tensor("v", {**entries, PREFIX + "order": "0/1x2,1/3x7"}) is None
