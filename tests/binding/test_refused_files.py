"""Change one field of a conformance file; the refusal must name the inconsistency."""

from __future__ import annotations

import time

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify import verify
from tests.helpers.changed_files import (
    Change,
    buffer,
    change_fields,
    copy_parameters,
    operands,
    option,
    option2,
    order_operators,
    set_parameters,
    tensor,
    without,
)

FLOAT32, UINT8, INT32, COMPLEX64, FLOAT64 = 0, 3, 2, 8, 10
MASKED = "WHILE-masked_recurrent_layer:_RNN,_every_output"
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"

REFUSED: list[tuple[str, list[Change], str]] = [
    (
        "REVERSE_SEQUENCE-sequence_axis_2,_batch_axis_1",
        [buffer(1, [1, 4, 8, 2, 5])],
        "range from 1 to 8, but the axis has 7 elements",
    ),
    ("REVERSE_SEQUENCE-sequence_axis_2,_batch_axis_1", [buffer(1, [1, 4, -1, 2, 5])], "range from -1 to 5"),
    (
        "TRANSPOSE_CONV-a_kernel_smaller_than_its_stride",
        [option("stride_w", 4)],
        "output size 21 cannot come from input size 7 with stride 4",
    ),
    (
        "TRANSPOSE_CONV-followed_by_ADD_and_MUL",
        [tensor(3, shape=[1])],
        r"the bias has shape \[1\], expected one entry for each of 4 channels",
    ),
    ("TRANSPOSE-runtime_perm_[3,_1,_2,_0]", [tensor(2, shape=[3, 5, 7, 11])], "which is not a permutation of"),
    ("FILL-to_[2,_0,_3]", [tensor(2, type=UINT8)], "no kernel for dtypes int32, float32 -> uint8"),
    ("SPLIT_V-float32", [option("num_splits", 0)], "num_splits is 0, but the operator has"),
    ("FAKE_QUANT-16_bits_from_0_to_6", [tensor(0, type=8)], "no kernel for dtypes complex64 -> float32"),
    (
        "QUANTIZE-int16_to_int32",
        [set_parameters(1, [0.5], [2**31])],
        "2147483648 is outside the range of int32, -2147483648 to 2147483647",
    ),
    (
        "QUANTIZE-every_int16_to_int32_of_scale_0.0006",
        [set_parameters(1, [-0.0], [5])],
        "int32 operand .y0. has a scale of 0",
    ),
    (
        "QUANTIZE-every_int16_to_int32_of_scale_0.0006",
        [set_parameters(1, [float("nan")], [5])],
        "int32 operand .y0. has a scale of nan",
    ),
    ("QUANTIZE-int32_to_int8", [set_parameters(0, [0.0], [0])], "has a scale of 0"),
    ("EXP-int16", [tensor(1, type=INT32)], "tensor 1 'y0' is int32, but EXP has an operand of"),
    ("MAX_POOL_2D-uint8_with_RELU", [tensor(1, quantization=None)], "tensor 1 'y0' is uint8 without a scale"),
    ("PAD-int8,_runtime_paddings", [tensor(0, quantization=None)], "the result has a scale, but the operand"),
    (
        "FULLY_CONNECTED-int8_with_RELU,_rank_kept",
        [set_parameters(1, [0.05, 2.0, 0.0078125, 0.05], [127, 127, 0, 0])],
        "one zero point per row",
    ),
    ("RESHAPE-ignored_shape_operand_of_rank_0", [option("new_shape", [])], "does not fit the 210"),
    (
        "STABLEHLO_SCATTER-single_window,_constant,_none",
        [tensor(1, shape=[1])],
        "index vectors have 1 entries for 2 axes",
    ),
    (
        "STABLEHLO_SCATTER-uint16_rows,_repeated_indices,_constant,_maximum",
        [tensor(0, shape=[1 << 28, 7, 11])],
        "more than ONNX Runtime can index",
    ),
    (
        "SPLIT_V-int8,_input_and_output_with_different_quantization_parameters,_which_the_kernel_ignores",
        [tensor(2, shape=[3, 0])],
        "reads a scalar",
    ),
    (
        "STABLEHLO_PAD-float32_image,_cropped_between_convolutions",
        [operands(1, 0, 2)],
        "tensor 2 'c2' has size 3 along o, but inputs.1. has size 2",
    ),
    ("CONV_2D-uint8,_then_MUL_and_ADD", [tensor(4, quantization=None)], "tensor 4 .* without a scale, but MUL"),
    (
        "CUSTOM.TFLite_Detection_PostProcess-by_class,_every_score",
        [operands(4, 6)],
        "boxes, scores or anchors are missing",
    ),
    (
        "RESIZE_BILINEAR-int16_legacy_to_10x14",
        [tensor(2, type=FLOAT64), set_parameters(2, [float("inf")], [0])],
        "tensor 2 .* is float64, but RESIZE_BILINEAR has an operand of quantized int16",
    ),
    ("DILATE-int32", [operands(0, 1, 1)], r"has shape .4., expected a scalar"),
    ("HARD_SWISH-int8_of_scale_0.0008", [set_parameters(0, [3e38], [127])], "rescaling factor is inf"),
    (
        "REDUCE_WINDOW-MUL_int8",
        [buffer(2, [1, -(1 << 58), 2, 2], "int64")],
        "sizes of the windows are .*; each must be at least 1",
    ),
    ("REDUCE_WINDOW-MUL_int8", [buffer(2, [1, 1 << 24, 2, 2], "int64")], "the window has 16777216 elements"),
    (
        "BATCH_TO_SPACE_ND-float32,_runtime_crops",
        [tensor(2, type=4)],
        "no kernel for dtypes float32, int32, int64",
    ),
    ("FLOOR_DIV-int16,_empty", [tensor(2, type=9)], "no kernel for dtypes int16, int16 -> int8"),
    ("RELU_N1_TO_1-uint8", [tensor(0, quantization=None)], "tensor 0 'x0' is uint8 without a scale, but RELU_N1_TO_1"),
    (
        "RELU6-uint8",
        [tensor(0, quantization=None), tensor(1, quantization=None)],
        "'y0' is uint8 without a scale, but the bounds of RELU6 need a scale",
    ),
    (
        "MAX_POOL_2D-int8_with_RELU6",
        [tensor(0, quantization=None), tensor(1, quantization=None)],
        "'y0' is int8 without a scale, but the bounds of RELU6 need a scale",
    ),
    (
        "CAST-int16_to_float64",
        [order_operators(), tensor(1, type=COMPLEX64, is_variable=True)],
        "variable tensor 'y0' has dtype complex64",
    ),
    (
        "MUL-uint8,_leading_constant_(3,)_between_convolutions",
        [set_parameters(4, [0.004, 0.004, 0.004], [0, 0, 0])],
        "has per-axis scales, but is not a weight",
    ),
    (
        "STABLEHLO_GATHER-single_slice",
        [tensor(1, shape_signature=[-1])],
        "index vectors are of dynamic length for 3 axes",
    ),
    ("SPLIT-float32_axis_3_between_convolutions", [tensor(4, shape=[3, 0])], "the axis has shape"),
    ("STABLEHLO_REDUCE_WINDOW-rank_1", [option2("base_dilations", [])], "base_dilations is .., expected 1 entries"),
    (
        "SELECT-int8_(7,)_by_rows",
        [tensor(1, shape_signature=[-1]), tensor(3, shape=[]), set_parameters(3, [0.1] * 7, [5] * 7)],
        "7 scales",
    ),
    (
        "DEPTHWISE_CONV_2D-int16_with_scales_per_channel",
        [copy_parameters(3, 1)],
        "6 scales, but a computed tensor must have one",
    ),
    (
        "MIRROR_PAD-SYMMETRIC_uint8,_runtime_paddings",
        [tensor(1, shape=[4, 2**31 - 1])],
        "paddings have shape .4, 2147483647., expected pairs",
    ),
    ("RIGHT_SHIFT-int32", [tensor(k, type=FLOAT32) for k in range(3)], "no kernel for dtypes float32, float32; LiteRT"),
    ("BITWISE_XOR-int32", [tensor(k, type=FLOAT32) for k in range(3)], "no kernel for dtypes float32, float32; LiteRT"),
    ("EQUAL-int8", [tensor(2, type=FLOAT32), set_parameters(2, [0.1], [5])], "EQUAL returns bool for these operands"),
    (
        "EQUAL-uint8",
        [tensor(2, type=FLOAT32), set_parameters(2, [0.1], [-7])],
        "float32, but EQUAL has an operand of quantized",
    ),
    (
        "ADD-uint8",
        [tensor(2, type=FLOAT32), set_parameters(2, [0.1], [-7])],
        "float32, but ADD has an operand of quantized",
    ),
    ("DEQUANTIZE-float16", [tensor(1, type=4)], "'y0' is int64, but DEQUANTIZE returns float32 for these operands"),
    ("GATHER-two_batch_axes_along_axis_3", [option("batch_dims", -(2**31))], "batch_dims is -2147483648"),
    ("GATHER-two_batch_axes_along_axis_3", [option("batch_dims", 4)], "batch_dims is 4"),
    (
        "FULLY_CONNECTED-blocks,_one_output",
        [option("fused_activation_function", "SIGN_BIT")],
        "disagree on a fused SIGN_BIT with blockwise weight scales",
    ),
    ("REDUCE_PROD-int16_that_saturates_dropped", [set_parameters(2, [0.0], [0])], "has a scale of 0"),
    ("RANGE-float32_[7,_-1,_-8],_constant_operands", [buffer(1, [-770554912])], "delta leads away from limit"),
    (
        "CUSTOM.TFLite_Detection_PostProcess-by_class,_every_score",
        [tensor(6, shape=[1, 4])],
        "1 anchors for 53 boxes",
    ),
    ("SOFTMAX-float16,_beta_1.0", [option("beta", -1.0)], "beta is -1"),
    (
        "CUSTOM.TFLite_Detection_PostProcess-by_best_class,_every_score",
        [tensor(4, shape=[])],
        r"'boxes' has shape \[\]; the kernel requires boxes and scores of rank 3",
    ),
    (
        "CUSTOM.TFLite_Detection_PostProcess-by_best_class,_different_scales",
        [tensor(4, type=UINT8)],
        "anchors have dtype float32 and boxes uint8",
    ),
    (
        "MATRIX_SET_DIAG-dynamic_height",
        [tensor(1, shape=[2, 1], shape_signature=[2, 1])],
        r"diagonals of shape \[2, 1\] do not fit matrices of shape \[None\]",
    ),
    (
        "MATRIX_SET_DIAG-dynamic_width",
        [tensor(1, shape=[2, 8])],
        r"of shape \[2, 8\] do not fit matrices of shape \[2, 1\]",
    ),
    ("TILE-int8,_runtime_multiples", [tensor(1, shape=[1, 4])], r"multiples have shape \[1, 4\]"),
    (
        "MATRIX_SET_DIAG-int16_[3,_5]",
        [tensor(1, shape_signature=[-1])],
        r"of shape \[None\] do not fit matrices of shape \[3\]",
    ),
    ("EMBEDDING_LOOKUP_SPARSE-MEAN_of_rows_of_two_axes", [tensor(4, type=COMPLEX64)], "no kernel for dtypes"),
    (
        "EMBEDDING_LOOKUP_SPARSE-MEAN,_5_operands_known_at_runtime,_rank_3",
        [tensor(1, shape=[6, 2**31 - 1])],
        r"the indices have shape \[6, 2147483647\]",
    ),
    (
        "ATAN2-bfloat16",
        [tensor(0, shape_signature=[2, -1, 7, 3])],
        r"shapes \(2, None, 7, 3\) and \(2, 5, 7, 3\)",
    ),
    (
        "UNSORTED_SEGMENT_PROD-float32,_runtime_ids_of_rank_2",
        [buffer(1, [-2])],
        "num_segments is -2, expected at least 0",
    ),
    (
        "TRANSPOSE_CONV-rounded_per_image,_one_weight_scale",
        [set_parameters(1, [0.013], [127])],
        "nonzero zero points, which LiteRT ignores",
    ),
    (
        "DEPTHWISE_CONV_2D-decomposed,_sequence_in_a_row,_rounded_per_image",
        [set_parameters(5, [0.013], [64])],
        "nonzero zero points, which LiteRT ignores",
    ),
    (
        "SELECT-bool_(5,_7)_by_constant_rows",
        [tensor(k, shape=[], shape_signature=None) for k in (1, 2, 3)],
        r"the condition has shape \[5\], but the operands are scalars",
    ),
    ("REDUCE_WINDOW-MUL_bool_from_True", [operands(0, 0, 2, 3, 4)], "expected a scalar"),
    ("STABLEHLO_GATHER-int32_rows,_constant", [option2("collapsed_slice_dims", [])], "the slices have 3 axes"),
    (
        "STABLEHLO_GATHER-elements,_constant",
        [option2("slice_sizes", [1, 0, 1])],
        "or a size other than 1 on a collapsed axis",
    ),
    (
        "QUANTIZE-float32_to_int8_with_scales_along_axis_1",
        [tensor(0, shape_signature=[2, -1, -1, 3])],
        "5 scales along axis 1, which has a dynamic size",
    ),
    (
        "DEQUANTIZE-int8",
        [tensor(0, quantization=None)],
        "'x0' is int8 without a scale, but DEQUANTIZE computes with real values",
    ),
    ("STABLEHLO_SHIFT_LEFT-int32", [tensor(1, shape=[3])], r"shape \[5, 7\] is shifted by shape \[3\]"),
    ("EXP-int16", [without("tensors")], r"subgraphs\[0\].tensors: the subgraph has no tensors"),
    ("EXP-int16", [tensor(1, type=6)], "tensor 1 'y0' is bool, but EXP has an operand of quantized int16"),
    ("PRELU-float32_between_integers", [tensor(6, type=13)], "'t6' is resource, but PRELU has no resource operand"),
    (
        "SPLIT-float32_axis_-1_between_convolutions",
        [tensor(4, type=1)],
        "'c4' is float16, but axis numbers must be int32 or int64",
    ),
    (
        "TRANSPOSE-different_perm_in_each_run",
        [tensor(1, type=16)],
        "perm has dtype uint16, but the kernel reads int32",
    ),
    (
        "MEAN-int16_axes_[3]_at_1e-05_of_the_scale_dropped",
        [tensor(0, type=INT32)],
        "'y0' is quantized int16, but no operand of MEAN is float or quantized",
    ),
    ("MUL-complex64", [tensor(2, type=FLOAT32)], "tensor 2 'y0' is float32, but MUL has no float32 operand"),
    ("PRELU-int8,_slopes_(3,)", [set_parameters(1, [0.003, 0.0078125, 0.05], [-7, -7, 5])], "the slopes have 3 scales"),
    (
        "RESHAPE-runtime_shape,_one_dynamic_dimension_of_the_result",
        [tensor(1, shape=[1 << 24])],
        "the shape has 16777216 sizes",
    ),
    ("TANH-every_int16_from_a_scale_of_2^-12", [set_parameters(0, [3e38], [0])], "the operand's scale of 3e[+]38"),
    (
        "MEAN-RMSNormalization_by_a_quotient",
        [tensor(1, type=4)],
        "'t1' is int64, but MUL has an operand of float32",
    ),
    ("MEAN-int64_of_no_elements_kept", [tensor(0, type=7)], "int16 operand has no scale"),
    (
        "EXPAND_DIMS-runtime_axis,_to_(5,_3,_1)",
        [tensor(2, shape=[5, 3])],
        "the result has rank 2, expected one more than the operand's 2",
    ),
]


