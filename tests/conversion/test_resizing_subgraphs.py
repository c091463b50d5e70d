"""Requested input shapes of models with subgraphs and states."""

from __future__ import annotations

import pytest

import onnx_tflite_plugin as otp
from conformance.case import Case
from conformance.cases import builtin_cases
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.source import read

CASES = {case.id: case for case in builtin_cases()}
LOOP_CONDITION = "plan"  # name of the input that controls the loop

RESIZED = [
    ("WHILE-float32,_cumulative_sum", 0),
    ("WHILE-int8,_cumulative_sum", 1),
    ("WHILE-rotated_values", 0),
    ("WHILE-value_of_growing_shape", 0),
    ("WHILE-image_between_convolutions", 0),
    ("WHILE-float32,_convolution_in_the_body", 0),
    ("IF-float32,_identity_or_sum", 0),
    ("IF-int8,_identity_or_sum", 1),
    ("UNIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU", 1),
]


def doubled_shapes(case: Case, axis: int) -> dict[str, tuple[int | str, ...]]:
    """Return the input shapes with one axis doubled, except for loop counters."""
    shapes = {}
    for tensor in read(case.build()).main.inputs:
        if tensor.rank > axis and tensor.dtype != "bool" and tensor.name != LOOP_CONDITION:
            dims = [size or 1 for size in tensor.dims]
            dims[axis] *= 2
            shapes[tensor.name] = tuple(dims)
    return shapes


@pytest.mark.parametrize(("name", "axis"), RESIZED)
def test_requested_shapes_reach_subgraphs_and_sequences(name: str, axis: int) -> None:
    case = CASES[name]
    shapes = doubled_shapes(case, axis)
    assert shapes
    conversion = otp.convert(case.build(), input_shape=shapes, verify=True, **case.options)  # type: ignore[arg-type]
    assert conversion.verification is not None
    assert conversion.verification.ok


@pytest.mark.parametrize("name", ["WHILE-float32,_cumulative_sum", "WHILE-nested"])
def test_stored_shapes_may_be_requested_with_loops(name: str) -> None:
    data = CASES[name].build()
    shapes = {tensor.name: tensor.shape for tensor in read(data).main.inputs}
    requested = otp.convert(data, input_shape=shapes).proto
    assert requested.SerializeToString() == otp.convert(data).proto.SerializeToString()


@pytest.mark.parametrize("name", ["WHILE-float32,_cumulative_sum", "STABLEHLO_COMPOSITE-float32,_sum"])
def test_no_tensor_of_a_subgraph_keeps_the_stored_batch(name: str) -> None:
    data = CASES[name].build()
    inputs = [tensor for tensor in read(data).main.inputs if tensor.name != LOOP_CONDITION]
    conversion = otp.convert(data, input_shape={t.name: ("batch", *t.shape[1:]) for t in inputs}, verify=True)
    assert conversion.verification is not None
    assert conversion.verification.ok
    graph, rank = conversion.model.graph, inputs[0].rank
    computed = [value for node in graph.all_nodes() for value in node.outputs if len(value.shape or ()) == rank]
    assert computed
    sizes = {value.name: value.shape[0] for value in (*graph.outputs, *computed) if value.shape is not None}
    assert not {name: size for name, size in sizes.items() if isinstance(size, int)}


@pytest.mark.parametrize(
    ("name", "axis", "text"),
    [
        ("UNIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU", 0, "would be of shape"),
        ("WHILE-variable_only_in_the_body", 0, "reads or writes a state"),
    ],
)
def test_rejects_shapes_that_do_not_fit_a_state(name: str, axis: int, text: str) -> None:
    case = CASES[name]
    with pytest.raises(UnsupportedOperator, match=text):
        otp.convert(case.build(), input_shape=doubled_shapes(case, axis))
