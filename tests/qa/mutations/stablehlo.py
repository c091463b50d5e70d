"""Planted bugs in StableHLO operators, windows and composites."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized
from tests.qa.mutations.planting import Mutation, leave_out, with_attributes


def counts_all(true: Any, *operands: Any, **attributes: Any) -> Any:
    return true(*operands, **{**attributes, "count_include_pad": 1})


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "scales are looked at",
        "STABLEHLO_ADD",
        ("STABLEHLO_ADD-int8_with_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation("bits are joined", "STABLEHLO_AND", ("STABLEHLO_AND-int32",), emits={"BitwiseAnd": leave_out}),
    Mutation(
        "shifted to the right",
        "STABLEHLO_SHIFT_LEFT",
        ("STABLEHLO_SHIFT_LEFT-int8", "STABLEHLO_SHIFT_LEFT-int32"),
        emits={"BitShift": with_attributes(direction="RIGHT")},
    ),
    Mutation(
        "a negative edge is none",
        "STABLEHLO_PAD",
        ("STABLEHLO_PAD-int8_image,_cropped_between_convolutions",),
        emits={"Slice": leave_out},
    ),
    Mutation(
        "what is beyond the ends goes to the last element",
        "STABLEHLO_SCATTER",
        ("STABLEHLO_SCATTER-windows_partly_out_of_bounds,_add",),
        emits={"Where": lambda true, fits, places, count: true(fits, places, np.int64(count - 1))},
    ),
    Mutation(
        "every sum over a whole axis starts at its beginning",
        "STABLEHLO_REDUCE_WINDOW",
        ("STABLEHLO_REDUCE_WINDOW-float32,_sums_from_the_end",),
        emits={"CumSum": with_attributes(reverse=0)},
    ),
    Mutation("padding counts", "L2_POOL_2D", ("L2_POOL_2D-SAME_3x2",), emits={"AveragePool": counts_all}),
    Mutation("the root of the sum", "L2_POOL_2D", ("L2_POOL_2D-VALID_3x2",), emits={"Sqrt": leave_out}),
    Mutation(
        "alpha weighs the mean",
        "LOCAL_RESPONSE_NORMALIZATION",
        ("LOCAL_RESPONSE_NORMALIZATION-radius_2",),
        emits={"LRN": lambda true, x, *, size, alpha, **rest: true(x, size=size, alpha=alpha / size, **rest)},
    ),
)
