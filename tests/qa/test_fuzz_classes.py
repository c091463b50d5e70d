"""The classes of models whose numbers may differ: each is decided from the file, and few sound files are of any."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.schema import Table, enum
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source import read
from tests.helpers.changed_files import Change, buffer, called, changed, held, option, outputs, scaled, tensor
from tests.qa.fuzz.classes import CLASSES
from tests.qa.fuzz.seeds import cases, seed_model
from tests.qa.fuzz.suspect import Suspect

HOST = Host(packs="builtin")
LSTM_OF = "UNIDIRECTIONAL_SEQUENCE_LSTM"
LSTM = f"{LSTM_OF}-float32_with_RELU"
BETWEEN = "RSQRT-int8,_output_scale_1_between_convolutions"


def inputs(*numbers: int) -> Change:
    return lambda model: model.fields["subgraphs"][0].fields.update(inputs=list(numbers))


def another(code: str) -> Change:
    """The model's first kind of operator is another."""
    number = enum("BuiltinOperator")[code]
    return lambda model: model.fields["operator_codes"][0].fields.update(
        builtin_code=number, deprecated_builtin_code=min(number, 127)
    )


def instead_of_mul(code: str) -> Change:
    return instead_of("MUL", code)


def instead_of(one: str, code: str) -> Change:
    """Every such operator of the model is another."""
    number, other = enum("BuiltinOperator")[one], enum("BuiltinOperator")[code]

    def change(model: Table) -> None:
        table = next(table for table in model.fields["operator_codes"] if table.fields["builtin_code"] == number)
        table.fields.update(builtin_code=other, deprecated_builtin_code=min(other, 127))

    return change


INFINITE = int(np.float32("inf").view(np.int32))

