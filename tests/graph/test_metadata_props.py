"""Tests that metadata is read back unchanged, and that foreign text is reported or ignored."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from onnx_tflite_plugin.graph import metadata
from onnx_tflite_plugin.graph.metadata import PREFIX, CarriedState, Part, TensorValue

OF_WHOLE_MODELS = ("state", "signature", "part", "source")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("order", [None, *permutations(range(3)), (1, 3, 2), (2, -1, 1, 0), (3, -1, 1), (-1,)])
def test_tensor_metadata_restores_layout_and_dtype(order: tuple[int, ...] | None, dtype: str) -> None:
    shape = {(1, 3, 2): (1, 2, 5, 3), (3, -1, 1): (1, 2, 1, 3), (-1,): ()}.get(order or (), (2, 5, 3))
    array = (np.arange(np.prod(shape)).reshape(shape) % 120 - (dtype == "int8") * 60).astype(dtype)
    shift = {"int8": 128, "uint8": -128}.get(dtype, 0)
    value = TensorValue("v", 0, 0, order, shift)
    held = value.apply(array)
    assert held.dtype == {"int8": "uint8", "uint8": "int8"}.get(dtype, dtype)
    wanted = np.squeeze(array.astype(np.int64) + shift)
    axes = [axis for axis in order or range(array.ndim) if axis >= 0 and array.shape[axis] > 1]
    ranks = {axis: k for k, axis in enumerate(sorted(axes))}
    np.testing.assert_array_equal(np.squeeze(held), wanted.transpose([ranks[axis] for axis in axes]))
    assert held.ndim == (array.ndim if order is None else len(order))
    back = value.restore(held, array.dtype)
    assert back is not None
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(np.squeeze(back), np.squeeze(array))
    if order is not None and -1 not in order and len(order) == array.ndim:
        assert back.shape == array.shape
    if order is not None:
        assert value.restore(held[None], array.dtype) is None


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
    given: dict[str, str] = {}
    metadata.write_tensor(given, 0, 7, order="0,3,1,2")
    metadata.write_channels(given, channels)
    assert given[PREFIX + "channels"] == text
    value = metadata.read_tensor("v", given)
    assert value is not None
    array = np.arange(1, 2 * 5 * 7 * 3 + 1, dtype=np.float32).reshape(2, 5, 7, 3)
    held = value.apply(array)
    assert held.shape == (2, len(channels), 5, 7)
    for k, channel in enumerate(channels):
        np.testing.assert_array_equal(held[:, k], array[..., channel] if channel >= 0 else 0)
    back = value.restore(held, array.dtype)
    assert back is not None
    np.testing.assert_array_equal(back, array)


def test_value_does_not_fit_a_tensor_with_other_channels() -> None:
    value = TensorValue("v", 0, 0, (0, 3, 1, 2), channels=(0, 1, 2, -1))
    assert value.can_hold(np.zeros((2, 5, 7, 3)))
    assert not value.can_hold(np.zeros((2, 3, 5, 7)))
    assert not value.can_hold(np.zeros((2, 3)))
    assert not TensorValue("v", 0, 0, (1, 0)).can_hold(np.zeros((2, 3, 5)))
    assert TensorValue("v", 0, 0, (2, -1, 1)).can_hold(np.zeros((1, 3, 5)))
    assert TensorValue("v", 0, 0).can_hold(np.zeros((2, 3)))


def test_channels_that_move_twice_are_those_of_the_tensor() -> None:
    given: dict[str, str] = {}
    metadata.write_tensor(given, 0, 7)
    metadata.write_channels(given, [0, 1, 2, -1])
    metadata.write_channels(given, [3, 2, 0, 1, -1])
    assert given[PREFIX + "channels"] == ":1,2:1,0:2,:1"


@pytest.mark.parametrize(
    ("initial", "first"),
    [(None, [[0, 0, 0], [0, 0, 0]]), (7, [[7] * 3] * 2), ([1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]])],
)
def test_initial_state_is_zeros_a_scalar_or_a_flat_list(initial: object, first: list[list[int]]) -> None:
    given: dict[str, str] = {}
    metadata.write_states(given, [CarriedState("in", "out", "int32", (2, 3))])
    (state,) = metadata.read_states(given)
    assert state == CarriedState("in", "out", "int32", (2, 3))
    np.testing.assert_array_equal(state._replace(initial=initial).initial_value(), np.asarray(first, np.int32))
    assert state.initial_value().dtype == np.int32


def test_reset_states_are_recorded_in_metadata() -> None:
    given: dict[str, str] = {}
    metadata.write_states(given, [])
    assert given == {}
    assert (metadata.read_states(given), metadata.has_reset_states(given)) == ((), False)
    metadata.write_states(given, [], reset=True)
    assert (metadata.read_states(given), metadata.has_reset_states(given)) == ((), True)


@pytest.mark.parametrize(
    ("signature", "part"), [(None, None), ("serve", None), (None, Part((2,), (5, 7))), ("serve", Part((), (3,)))]
)
def test_origin_is_read_as_written(signature: str | None, part: Part | None) -> None:
    given: dict[str, str] = {}
    metadata.write_origin(given, signature, part)
    assert len(given) == (signature is not None) + (part is not None)
    assert metadata.read_origin(given) == (signature, part)


def test_remove_origin_keeps_foreign_metadata() -> None:
    given = {"author": "somebody", PREFIX + "weights": "{}", **{PREFIX + key: "x" for key in OF_WHOLE_MODELS}}
    metadata.remove_origin(given)
    assert given == {"author": "somebody", PREFIX + "weights": "{}"}
    metadata.remove_own_entries(given)
    assert given == {"author": "somebody"}


@pytest.mark.parametrize(
    "text", ["", "[", "3", '{"inputs": [1]}', '[{"input": "x"}]', '{"inputs": ["a"], "outputs": []}']
)
def test_malformed_metadata_is_reported_or_ignored(text: str) -> None:
    for key, read in (("state", metadata.read_states), ("part", metadata.read_origin)):
        with pytest.raises(ValueError, match=rf"the model's {PREFIX}{key} cannot be read"):
            read({PREFIX + key: text})
    if not text.startswith("{"):
        assert metadata.read_weights({PREFIX + "weights": text}) == {}
        with pytest.raises(ValueError):  # noqa: PT011
            metadata.read_authored({PREFIX + "source": text})


def test_empty_authored_entries_are_dropped() -> None:
    given: dict[str, str] = {}
    metadata.write_authored(given, {"name": "", "inputs": []})
    assert (given, metadata.read_authored(given)) == ({}, {})
    metadata.write_authored(given, {"name": "digits", "license": ""})
    assert metadata.read_authored(given) == {"name": "digits"}
    metadata.write_weights(given, {"int8": 3})
    assert metadata.read_weights(given) == {"int8": 3}
    assert metadata.read_weights({}) == {}


def test_node_metadata_names_operator_handler_and_pack() -> None:
    given = metadata.node_props([(0, 3), (2, 5), (0, 4)], "handler", "pack", "name")
    assert metadata.source_operators(given) == ((0, 3), (2, 5), (0, 4))
    assert metadata.converted_operators(given) == (3, 4)
    assert metadata.source_handler(given) == ("handler", "pack")
    assert (metadata.source_operators({}), metadata.converted_operators({}), metadata.source_handler({})) == (
        (),
        (),
        ("", ""),
    )
    assert metadata.own_entries({**given, "other": "x"}) == given


@pytest.mark.parametrize("written", [{}, {"form": "float"}, {"order": "0,2,-1,1"}, {"shift": 128}])
def test_tensor_metadata_replaces_earlier_entries(written: dict[str, object]) -> None:
    given: dict[str, str] = {"other": "x"}
    metadata.write_tensor(given, 3, 5, form="float", order="1,0", shift=7)
    metadata.write_tensor(given, 2, 11, **written)  # type: ignore[arg-type]
    order = (0, 2, -1, 1) if "order" in written else None
    form, shift = str(written.get("form", "stored")), int(written.get("shift", 0))  # type: ignore[call-overload]
    assert metadata.read_tensor("v", given) == TensorValue("v", 2, 11, order, shift, form)
    assert metadata.holds_tensor(given)
    assert not metadata.holds_tensor({"other": "x"})
    assert metadata.read_tensor("v", {}) is None
    assert metadata.read_tensor("v", {**given, PREFIX + "order": "0/1x2,1/3x7"}) is None
