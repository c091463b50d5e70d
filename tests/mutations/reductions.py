"""Reductions: what goes wrong with them."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Dequantized, Raw, SameScale

from .planting import Mutation, left_out, returning, with_attributes


def _all_of_none(original: Any) -> Any:
    """No axes are all axes, which is ONNX's default."""

    def reduced(ctx: Any, onnx: str, x: Any, axes: Any) -> Any:
        held = ctx.constant(1)
        if held is None or held.size or not ctx.op[0].rank:
            return original(ctx, onnx, x, axes)
        return getattr(ctx.ops, onnx)(x, keepdims=int(bool(ctx.options.keep_dims)))

    return reduced


def _rounded(ctx: Any, x: Any, axes: Any) -> Any:
    from op_handlers.math.reduction import emit_reduction

    if ctx.op[0].dtype not in ("int32", "int64"):
        return emit_reduction(ctx, "ReduceMean", x, axes)
    mean = emit_reduction(ctx, "ReduceMean", ctx.ops.Cast(x, to="float32"), axes)
    return ctx.ops.Cast(ctx.ops.Round(mean), to=ctx.op[0].dtype)


def _along_the_last(_original: Any) -> Any:
    """Elements along the last axis, whatever axes are before it."""
    return lambda match, operand: match[operand].shape[-1] if operand in match.tensors else None


MUTATIONS = (
    Mutation(
        "a normalization's scale and offset may have several rows",
        "MEAN",
        (
            "MEAN-no_LayerNormalization_of_PyTorch_with_a_scale_of_7x3",
            "MEAN-no_LayerNormalization_of_PyTorch_with_an_offset_of_5x7x3",
            "MEAN-no_LayerNormalization_of_litert-torch,_with_a_scale_of_5x7",
            "MEAN-no_RMSNormalization_with_a_scale_of_5x1x3",
        ),
        patches={"op_handlers.fusions.normalization:_row_size": _along_the_last},
        fusions=True,
    ),
    Mutation(
        "one axis of one element is enough",
        "REDUCE_ALL",
        ("REDUCE_ALL-axes_of_one_element_and_of_several_dropped",),
        patches={"op_handlers.math.reduction:is_reshape": returning(True)},
    ),
    Mutation(
        "no axes are all axes",
        "REDUCE_MAX",
        ("REDUCE_MAX-no_axes_dropped",),
        patches={"op_handlers.math.reduction:emit_reduction": _all_of_none},
    ),
    Mutation(
        "no axes are all axes",
        "SUM",
        ("SUM-uint8_without_axes_kept",),
        patches={"op_handlers.math.reduction:emit_reduction": _all_of_none},
    ),
    *(
        Mutation(
            "a scalar axis is no list", code, (f"{code}-a_scalar_axis_known_as_it_runs",), emits={"Reshape": left_out}
        )
        for code in ("SUM", "REDUCE_MAX")
    ),
    Mutation("keep_dims is not looked at", "MEAN", ("MEAN-axes_[1]_kept",), options={"keep_dims": False}),
    Mutation(
        "the pool of integers takes every scale",
        "MEAN",
        ("MEAN-int8_axes_[1,_2]_at_1e+09_of_the_scale_kept_between_convolutions",),
        patches={"op_handlers.math.reduction:can_pool": returning(True)},
    ),
    Mutation("the axes are the file's", "MEAN", ("MEAN-rank_3_kept",), fields={"holds_axes": ()}),
    Mutation(
        "another output scale rescales",
        "REDUCE_MIN",
        ("REDUCE_MIN-uint8_to_another_scale,_which_XNNPACK_ignores_kept",),
        fields={"quantization": Dequantized()},
    ),
    Mutation("the axis is the file's", "ARG_MAX", ("ARG_MAX-an_axis_as_a_list",), fields={"holds_axes": ()}),
    Mutation(
        "the last of equals",
        "ARG_MAX",
        ("ARG_MAX-int8_axis_1",),
        emits={"ArgMax": with_attributes(select_last_index=1)},
    ),
    Mutation(
        "no axes are all axes",
        "MEAN",
        ("MEAN-no_axes_kept_between_convolutions",),
        patches={"op_handlers.math.reduction:emit_reduction": _all_of_none},
    ),
    Mutation("integers are rounded", "MEAN", ("MEAN-int32,_divided_towards_zero_kept",), fields={"lower": _rounded}),
    Mutation("stored integers are summed", "SUM", ("SUM-int8_kept",), fields={"quantization": Raw()}),
    Mutation(
        "another output scale rescales",
        "REDUCE_MAX",
        ("REDUCE_MAX-uint8_to_another_scale,_which_XNNPACK_ignores_kept",),
        fields={"quantization": Dequantized()},
    ),
    *(
        Mutation(
            "parameters that differ rescale",
            code,
            (f"{code}-int8_to_another_scale,_which_XNNPACK_ignores_kept",),
            fields={"quantization": SameScale()},
        )
        for code in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    Mutation(
        "the axes are the file's",
        "REDUCE_MAX",
        ("REDUCE_MAX-axes_[1]_kept_between_convolutions",),
        fields={"holds_axes": ()},
    ),
    Mutation("keep_dims is not looked at", "REDUCE_MIN", ("REDUCE_MIN-axes_[1]_kept",), options={"keep_dims": False}),
    Mutation(
        "the rank of a result is whatever a Reshape takes",
        "REDUCE_PROD",
        ("REDUCE_PROD-a_result_of_no_rank,_dropped",),
        fields={"sizes": None},
    ),
    Mutation(
        "an axis named twice counts twice",
        "REDUCE_PROD",
        ("REDUCE_PROD-one_axis_twice,_known_as_it_runs",),
        emits={"Min": left_out},
    ),
    Mutation(
        "factors are taken from other results",
        "REDUCE_PROD",
        ("REDUCE_PROD-int8,_axes_[[1,_-1],_[3,_-2],_[0,_2]]_known_as_it_runs_at_1_kept",),
        patches={
            "op_handlers.math.product:table_strides": lambda original: (
                lambda sizes, reduces: original(sizes, [1 - reduced for reduced in reduces])
            )
        },
    ),
    Mutation(
        "rows of one number are rows as others",
        "RFFT2D",
        ("RFFT2D-rows_of_one_number",),
        fields={"accepts": None},
    ),
    Mutation("nothing is transformed as it is", "RFFT2D", ("RFFT2D-of_no_rows",), emits={"Pad": left_out}),
)