OF_A_CLASS: list[tuple[str, str, list[Change]]] = [
    ("constants beyond all measure", "DIV-float32_with_SIGN_BIT,_which_the_kernel_ignores", [buffer(1, [INFINITE] * 210)]),
    ("constants beyond all measure", "POW-float32_to_2.0", [buffer(1, [65504], "float32")]),
    ("constants beyond all measure", "STABLEHLO_REDUCE_WINDOW-region_STABLEHLO_MULTIPLY", [buffer(1, [16])]),
    ("options beyond all measure", LSTM, [option("cell_clip", 1e-30)]),
    ("scales beyond all measure", "DIV-int8", [scaled(0, [1e-30], [0])]),
    ("scales beyond all measure", "RESIZE_BILINEAR-uint8_legacy_to_10x14", [tensor(2, type=1), scaled(2, [3e38], [0])]),
    ("scales beyond all measure", "CONV_2D-one_image_rounded", [scaled(1, [-7e34] * 13, [0] * 13)]),
    (
        "scales beyond all measure",
        "FULLY_CONNECTED-rows_rounded_one_by_one,_for_blocks_of_32",
        [buffer(1, [0.0] + [0.1] * 20, "float16")],
    ),
    ("refused without XNNPACK", "READ_VARIABLE-float32,_a_running_sum", [instead_of("ASSIGN_VARIABLE", "READ_VARIABLE")]),
    ("sizes asked of no elements", "MATRIX_SET_DIAG-no_rows", [tensor(0, shape_signature=[-1, 0, 3])]),
    ("open sizes that do not follow", "L2_POOL_2D-float32_of_open_sizes,_SAME_3x2_stride_1x1", [tensor(1, shape_signature=[-1, 1, 1, 3])]),
    (
        "open sizes that do not follow",
        "STABLEHLO_CASE-an_operand_that_a_branch_leaves_alone",
        [tensor(2, shape_signature=[-1, 3])],
    ),
    ("open sizes that do not follow", "DENSIFY-float16_weights_through_DEQUANTIZE", [tensor(1, shape_signature=[4, -1, 2, -1])]),
    (
        "open sizes that do not follow",
        "FULLY_CONNECTED-rows_rounded_whose_number_is_open",
        [tensor(0, shape=[1, 1], shape_signature=[-1, 1])],
    ),
    (
        "open sizes that do not follow",
        "SELECT_V2-float32_elements_of_shape_(),_(1,),_(1,_1),_(1,_1,_1,_1)",
        [tensor(1, shape_signature=[-1])],
    ),
    ("open sizes that do not follow", "UNSORTED_SEGMENT_PROD-one_row", [tensor(0, shape_signature=[-1, 5])]),
    ("stored shapes that do not follow", "IF-a_loop_inside", [called(1, "t3", shape=[64, 3])]),
    ("stored shapes that do not follow", "LSTM-float32_in_a_loop", [held(2, "by", [80])]),
    ("constants longer than their shapes", "EMBEDDING_LOOKUP-int8_as_it_is", [tensor(1, shape=[5, 11])]),
    ("booleans in other bytes", "LOGICAL_AND-bool_and_a_constant_(7,_1)", [buffer(1, [2] * 7, "int8")]),
    ("sizes beyond 32 bits", "BROADCAST_ARGS-int64_[0,_3]_and_[1,_1,_1],_a_constant", []),
    ("sizes beyond 32 bits", "BROADCAST_ARGS-int64_[]_and_[2,_3],_a_and_b_constant", [buffer(2, [1 << 40, 3], "int64")]),
    ("sparse constants read as dense", "FULLY_CONNECTED-sparse_weights", [outputs(3, 0)]),
    ("sparse constants read as dense", "DENSIFY-int8_weights_of_a_convolution", [another("RELU6")]),
    ("inputs that LiteRT writes", "LSTM-uint8_of_five_operands,_states_handed_in", [outputs(5, 2)]),
    ("an input listed twice", "TRANSPOSE-uint8,_perm_known_as_it_runs", [inputs(0, 1, 0)]),
    ("divisors of zero", "DIV-uint8", []),
    ("divisors of zero", "DIV-uint8_by_a_constant_between_convolutions", [scaled(4, [0.0], [0])]),
    ("divisors of zero", "DIV-a_constant_(5,_1,_3)_by_float32_between_convolutions", []),
    (
        "a recurrence without bound",
        "BIDIRECTIONAL_SEQUENCE_LSTM-float32_whose_projections_are_bounded",
        [buffer(13, [1.2e5] * 17 * 11, "float32")],
    ),
    ("divisors of zero", "DIV-float32_with_TANH,_which_the_kernel_ignores", [inputs(1, 0)]),
    ("constants beyond all measure", "POW-float32_between_convolutions", [buffer(6, [0, 0, 0, 0, 5.6e-45], "float32")]),
    ("divisors of zero", "WHILE-a_recurrent_layer_under_a_mask:_LSTM,_the_last_output,_that_begins_somewhere", [instead_of_mul("DIV")]),
    ("divisors of zero", "DIV-float32_with_SIGN_BIT,_which_the_kernel_ignores", [buffer(1, [0] * 210)]),
    (
        "sums that wrap",
        "FULLY_CONNECTED-int16_by_int2_rows_of_13_with_one_scale",
        [buffer(2, [0, 0, 0, 0, 0, 0, 2**46], "int64")],
    ),
    ("sums that wrap", "TRANSPOSE_CONV-int8_with_a_bias_of_four_axes", [buffer(3, [0, -(2**31), 0, 0])]),
    ("sums that wrap", "CONV_2D-int16", [scaled(-1, [1e-9], [0])]),
    ("sums that wrap", BETWEEN, [buffer(2, [2**31 - 1, 0, 0])]),
    (
        "sums that wrap",
        "SELECT_V2-()_or_int8_between_convolutions",
        [buffer(5, [2**30, 0, 0, 0, 0]), tensor(8, quantization=None)],
    ),
    ("sums that wrap", "EXP-int16_between_convolutions", [buffer(2, [2**31 - 1, 0, 0], "int64")]),
    ("sums that wrap", "ADD-uint8", [scaled(2, [2.0**-15], [255])]),
    ("products that wrap", "BATCH_MATMUL-int16_by_int8_constants_adj_x_adj_y", [scaled(0, [65504.0], [0])]),
    ("products that wrap", "MUL-int16", [scaled(1, [65504.0], [0])]),
    ("products that wrap", "MUL-int8_with_SIGN_BIT,_which_the_kernel_ignores", [scaled(0, [3080.0], [-5])]),
    ("products that wrap", "PRELU-int16,_slopes_(7,_1)", [scaled(0, [65504.0], [0])]),
    ("products that wrap", "QUANTIZE-int16_to_int8", [scaled(0, [65504.0], [0])]),
    ("floats quantized beyond 32 bits", "SUM-int16_kept", [scaled(2, [1e-7], [0])]),
    ("powers that wrap", "POW-int32_to_7", [tensor(1, shape=[3]), buffer(1, [1, 9, 2])]),
    ("quotients shifted by more than 31 bits", "HARD_SWISH-uint8_to_a_scale_of_2", [scaled(0, [8e-4], [159]), scaled(1, [65504.0], [0])]),
    ("quotients shifted by more than 31 bits", "DIV-int16_with_RELU6", [scaled(1, [2.0], [5])]),
    (
        "gates of rounded products",
        "UNIDIRECTIONAL_SEQUENCE_RNN-float32_on_int8,_quantized_with_zero_points",
        [scaled(3, [0.05], [0])],
    ),
    ("gates of rounded products", f"{LSTM_OF}-float32_on_int8,_cells_bounded_at_4_that_reach_it", []),
    (
        "gates of rounded products",  # of one cell of eleven
        f"{LSTM_OF}-float32_on_int8_plain",
        [buffer(number, [9.0] + [0.0] * 10, "float32") for number in (9, 10)],
    ),
    ("gates of rounded products", f"{LSTM_OF}-float32_on_uint8_whose_cells_are_bounded", [scaled(2, [2.0], [0])]),
    (
        "gates of rounded products",  # 13 of 60 have a norm of 216
        "UNIDIRECTIONAL_SEQUENCE_LSTM-float32_on_int8_that_projects",
        [buffer(5, [60] * 143, "int8"), scaled(5, [0.5], [0])],
    ),
    ("gates of rounded products", f"{LSTM_OF}-float32_on_uint8_that_projects", [scaled(13, [0.05], [0])]),
    ("gates of rounded products", "RNN-float32_on_int8,_every_run_anew", [scaled(2, [1.0], [0])]),
    ("cells finer than what they are made of", "LSTM-uint8_of_five_operands,_states_kept", [outputs(5, 2)]),
    ("an LSB made several by weights", BETWEEN, [buffer(3, [8] * 15, "int8")]),
    ("an LSB made several by weights", "LEAKY_RELU-uint8_between_convolutions", [buffer(3, [11] * 15, "uint8")]),
    ("an LSB made several by weights", "GELU-spelled_out_in_integers", []),
    ("divisors of zero", "LOCAL_RESPONSE_NORMALIZATION-alpha_0", [option("alpha", -1.0)]),
    ("windows beyond an image of open size", "AVERAGE_POOL_2D-int8_of_open_sizes,_VALID_3x2_stride_1x1", []),
    (
        "windows beyond an image of open size",
        "L2_POOL_2D-VALID_3x2",
        [tensor(0, shape=[2, 1, 1, 3]), tensor(1, shape=[2, 1, 1, 3], shape_signature=[2, -1, -1, 3])],
    ),
    ("windows beyond an image of open size", "STABLEHLO_GATHER-an_axis_of_unknown_size", []),
    (
        "windows beyond an image of open size",
        "CONV_2D-int16_of_open_sizes,_SAME_3x2_stride_2x1",
        [option("padding", "VALID"), tensor(0, shape=[2, 2, 1, 3])],
    ),
    ("open sizes that do not follow", "WHILE-a_condition_that_is_a_loop", [tensor(3, shape_signature=[-1, -1])]),
    (
        "open sizes that do not follow",
        "PRELU-int16,_slopes_(1,)_between_convolutions",
        [tensor(0, shape_signature=[-1, -1, 7, 5])],
    ),
    ("open sizes that do not follow", "SHAPE-that_shapes_another_tensor", [tensor(2, shape_signature=[63])]),
    (
        "open sizes that do not follow",
        "DEPTHWISE_CONV_2D-spelled_out,_int8,_pads_and_SAME",
        [tensor(0, shape_signature=[2, 5, 7, -1])],
    ),
    (
        "open sizes that do not follow",
        "REDUCE_PROD-int32,_which_wraps_around_dropped",
        [tensor(0, shape_signature=[-1, -1, -1, -1])],
    ),
    (
        "windows beyond an image of open size",
        "STRIDED_SLICE-one_row_of_unknown_sizes",
        [tensor(0, shape=[1, 1, 1]), buffer(1, [4, 0, 0])],
    ),
    ("a recurrence without bound", LSTM, []),
    (
        "a recurrence without bound",
        "WHILE-a_recurrent_layer_under_a_mask:_LSTM,_the_last_output,_that_begins_somewhere",
        [instead_of_mul("POW")],
    ),
    ("a recurrence without bound", f"{LSTM_OF}-float32_plain", [buffer(5, [4.86e7] + [0] * 120, "float32")]),
    (
        "scores that tie",
        "NON_MAX_SUPPRESSION_V5-a_sigma_so_small_that_it_leaves_no_score",
        [buffer(3, [-1e-12], "float32")],
    ),
    ("scores that tie", "CUSTOM.TFLite_Detection_PostProcess-a_detector,_by_best_class,_float32", []),
    ("sums of many floats that cancel out", "LOCAL_RESPONSE_NORMALIZATION-radius_1", []),
    ("sums of many floats that cancel out", "MEAN-axes_[0,_1,_2,_3]_dropped", [tensor(0, shape=[2, 5, 4103, 3])]),
    ("NaN that is compared", "MEAN-no_RMSNormalization_of_another_square", [instead_of_mul("MAXIMUM")]),
    ("sums of many floats that cancel out", "CONV_3D-weights_that_are_a_graph_input", [option("fused_activation_function", 3)]),
    ("sums of many floats that cancel out", "REDUCE_PROD-axes_[0]_dropped", [tensor(0, shape=[71, 3, 5, 7])]),
    (
        "sums of many floats that cancel out",
        "GELU-spelled_out_with_an_activation_inside",
        [buffer(4, [-1.2e-14], "float32")],
    ),
    ("float16 products of many", "SQUEEZE-float16", [another("EXP")]),
    ("float16 products of many", "STABLEHLO_SCATTER-float16_rows,_many_to_one,_multiply", []),
    ("perms, lengths, blocks and axes known as it runs", "REVERSE_SEQUENCE-running_int32_lengths", []),
    (
        "perms, lengths, blocks and axes known as it runs",
        "REDUCE_MAX-axes_known_as_it_runs_between_convolutions",
        [],
    ),
    (
        "perms, lengths, blocks and axes known as it runs",
        "RESIZE_NEAREST_NEIGHBOR-both_float32,_a_size_known_as_it_runs_between_convolutions",
        [],
    ),
    (
        "perms, lengths, blocks and axes known as it runs",
        "TRANSPOSE-an_unknown_batch,_perm_known_as_it_runs",
        [tensor(2, shape_signature=[-1, 1, -1])],
    ),
    ("divisors of zero", "DIV-float32_with_SIGN_BIT,_which_the_kernel_ignores", [buffer(1, [1] * 210)]),
    (
        "perms, lengths, blocks and axes known as it runs",
        "MEAN-axes_known_as_it_runs,_dropped",
        [tensor(2, shape_signature=[2, -1])],
    ),
    (
        "perms, lengths, blocks and axes known as it runs",
        "STRIDED_SLICE-begin_and_end,_known_as_it_runs_between_convolutions",
        [],
    ),
    (
        "perms, lengths, blocks and axes known as it runs",
        "SLICE-float32,_size_known_as_it_runs_between_convolutions",
        [],
    ),
    (
        "perms, lengths, blocks and axes known as it runs",
        "STRIDED_SLICE-masked,_known_as_it_runs_between_convolutions",
        [],
    ),
    ("perms, lengths, blocks and axes known as it runs", "BATCH_TO_SPACE_ND-float32,_rows_known_as_it_runs", []),
    ("open depths that weights decide", "FULLY_CONNECTED-int16_without_bias", [tensor(0, shape_signature=[-1, -1])]),
    ("shifts by more bits than there are", "RIGHT_SHIFT-uint16", []),
    (
        "places of pixels that float32 rounds",
        "RESIZE_BILINEAR-float32_align_corners_to_10x14",
        [tensor(0, shape=[2, 5, 1000, 3])],
    ),
    (
        "one scale read as one of each channel",
        "DEPTHWISE_CONV_2D-float32_with_int8_weights,_quantized_as_it_runs",
        [scaled(1, [0.0078125], [0])],
    ),
]  # fmt: skip


