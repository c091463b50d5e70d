"""A value's metadata suffices to convert the tensor's array, and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.graph import metadata, model_metadata, node_metadata
from onnx_tflite_plugin.graph.tensor_value import TensorValue


@pytest.mark.parametrize(
    ("shape", "order", "expected_shape"),
    [
        ((2, 5, 7, 3), (0, 3, 1, 2), (2, 3, 5, 7)),
        ((2, 5, 7), (2, 0, 1), (7, 2, 5)),
        ((2, 1, 7, 3), (0, 3, 2), (2, 3, 7)),
        ((2, 7, 3), (0, 2, -1, 1), (2, 3, 1, 7)),
        ((2, 7, 3), None, (2, 7, 3)),
    ],
)
@pytest.mark.parametrize("shift", [0, 128])
def test_restore_undoes_permutation_and_shift(
    shape: tuple[int, ...], order: tuple[int, ...] | None, expected_shape: tuple[int, ...], shift: int
) -> None:
    value = TensorValue("v", 0, 0, order, shift)
    array = np.arange(-100, -100 + int(np.prod(shape))).clip(-128, 127).astype(np.int8).reshape(shape)
    stored = value.apply(array)
    assert stored.shape == expected_shape
    assert stored.dtype == (np.uint8 if shift else np.int8)
    assert int(stored.reshape(-1)[0]) == int(array.reshape(-1)[0]) + shift
    restored = value.restore(stored, np.dtype(np.int8))
    assert restored is not None
    np.testing.assert_array_equal(restored.reshape(shape), array)


def test_remove_origin_drops_metadata_of_the_whole_model() -> None:
    entries = {"author's": "kept"}
    model_metadata.write_states(entries, [model_metadata.CarriedState("h", "h:next", "float32", (2, 3))])
    model_metadata.write_origin(entries, "serving", model_metadata.Part((2,), (3, 5)))
    model_metadata.write_author_metadata(entries, {"name": "whole"})
    model_metadata.write_weights(entries, {"int8": 7})
    model_metadata.remove_origin(entries)
    assert entries.pop("author's") == "kept"
    assert model_metadata.read_weights(entries) == {"int8": 7}
    assert len(entries) == 1


def test_node_of_an_unknown_operator_names_its_source() -> None:
    model = Net()
    model.output(model.call("NEG", [model.call("CUSTOM.Unknown", [tensor(2, 3)], tensor(2, 3))], tensor(2, 3)))
    node, _ = convert(model.build(), keep_unknown=True).proto.graph.node
    assert (node.op_type, node_metadata.top_level_operators(metadata.props(node.metadata_props))) == ("Unknown", (0,))


def test_conversion_of_a_graph_output_belongs_to_the_operator_before_it() -> None:
    file = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
    nodes = otp.convert(file, optimize="readable").proto.graph.node
    operators = [{entry.key: entry.value for entry in node.metadata_props} for node in nodes[-2:]]
    assert [entries["onnx_tflite_plugin.operators"] for entries in operators] == ["0:6", "0:6"]