@pytest.mark.parametrize(("case", "changes", "text"), REFUSED, ids=[f"{case}: {text}" for case, _, text in REFUSED])
def test_files_that_kernels_refuse_or_misread_are_refused(case: str, changes: list[Change], text: str) -> None:
    with pytest.raises(ConversionError, match=text) as caught:
        otp.convert(change_fields(case, *changes))
    assert "please report" not in str(caught.value)


@pytest.mark.needs("onnx", "1.21", "a checker that is fast for long shape vectors")
@pytest.mark.parametrize(
    ("case", "shape"),
    [
        ("RESIZE_NEAREST_NEIGHBOR-align_corners_int16_to_10x14", [2, 5, 1 << 28, 3]),
        ("FILL-result_without_rank", [1 << 24]),
        ("CAST-bool_to_float16", [1 << 24]),
        ("STABLEHLO_SCATTER-float64_rows,_repeated_indices,_none", [5, 1 << 22, 11]),
    ],
)
def test_long_shape_vectors_convert_in_seconds(case: str, shape: list[int]) -> None:
    data, start = change_fields(case, tensor(0, shape=shape)), time.process_time()
    otp.convert(data, check="standard")
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("BATCH_MATMUL-between_swapped_batches", tensor(6, shape=[])),
        ("REVERSE_SEQUENCE-uint8,_width_by_batch_between_convolutions", tensor(3, shape=[])),
        ("REVERSE_SEQUENCE-uint8,_width_by_batch_between_convolutions", tensor(5, shape=[])),
        ("RESIZE_NEAREST_NEIGHBOR-upsampled_twice_without_stored_shapes", tensor(0, is_variable=True)),
        ("FULLY_CONNECTED-float32_between_int8,_float16_weights", tensor(3, shape=[])),
        ("CONV_3D-SAME_2x2x2_stride_2x1x2_dilated_2x1x1", tensor(-1, shape=[], has_rank=True)),
        ("RANGE-float32_[3,_18,_5],_constant_operands", tensor(-1, shape=[], has_rank=True)),
        ("IF-float32,_condition_of_rank_1", tensor(-1, shape=[], has_rank=True)),
        ("STABLEHLO_CASE-uint8,_three_branches", tensor(-1, shape=[], has_rank=True)),
        ("STABLEHLO_COMPOSITE-int16,_sum", tensor(-1, shape=[], has_rank=True)),
        (f"{LSTM}-backwards,_float32,_cells_clipped_at_10", tensor(-1, shape=[], has_rank=True)),
    ],
)
def test_result_stored_as_scalar_gets_the_derived_shape(case: str, change: Change) -> None:
    data = change_fields(case, change)
    verification = verify(data, otp.convert(data).proto)
    assert verification.ok, verification.text


