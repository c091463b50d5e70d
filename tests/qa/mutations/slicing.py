"""Planted bugs in operators that slice, concatenate and gather."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Dequantized, Raw
from tests.qa.mutations.planting import Mutation, file_axis, leave_out, with_attributes


def _split_data_first(ctx: Any, x: Any, _axis: Any) -> Any:
    from op_handlers.tensor.splitting import emit_split

    return emit_split(ctx, x, slot=1, data_slot=0)


def _second_branch(_emit: Any, _condition: Any, _x: Any, y: Any) -> Any:
    return y


def _use_size_literally(ctx: Any, x: Any, begin: Any, size: Any) -> Any:
    """Treat size -1 as a number instead of "to the end"."""
    first, length = (ctx.ops.Cast(value, to="int64") for value in (begin, size))
    return ctx.ops.Slice(x, first, ctx.ops.Add(first, length), list(range(ctx.op[0].rank)))


MUTATIONS = (
    Mutation(
        "the axis is not mapped to the layout", "CONCATENATION", ("CONCATENATION-rank_5",), sees={"axis": file_axis}
    ),
    Mutation(
        "uint8 with different scales is not requantized",
        "CONCATENATION",
        ("CONCATENATION-uint8_with_different_scales,_which_are_requantized",),
        fields={"quantization": Raw(onnx="Concat")},
    ),
    Mutation(
        "data is the first operand",
        "SPLIT",
        ("SPLIT-rank_1",),
        fields={"axis_number_slots": {1}, "requires_constant": {1}, "lower": _split_data_first},
    ),
    Mutation("the axis is not mapped to the layout", "SPLIT_V", ("SPLIT_V-rank_5",), fields={"axis_number_slots": ()}),
    Mutation("-1 is a size", "SPLIT_V", ("SPLIT_V-runtime_sizes_(1,_-1,_2)",), emits={"Where": _second_branch}),
    Mutation("-1 is a size", "SLICE", ("SLICE-bool",), fields={"lower": _use_size_literally}),
    Mutation(
        "begin and size are not permuted to the layout",
        "SLICE",
        ("SLICE-dynamic_batch", "SLICE-equal_dimensions_between_convolutions"),
        fields={"indexed_by_axis": {}},
    ),
    Mutation(
        "batch dimensions are ignored",
        "GATHER",
        ("GATHER-dynamic_batch_axis_of_data_and_indices",),
        emits={"GatherND": with_attributes(batch_dims=0)},
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "GATHER",
        ("GATHER-dynamic_batch", "GATHER-equal_dimensions,_along_axis_1_between_convolutions"),
        sees={"axis": file_axis},
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "SPLIT",
        ("SPLIT-float32_axis_1_between_convolutions",),
        fields={"axis_number_slots": ()},
    ),
    Mutation(
        "axes are not mapped to the layout",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-float32_strides_above_1_between_convolutions",),
        sees={"axis": file_axis},
    ),
    *(
        Mutation(
            "the result is rescaled to a different output scale",
            code,
            (f"{code}-int8,_input_and_output_with_different_quantization_parameters,_which_the_kernel_ignores",),
            fields={"quantization": Dequantized()},
        )
        for code in ("STRIDED_SLICE", "SPLIT", "SPLIT_V")
    ),
    Mutation(
        "masks beyond the entries are accepted",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-new_axes_beyond_the_entries",),
        fields={"accepts": None},
    ),
    Mutation(
        "new axes are left out for dynamic shapes",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-new_and_dropped_axes_of_dynamic_shape",),
        emits={"Unsqueeze": leave_out},
    ),
    Mutation(
        "the offset of rows is left out",
        "DYNAMIC_UPDATE_SLICE",
        ("DYNAMIC_UPDATE_SLICE-rows_of_an_inner_axis",),
        emits={"Add": leave_out},
    ),
)
