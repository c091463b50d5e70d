"""Images and blocks of pixels: what goes wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized

from .planting import Change, Mutation, handing_on, left_out, returning, returning_zero, with_attributes

BLOCKS = "op_handlers.tensor.blocks"


def half_even(original: Any) -> Any:
    """align_corners with halves to even."""

    def nearest(op: Any, size: int, made: int) -> Any:
        if not op.options.align_corners or made < 2:
            return original(op, size, made)
        at = (np.arange(made) + op.options.half_pixel_centers / 2).astype(np.float32) * (
            np.float32(size - 1) / np.float32(made - 1)
        )
        return np.minimum(np.rint(at).astype(np.int64), size - 1)

    return nearest


def round_prefer_floor(original: Any) -> Any:
    """half_pixel as ONNX rounds it by default."""

    def nearest(op: Any, size: int, made: int) -> Any:
        if not op.options.half_pixel_centers or op.options.align_corners:
            return original(op, size, made)
        at = (np.arange(made) + 0.5) * size / made - 0.5
        return np.clip(np.ceil(at - 0.5), 0, size - 1).astype(np.int64)

    return nearest


def coordinates(align: str, half: str, neither: str) -> Change:
    return lambda original: (
        lambda ctx: align if ctx.options.align_corners else half if ctx.options.half_pixel_centers else neither
    )


def one_axis_pattern(wide: str, flat: str) -> Change:
    """Blocks of two axes in another order."""
    return lambda original: lambda spatial: (wide, flat) if spatial == 2 else original(spatial)


def _crd(_original: Any) -> Any:
    from op_handlers.tensor import blocks

    original = blocks.rearrange
    return lambda ctx, x, before, after, sizes: original(ctx, x, before.replace("pqd", "dpq"), after, sizes)


def _crd_back(original: Any) -> Any:
    return lambda ctx, x, before, after, sizes: original(ctx, x, before, after.replace("pqc", "cpq"), sizes)


MUTATIONS = (
    Mutation(
        "flags change places",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_half_pixel_centers_to_1x1",),
        patches={"op_handlers.image.resize:coordinate_mode": coordinates("half_pixel", "align_corners", "asymmetric")},
    ),
    Mutation(
        "no flag is half_pixel",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_legacy_to_4x9",),
        patches={"op_handlers.image.resize:coordinate_mode": coordinates("align_corners", "half_pixel", "half_pixel")},
    ),
    Mutation(
        "height and width stay in the file's place",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_align_corners_to_3x2",),
        patches={
            "op_handlers.image.resize:output_shape": lambda original: (
                lambda ctx, size, perm: original(ctx, size, sorted(perm))
            )
        },
    ),
    Mutation(
        "places of int16 are not rounded",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-int16_half_pixel_centers_to_4x9",),
        patches={"op_handlers.image.resize:rounded_coordinates": returning(None)},
    ),
    Mutation(
        "halves of 8 bits go to the even one",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-int8_halves_go_up,_to_10x20", "RESIZE_BILINEAR-uint8_halves_go_up,_to_5x10"),
        patches={"op_handlers.image.resize:half_up_offset": returning(0.0)},
    ),
    Mutation(
        "half pixels are rounded to the floor",
        "RESIZE_NEAREST_NEIGHBOR",
        (
            "RESIZE_NEAREST_NEIGHBOR-half_pixel_centers_int8_of_many_pixels_to_an_odd_size_between_convolutions",
            "RESIZE_NEAREST_NEIGHBOR-half_pixel_centers_float32_to_half_the_size,_between_pixels_between_convolutions",
        ),
        patches={"op_handlers.image.resize:nearest_along": round_prefer_floor},
    ),
    Mutation(
        "align_corners rounds halves to even",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-align_corners_to_4x9",),
        patches={"op_handlers.image.resize:nearest_along": half_even},
    ),
    Mutation(
        "8 bits are placed as floats are",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-legacy_int8_2_to_82_columns",),
        patches={"op_handlers.image.resize:uses_fixed_point": returning(False)},
    ),
    Mutation(
        "columns of depth first",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-float32_by_3_between_convolutions",),
        emits={"DepthToSpace": with_attributes(mode="CRD")},
    ),
    Mutation(
        "columns of depth first in the file's order",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-of_one_pixel_between_convolutions",),
        patches={f"{BLOCKS}:rearrange": _crd},
    ),
    Mutation(
        "channels before places",
        "SPACE_TO_DEPTH",
        ("SPACE_TO_DEPTH-float32_by_3_between_convolutions",),
        patches={f"{BLOCKS}:rearrange": _crd_back, f"{BLOCKS}:is_channels_first": returning(False)},
    ),
    Mutation(
        "the batch comes before the place in a block",
        "SPACE_TO_BATCH_ND",
        ("SPACE_TO_BATCH_ND-int8_without_padding",),
        patches={f"{BLOCKS}:axis_patterns": one_axis_pattern("n hp wq c", "npq h w c")},
    ),
    Mutation(
        "columns of a block first",
        "BATCH_TO_SPACE_ND",
        ("BATCH_TO_SPACE_ND-int16_without_crops",),
        patches={f"{BLOCKS}:axis_patterns": one_axis_pattern("n hp wq c", "qpn h w c")},
    ),
    Mutation(
        "integers are padded with 0",
        "SPACE_TO_BATCH_ND",
        ("SPACE_TO_BATCH_ND-uint8_by_2x3",),
        patches={f"{BLOCKS}:padding_value": returning_zero},
    ),
    Mutation(
        "another output scale rescales",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-int8_copied_to_other_parameters,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "another output scale rescales",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-int8_copied_to_other_parameters,_which_the_kernel_ignores",),
        patches={"op_handlers.image.resize:reinterpret_scale": handing_on(1)},
    ),
    Mutation(
        "pixels have no centers where sizes are known as it runs",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-half_pixel_centers_int16,_a_size_known_as_it_runs",),
        options={"half_pixel_centers": False},
    ),
    Mutation(
        "an axis is as long as its blocks are many",
        "SPACE_TO_DEPTH",
        ("SPACE_TO_DEPTH-of_unknown_height_and_width_for_generic",),
        emits={"Div": left_out},
    ),
)