@pytest.mark.parametrize("shape", [(12, 0, 2, 3), (12, 2, 0, 3), (12, 2, 2, 0)])
def test_dynamic_dimension_may_be_0_at_runtime(shape: tuple[int, ...]) -> None:
    changes = [tensor(0, shape_signature=[12, -1, -1, -1]), tensor(3, shape_signature=[-1] * 4)]
    data = change_fields("BATCH_TO_SPACE_ND-float32_without_crops", *changes)
    verification = verify(data, otp.convert(data).proto, inputs={"x0": np.ones(shape, np.float32)})
    assert verification.ok, verification.text


def test_long_index_vectors_are_refused_quickly() -> None:
    data, start = (
        change_fields("SCATTER_ND-int64_at_unique_indices", tensor(0, shape=[0, 1 << 24])),
        time.process_time(),
    )
    with pytest.raises(ConversionError, match="index vectors have 16777216 entries"):
        otp.convert(data)
    assert time.process_time() - start < 3


@pytest.mark.parametrize("multiplier", [0, 2, 7])
def test_depthwise_convolution_of_dynamic_channels_uses_stored_channels(
    multiplier: int,
) -> None:
    changes = [tensor(0, shape_signature=[-1] * 4), option("depth_multiplier", multiplier)]
    data = change_fields("DEPTHWISE_CONV_2D-int8_with_multiplier_2", *changes)
    verification = verify(data, otp.convert(data).proto, shapes={"x0": (2, 5, 7, 3)})
    assert verification.ok, verification.text
