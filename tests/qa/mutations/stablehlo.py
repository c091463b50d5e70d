"""Planted bugs in StableHLO operators, windows and composites."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized
from tests.qa.mutations.planting import Mutation, leave_out, with_attributes


def include_padding(emit: Any, *operands: Any, **attributes: Any) -> Any:
    return emit(*operands, **{**attributes, "count_include_pad": 1})


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "operands are dequantized",
        "STABLEHLO_ADD",
        ("STABLEHLO_ADD-int8_with_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation("the operation is left out", "STABLEHLO_AND", ("STABLEHLO_AND-int32",), emits={"BitwiseAnd": leave_out}),
    Mutation(
        "the shift is to the right",
        "STABLEHLO_SHIFT_LEFT",
        ("STABLEHLO_SHIFT_LEFT-int8", "STABLEHLO_SHIFT_LEFT-int32"),
        emits={"BitShift": with_attributes(direction="RIGHT")},
    ),
    Mutation(
        "negative padding is ignored",
        "STABLEHLO_PAD",
        ("STABLEHLO_PAD-int8_image,_cropped_between_convolutions",),
        emits={"Slice": leave_out},
    ),
    Mutation(
        "updates out of bounds go to the last element",
        "STABLEHLO_SCATTER",
        ("STABLEHLO_SCATTER-windows_partly_out_of_bounds,_add",),
        emits={"Where": lambda emit, fits, indices, count: emit(fits, indices, np.int64(count - 1))},
    ),
    Mutation(
        "cumulative sums ignore the direction",
        "STABLEHLO_REDUCE_WINDOW",
        ("STABLEHLO_REDUCE_WINDOW-float32,_cumulative_sums_from_the_end",),
        emits={"CumSum": with_attributes(reverse=0)},
    ),
    Mutation(
        "the mean includes the padding", "L2_POOL_2D", ("L2_POOL_2D-SAME_3x2",), emits={"AveragePool": include_padding}
    ),
    Mutation("the root is left out", "L2_POOL_2D", ("L2_POOL_2D-VALID_3x2",), emits={"Sqrt": leave_out}),
    Mutation(
        "alpha scales the mean instead of the sum",
        "LOCAL_RESPONSE_NORMALIZATION",
        ("LOCAL_RESPONSE_NORMALIZATION-radius_2",),
        emits={"LRN": lambda emit, x, *, size, alpha, **rest: emit(x, size=size, alpha=alpha / size, **rest)},
    ),
)
