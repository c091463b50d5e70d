"""Requested sizes of inputs that operators hand to subgraphs, or that meet a state: taken wherever LiteRT takes them."""

from __future__ import annotations

import pytest

import onnx_tflite_plugin as otp
from conformance.case import Case
from conformance.cases import builtin
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.source import read

CASES = {case.id: case for case in builtin()}
LOOP_CONDITION = "plan"

RESIZED = [
    ("WHILE-float32,_a_running_sum", 0),
    ("WHILE-int8,_a_running_sum", 1),
    ("WHILE-values_that_change_places", 0),
    ("WHILE-a_value_that_grows", 0),
    ("WHILE-an_image_between_convolutions", 0),
    ("WHILE-float32,_a_convolution_inside", 0),
    ("IF-float32,_as_it_is_or_added_up", 0),
    ("IF-int8,_as_it_is_or_added_up", 1),
    ("UNIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU", 1),
]


def resized(case: Case, axis: int) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the inputs with one axis twice as long, but for what a loop counts with."""
    shapes = {}
    for tensor in read(case.build()).main.inputs:
        if tensor.rank > axis and tensor.dtype != "bool" and tensor.name != LOOP_CONDITION:
            dims = [size or 1 for size in tensor.dims]
            dims[axis] *= 2
            shapes[tensor.name] = tuple(dims)
    return shapes


@pytest.mark.parametrize(("name", "axis"), RESIZED)
def test_requested_sizes_reach_subgraphs_and_sequences(name: str, axis: int) -> None:
    case = CASES[name]
    shapes = resized(case, axis)
    assert shapes
    conversion = otp.convert(case.build(), input_shape=shapes, verify=True, **case.options)  # type: ignore[arg-type]
    assert conversion.verification is not None
    assert conversion.verification.ok


@pytest.mark.parametrize("name", ["WHILE-float32,_a_running_sum", "WHILE-one_inside_the_other"])
def test_stored_sizes_may_be_requested_with_loops(name: str) -> None:
    data = CASES[name].build()
    shapes = {tensor.name: tensor.shape for tensor in read(data).main.inputs}
    requested = otp.convert(data, input_shape=shapes).proto
    assert requested.SerializeToString() == otp.convert(data).proto.SerializeToString()


def test_dynamic_batch_reaches_the_body_of_a_loop() -> None:
    case = CASES["WHILE-float32,_a_running_sum"]
    conversion = otp.convert(case.build(), input_shape={"x0": ("batch", 3)}, verify=True)
    assert conversion.verification is not None
    assert conversion.verification.ok
    shapes = {value.name: value.shape for value in conversion.model.graph.inputs}
    assert str(shapes["x0"]) == "[batch,3]"


@pytest.mark.parametrize(
    ("name", "axis", "text"),
    [
        ("UNIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU", 0, "would be of shape"),
        ("WHILE-a_variable_that_only_the_body_knows", 0, "reads or writes a state"),
    ],
)
def test_sizes_that_a_state_cannot_take_are_refused(name: str, axis: int, text: str) -> None:
    case = CASES[name]
    with pytest.raises(UnsupportedOperator, match=text):
        otp.convert(case.build(), input_shape=resized(case, axis))
