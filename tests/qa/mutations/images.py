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
        "columns of depth first",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-float32_by_3_between_convolutions",),
        emits={"DepthToSpace": with_attributes(mode="CRD")},
    ),
    Mutation(
        "another output scale rescales",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-int8_copied_to_different_quantization_parameters,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "pixels have no centers where sizes are known at runtime",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-half_pixel_centers_int16,_size_known_at_runtime",),
        options={"half_pixel_centers": False},
    ),
    Mutation(
        "an axis is as long as its blocks are many",
        "SPACE_TO_DEPTH",
        ("SPACE_TO_DEPTH-dynamic_height_and_width_for_generic",),
        emits={"Div": leave_out},
    ),
)
