"""Constants with one entry per axis, and axis numbers, must have the right size."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify


def sliced_image_model(begin: Array, size: Array) -> bytes:
    """Return a model with a SLICE of a 3 x 5 image."""
    model = ModelBuilder()
    g = model.main
    operands = [g.input("x", (3, 5)), g.constant("begin", begin), g.constant("size", size)]
    g.operator("SLICE", operands, [y := g.tensor("y", (2, 3))])
    g.output(y)
    return model.build()


def test_slice_with_one_entry_per_axis_is_accepted() -> None:
    data = sliced_image_model(np.int32([1, 2]), np.int32([2, 3]))
    assert verify(data, otp.convert(data)).ok


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (np.int32(1), "of shape [] has fewer entries than the 2 axes"),
        (np.int32([1]), "of shape [1] has fewer entries than the 2 axes"),
        (np.int32([1, 2, 0]), "of shape [3] has more entries than the 2 axes"),
    ],
    ids=["none", "too few", "too many"],
)
@pytest.mark.parametrize("name", ["begin", "size"])
def test_constant_with_wrong_entries_is_refused(name: str, entries: Array, text: str) -> None:
    operands = {"begin": np.int32([1, 2]), "size": np.int32([2, 3])}
    with pytest.raises(InvalidModel) as refused:
        otp.convert(sliced_image_model(**{**operands, name: entries}))
    slot = 1 if name == "begin" else 2
    assert any(
        problem.where == f"subgraphs[0].operators[0].inputs[{slot}]" and text in problem.reason
        for problem in refused.value.problems
    )


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_axis_numbers_must_be_integers(dtype: str) -> None:
    model = ModelBuilder()
    g = model.main
    operands = [g.input("x", (3, 5)), g.constant("axis", np.ones(1, dtype))]
    g.operator("REVERSE_V2", operands, [y := g.tensor("y", (3, 5))])
    g.output(y)
    with pytest.raises(InvalidModel, match=f"'axis' is {dtype}, but axis numbers must be int32 or int64"):
        otp.convert(model.build())
