"""Files with wrong states, loops or recurrent layers, which are refused."""

from __future__ import annotations

import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError
from tests.helpers.changed_files import (
    Change,
    change_fields,
    change_subgraph_tensor,
    operands,
    order_operators,
    outputs,
    results,
    set_parameters,
    tensor,
)

FLOAT32, UINT8, INT32, COMPLEX64, FLOAT64 = 0, 3, 2, 8, 10
MASKED = "WHILE-masked_recurrent_layer:_RNN,_every_output"
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"

REFUSED: list[tuple[str, list[Change], str]] = [
    (
        "UNIDIRECTIONAL_SEQUENCE_RNN-float32_with_NONE",
        [tensor(4, type=UINT8)],
        "LiteRT's kernels take float32, float32, float32, float32",
    ),
    ("LSTM-float32_with_int8_weights_with_peepholes", [set_parameters(9, [0.005], [127])], "nonzero zero points"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_with_RELU6", [tensor(25, shape=[83, 11])], "for a batch of 3"),
    (f"{LSTM}-float32_with_clipped_cells", [tensor(14, shape=[97, 11])], "for a batch of 3"),
    ("LSTM-float32_plain", [tensor(13, shape=[3, 12])], r"the weights require \[3, 11\]"),
    (
        f"{LSTM}-int8_with_layer_normalization,_without_an_input_gate",
        [tensor(10, type=COMPLEX64)],
        "'hidden' has dtype complex64; the integer kernel reads int8",
    ),
    (
        "BIDIRECTIONAL_SEQUENCE_RNN-float32_with_float16_initial_states",
        [tensor(9, shape=[2, 13])],
        r"the recurrent weights have shape \[2, 13\]",
    ),
    (
        "WHILE-counted,_rows_of_int32",
        [change_subgraph_tensor(2, "k25", type=FLOAT32)],
        "operand 'k25' has dtype float32, expected integers",
    ),
    (
        "UNIDIRECTIONAL_SEQUENCE_LSTM-bidirectional,_inner_output",
        [tensor(26, shape=[8, 11])],
        r"the gates have recurrent weights of shapes",
    ),
    (
        "WHILE-bidirectional_layer:_GRU,_every_output",
        [change_subgraph_tensor(2, "RESHAPE44", shape=[1, 1, 13])],
        r"shape \[1, 1, 11\] is requested, but the result is stored as \[1, 1, 13\]",
    ),
    (
        "BIDIRECTIONAL_SEQUENCE_RNN-float32_time_first",
        [operands(0, 2, 3, 3, 1, 6, 7, 8, 5, -1, -1, -1)],
        r"the bias \[13, 13\]",
    ),
    (
        "WHILE-counted,_rows_of_uint8",
        [change_subgraph_tensor(2, "RESHAPE14", quantization=None)],
        "'RESHAPE14' has no scale",
    ),
    (
        "LSTM-int8,_50_runs",
        [operands(*range(9), *[-1] * 3, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, 1)],
        "1 of 4 gates are normalized",
    ),
    (
        "LSTM-float32_plain",
        [operands(*range(9), *[-1] * 3, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, 12)],
        "1 of 4 gates are normalized",
    ),
    (
        f"{LSTM}-int8_with_a_projection_without_a_bias",
        [tensor(13, type=UINT8)],
        "'c13' have dtype uint8; the integer kernel reads int8",
    ),
    (
        "BIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU6",
        [operands(0, 2, 3, 4, 1, 6, 7, 8, 1, -1, -1, -1)],
        "two states share tensor 'hidden ahead'",
    ),
    ("WHILE-float32,_cumulative_sum", [results(-1, 3)], "output 0 is omitted"),
    (MASKED, [results(-1, 9, 10, 11, 12, 13, 14, operator=1)], "output 0 is omitted"),
    (
        "ASSIGN_VARIABLE-int8,_previous_input",
        [order_operators(1, 3, 0, 2)],
        "the operator sets the initial value of the state 'state' after operators that use it",
    ),
    (
        "WHILE-masked_recurrent_layer:_LSTM,_last_output,_with_initial_states",
        [change_subgraph_tensor(2, "part28", shape=[1])],
        "results and operand have different ranks",
    ),
    (
        "IF-stateful_cell_in_a_branch",
        [outputs(13, graph=1)],
        "tensor 13 'hidden' is a variable, which cannot be a result of IF",
    ),
    (
        "READ_VARIABLE-int8,_cumulative_sum",
        [tensor(1, type=13), tensor(3, type=13)],
        "the variable would contain 't1', which is a resource",
    ),
    (
        "BIDIRECTIONAL_SEQUENCE_RNN-float32_with_RELU",
        [tensor(6, shape=[13, 7, 1])],
        r"'c6' have shape \[13, 7, 1\], expected a matrix",
    ),
]


@pytest.mark.parametrize(("case", "changes", "text"), REFUSED, ids=[f"{case}: {text}" for case, _, text in REFUSED])
def test_files_that_kernels_refuse_or_misread_are_refused(case: str, changes: list[Change], text: str) -> None:
    with pytest.raises(ConversionError, match=text) as caught:
        otp.convert(change_fields(case, *changes))
    assert "please report" not in str(caught.value)
