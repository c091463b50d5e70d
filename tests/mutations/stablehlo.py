"""StableHLO operators, windows and composites: what goes wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized
from op_handlers.stablehlo.windows import gather_windows

from .planting import Mutation, handing_on, left_out, returning, with_attributes

INDEXING = "op_handlers.stablehlo.indexing"
PADDING = "op_handlers.stablehlo.padding"
WINDOWS = "op_handlers.stablehlo.windows"
RANDOM = "op_handlers.stablehlo.random"


def saturated(original: Any) -> Any:
    """Integers stay within their dtype instead of wrapping."""

    def wrapped(ctx: Any, onnx: str, x: Any, y: Any) -> Any:
        dtype = ctx.op[0].dtype
        if dtype != "int8":
            return original(ctx, onnx, x, y)
        wide = getattr(ctx.ops, onnx)(*(ctx.ops.Cast(operand, to="int32") for operand in (x, y)))
        return ctx.ops.Cast(ctx.ops.Max(ctx.ops.Min(wide, np.int32(127)), np.int32(-128)), to=dtype)

    return wrapped


def in_onnx_order(original: Any) -> Any:
    """ONNX's Max, which hands every NaN on."""
    return lambda ctx, onnx, x, y: getattr(ctx.ops, onnx)(x, y)


def one_behind(original: Any) -> Any:
    """A number behind the last element too."""
    return lambda size, low, high, interior: np.concatenate(
        [original(size, low, high, interior)[1:], np.asarray([size])]
    )


def unclipped(original: Any) -> Any:
    """Starts as they are, brought into the axis alone."""
    return lambda ctx, indices: ctx.ops.Max(ctx.ops.Min(indices, np.int32(4)), np.int32(0))


def without_start(original: Any) -> Any:
    """The initial value is taken for the reduction's neutral element."""
    return lambda ctx, x, start, *rest: original(ctx, x, np.zeros((), ctx.op[0].dtype), *rest)


def counts_all(true: Any, *operands: Any, **attributes: Any) -> Any:
    return true(*operands, **{**attributes, "count_include_pad": 1})