def suspect(data: bytes) -> Suspect:
    """A file of which LiteRT is not asked."""
    return Suspect(read(data), {}, {}, HOST)


@pytest.mark.parametrize(
    ("name", "case", "changes"), OF_A_CLASS, ids=[f"{name}: {case}" for name, case, _ in OF_A_CLASS]
)
def test_a_file_is_of_its_class(name: str, case: str, changes: list[Change]) -> None:
    assert CLASSES[name](suspect(changed(case, *changes)))
    if changes:
        assert not CLASSES[name](suspect(changed(case)))


def test_neighbours_that_hardly_count_beside_a_bias_are_of_no_class() -> None:
    weighed = changed("LOCAL_RESPONSE_NORMALIZATION-radius_1", option("alpha", 0.1))
    assert not CLASSES["sums of many floats that cancel out"](suspect(weighed))


@pytest.mark.parametrize(("dtype", "named"), [("int16", True), ("float8_e5m2", False)])
def test_a_result_of_nothing_is_of_a_class_where_the_kernel_gives_it_another_dtype(dtype: str, named: bool) -> None:
    file = suspect(changed("EXP-int16_of_nothing", tensor(1, type="FLOAT8_E5M2")))
    told = file._replace(dtypes={file.model.main.outputs[0].index: dtype})
    assert CLASSES["a result's dtype that its kernel leaves"](told) == named


def test_sizes_of_axes_that_a_slice_takes_whole_may_be_known_behind_ends_that_are_not() -> None:
    whole = tensor(7, shape_signature=[2, -1, -1, -1])  # its masks leave out both ends of axis 0
    name = "perms, lengths, blocks and axes known as it runs"
    assert not CLASSES[name](suspect(changed("STRIDED_SLICE-masked,_known_as_it_runs_between_convolutions", whole)))


def test_quotients_are_of_their_class_whatever_dtype_the_file_says_they_have() -> None:
    for dtype in map(enum("TensorType").get, ("UINT8", "FLOAT32")):
        quotients = suspect(changed("DIV-uint8_by_a_constant", tensor(2, type=dtype)))
        assert CLASSES["quotients shifted by more than 31 bits"](quotients)


def test_few_sound_files_are_of_any_class() -> None:
    """A class that many are of would hide what the converter does wrong; of all cases 5 % are, of a sample some more may be."""
    seeds = [seed for number in range(3, len(cases()), 41) if (seed := seed_model(number)) is not None]
    named = [name for seed in seeds for name, holds in CLASSES.items() if holds(suspect(seed.data))]
    assert len(seeds) > 100
    assert len(named) <= len(seeds) // 14, named
