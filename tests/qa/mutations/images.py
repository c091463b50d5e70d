"""Planted bugs in operators on images and blocks of pixels."""

from __future__ import annotations

from onnx_tflite_plugin.api import Dequantized
from tests.qa.mutations.planting import (
    Mutation,
    leave_out,
    with_attributes,
)

MUTATIONS = (
    Mutation(
        "column-major order of blocks",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-float32_by_3_between_convolutions",),
        emits={"DepthToSpace": with_attributes(mode="CRD")},
    ),
    Mutation(
        "the result is rescaled to a different output scale",
        "RESIZE_NEAREST_NEIGHBOR",
        (
            "RESIZE_NEAREST_NEIGHBOR-int8,_input_and_output_with_different_quantization_parameters,_which_the_kernel_ignores",
        ),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "half_pixel_centers is ignored for sizes at runtime",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-half_pixel_centers_int16,_size_known_at_runtime",),
        options={"half_pixel_centers": False},
    ),
    Mutation(
        "the number of blocks is not divided by the block size",
        "SPACE_TO_DEPTH",
        ("SPACE_TO_DEPTH-dynamic_height_and_width_for_generic",),
        emits={"Div": leave_out},
    ),
)