def past_the_last(_original: Any) -> Any:
    """Elements after the last one, where there are none."""

    def places(size: int, low: int, high: int, interior: int) -> Any:
        at = np.arange(-low, max((size - 1) * (interior + 1) + 1, 0) + high)
        return np.where((at % (interior + 1) == 0) & (at >= 0), at // (interior + 1), size).astype(np.int64)

    return places


def before_the_first(_original: Any) -> Any:
    """Elements before the first one, which count from the end."""

    def places(size: int, low: int, high: int, interior: int) -> Any:
        span = max((size - 1) * (interior + 1) + 1, 0)
        at = np.arange(-low, span + high)
        return np.where((at % (interior + 1) == 0) & (at < span), at // (interior + 1), size).astype(np.int64)

    return places


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "elements go on after the last",
        "STABLEHLO_PAD",
        ("STABLEHLO_PAD-4_after,_1_between_elements", "STABLEHLO_PAD-13_after,_3_between_elements"),
        patches={f"{PADDING}:source_indices": past_the_last},
    ),
    Mutation(
        "elements begin before the first",
        "STABLEHLO_PAD",
        ("STABLEHLO_PAD-4_before,_1_between_elements", "STABLEHLO_PAD-13_before,_3_between_elements"),
        patches={f"{PADDING}:source_indices": before_the_first},
    ),
    Mutation(
        "sums saturate",
        "STABLEHLO_ADD",
        ("STABLEHLO_ADD-int8_at_its_ends",),
        patches={"op_handlers.stablehlo.elementwise:emit_wrapping": saturated},
    ),
    Mutation(
        "products saturate",
        "STABLEHLO_MULTIPLY",
        ("STABLEHLO_MULTIPLY-int8_at_its_ends",),
        patches={"op_handlers.stablehlo.elementwise:emit_wrapping": saturated},
    ),
    Mutation(
        "scales are looked at",
        "STABLEHLO_ADD",
        ("STABLEHLO_ADD-int8_with_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    *(
        Mutation(
            "NaN comes through",
            code,
            (f"{code}-no_number",),
            patches={"op_handlers.stablehlo.elementwise:emit_std_extreme": in_onnx_order},
        )
        for code in ("STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
    ),
    Mutation("bits are joined", "STABLEHLO_AND", ("STABLEHLO_AND-int32",), emits={"BitwiseAnd": left_out}),
    Mutation(
        "shifted to the right",
        "STABLEHLO_SHIFT_LEFT",
        ("STABLEHLO_SHIFT_LEFT-int8", "STABLEHLO_SHIFT_LEFT-int32"),
        emits={"BitShift": with_attributes(direction="RIGHT")},
    ),
    *(
        Mutation("a number behind the last element", code, cases, patches={f"{PADDING}:source_indices": one_behind})
        for code, cases in (("STABLEHLO_PAD", ("STABLEHLO_PAD-float32",)), ("DILATE", ("DILATE-float32",)))
    ),
    Mutation(
        "a negative edge is none",
        "STABLEHLO_PAD",
        ("STABLEHLO_PAD-int8_image,_cropped_between_convolutions",),
        emits={"Slice": left_out},
    ),
    Mutation(
        "starts are not moved",
        "STABLEHLO_GATHER",
        ("STABLEHLO_GATHER-one_slice",),
        patches={f"{INDEXING}:start_vectors": unclipped},
    ),
    Mutation(
        "the result's axes stay where Gather leaves them",
        "STABLEHLO_GATHER",
        ("STABLEHLO_GATHER-windows_of_two_axes,_in_another_order",),
        patches={f"{INDEXING}:transpose": handing_on(1)},
    ),
    Mutation(
        "updates replace",
        "STABLEHLO_SCATTER",
        ("STABLEHLO_SCATTER-float32_rows,_many_to_one,_add",),
        patches={f"{INDEXING}:scatter_reduction": returning("none")},
    ),
    Mutation(
        "what is beyond the ends goes to the last element",
        "STABLEHLO_SCATTER",
        ("STABLEHLO_SCATTER-windows_partly_beyond_the_ends,_add",),
        emits={"Where": lambda true, fits, places, count: true(fits, places, np.int64(count - 1))},
    ),
    Mutation(
        "the initial value is nothing",
        "STABLEHLO_REDUCE_WINDOW",
        ("STABLEHLO_REDUCE_WINDOW-ADD_float32",),
        patches={f"{WINDOWS}:reduce_windows": without_start},
    ),
    Mutation(
        "every sum over a whole axis starts at its beginning",
        "STABLEHLO_REDUCE_WINDOW",
        ("STABLEHLO_REDUCE_WINDOW-float32,_sums_from_here_on",),
        emits={"CumSum": with_attributes(reverse=0)},
    ),
    Mutation(
        "integers are multiplied by ReduceProd",
        "REDUCE_WINDOW",
        ("REDUCE_WINDOW-MUL_int16",),
        patches={
            f"{WINDOWS}:combine_elements": lambda original: (
                lambda ctx, x, places, combine: ctx.ops.ReduceProd(
                    gather_windows(ctx, x, places),
                    np.asarray([k + s + 1 for s, k in enumerate(places)]),
                    keepdims=0,
                )
            )
        },
    ),
    Mutation(
        "the counter does not carry",
        "STABLEHLO_RNG_BIT_GENERATOR",
        ("STABLEHLO_RNG_BIT_GENERATOR-THREEFRY_uint32", "STABLEHLO_RNG_BIT_GENERATOR-PHILOX_int64"),
        patches={f"{RANDOM}:Bits.high": lambda original: lambda self, x: self.ops.Mul(x, np.int64(0))},
    ),
    Mutation("padding counts", "L2_POOL_2D", ("L2_POOL_2D-SAME_3x2",), emits={"AveragePool": counts_all}),
    Mutation("the root of the sum", "L2_POOL_2D", ("L2_POOL_2D-VALID_3x2",), emits={"Sqrt": left_out}),
    Mutation(
        "alpha weighs the mean",
        "LOCAL_RESPONSE_NORMALIZATION",
        ("LOCAL_RESPONSE_NORMALIZATION-radius_2",),
        emits={"LRN": lambda true, x, *, size, alpha, **rest: true(x, size=size, alpha=alpha / size, **rest)},
    ),
    Mutation(
        "sums of integers do not wrap",
        "STABLEHLO_REDUCE_WINDOW",
        ("STABLEHLO_REDUCE_WINDOW-int64,_sums_that_wrap",),
        patches={"op_handlers.stablehlo.windows:APART": lambda original: {**original, "int64": ("MUL",)}},
    ),
)
