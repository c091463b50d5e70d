"""Conformance files with one changed field that LiteRT accepts convert equally."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.verify import verify
from tests.helpers.changed_files import (
    Change,
    buffer,
    change_constant,
    change_fields,
    option,
    outputs,
    set_parameters,
    set_shared_name,
    tensor,
)

LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"
THREE_MILLION = int(np.float32(3e6).view(np.int32))

ACCEPTED: list[tuple[str, list[Change]]] = [
    ("SPLIT_V-one_result", [tensor(3, shape=[])]),
    ("FULLY_CONNECTED-one_block_per_row", [tensor(3, shape=[5, 1])]),
    ("MAX_POOL_2D-sequence_in_a_row,_kernel_1,_int8", [set_parameters(0, [0.0], [-5])]),
    ("RFFT2D-spectra_of_dynamic_shape,_SQUEEZE", [tensor(5, shape_signature=[1, -1, 9])]),
    ("ONE_HOT-indices_of_shape_[0,_3]", [tensor(0, shape_signature=[-1, 3])]),
    ("MEAN-int16_axes_[0,_1,_2,_3]_at_5_of_the_scale_dropped", [tensor(0, shape=[])]),
    (
        "DEQUANTIZE-an_int8_constant_with_scales_along_axis_2,_between_convolutions",
        [tensor(5, shape_signature=[-1, 5, 7, 3])],
    ),
    ("FULLY_CONNECTED-float32_with_a_bias_of_several_axes", [tensor(2, shape=[1, 1, 5])]),
    ("MEAN-int32_without_results_kept", [tensor(0, shape_signature=[-1, 5, 3])]),
    ("TRANSPOSE_CONV-followed_by_ADD_and_MUL", [tensor(3, shape=[4, 1])]),
    (
        "RESIZE_NEAREST_NEIGHBOR-half_pixel_centers_to_5x14_between_convolutions",
        [tensor(0, shape_signature=[2, -1, -1, 5])],
    ),
    ("L2_POOL_2D-float32_of_dynamic_shape,_SAME_3x2_stride_1x1", [tensor(1, shape_signature=[2, 1, 1, 3])]),
    ("LOCAL_RESPONSE_NORMALIZATION-beta_2", [option("radius", 0)]),
    ("MINIMUM-int16_without_scale,_broadcast", [tensor(1, shape=[1, 1], shape_signature=[-1, -1, -1])]),
    ("RESIZE_NEAREST_NEIGHBOR-align_corners_int8_2_to_83,_known_at_runtime", [tensor(2, type=0)]),
    (f"{LSTM}-backwards,_int8,_time_first", [set_parameters(2, [0.0061], [0])]),
    (f"{LSTM}-backwards,_float32,_cells_clipped_at_10", [tensor(-1, shape=[], has_rank=False)]),
    ("WHILE-variable_only_in_the_body", [set_shared_name("")]),
    ("FULLY_CONNECTED-float32_between_int8,_RELU6,_float32_weights", [outputs(5, 4)]),
    # Subtracting and adding 3e6 times the projection's bias would leave an error in the first step.
    ("BIDIRECTIONAL_SEQUENCE_LSTM-float32_with_a_projection,_reset_in_every_run", [buffer(7, [THREE_MILLION] * 187)]),
    ("REDUCE_MIN-uint8,_all_elements_dropped", [tensor(0, shape=[])]),
    ("RESIZE_NEAREST_NEIGHBOR-half_pixel_centers_to_5x7", [tensor(0, shape_signature=[-1, 5, 7, 3])]),
    ("DEPTHWISE_CONV_2D-int8_with_multiplier_2", [tensor(0, shape_signature=[2, 5, -1, -1])]),
    (
        "REDUCE_PROD-int16,_axes_[[1],_[2],_[-4]]_known_at_runtime_at_4.1_dropped",
        [tensor(1, shape_signature=[-1]), tensor(2, shape_signature=[-1, -1, -1])],
    ),
    (
        "STRIDED_SLICE-int8_bounds_out_of_range",  # XNNPACK reads no elements where the other kernels read three
        [buffer(1, [-9, 2, -99, 0]), buffer(2, [9, 99, 4, 0])],
    ),
    ("ARG_MIN-no_results", [tensor(0, shape_signature=[0, 5, -1])]),
    ("MEAN-float32_of_no_elements_kept", [tensor(0, shape_signature=[-1, 0, -1])]),
    ("MEAN-float32_of_no_elements_dropped", [tensor(0, shape_signature=[-1, 0, -1])]),
    # The reset gate's sums have one column, which is broadcast, so the pattern of a GRU must not match.
    ("WHILE-bidirectional_layer:_GRU,_last_output", [change_constant(4, "k33", [1, 11])]),
]


@pytest.mark.parametrize(("case", "changes"), ACCEPTED, ids=[case for case, _ in ACCEPTED])
def test_odd_files_that_litert_runs_agree_with_litert(case: str, changes: list[Change]) -> None:
    data = change_fields(case, *changes)
    verification = verify(data, otp.convert(data).proto)
    assert verification.ok, verification.text
