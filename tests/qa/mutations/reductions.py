"""Planted bugs in reductions."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Dequantized, Raw, SameScale
from tests.qa.mutations.planting import Mutation, leave_out, with_attributes


def _round_mean(ctx: Any, x: Any, axes: Any) -> Any:
    from op_handlers.kernels.reductions import emit_reduction

    if ctx.op[0].dtype not in ("int32", "int64"):
        return emit_reduction(ctx, "ReduceMean", x, axes)
    mean = emit_reduction(ctx, "ReduceMean", ctx.ops.Cast(x, to="float32"), axes)
    return ctx.ops.Cast(ctx.ops.Round(mean), to=ctx.op[0].dtype)


MUTATIONS = (
    *(
        Mutation(
            "a scalar axis is not reshaped to a list",
            code,
            (f"{code}-a_scalar_axis_known_at_runtime",),
            emits={"Reshape": leave_out},
        )
        for code in ("SUM", "REDUCE_MAX")
    ),
    Mutation("keep_dims is ignored", "MEAN", ("MEAN-axes_[1]_kept",), options={"keep_dims": False}),
    Mutation("axes are not mapped to the layout", "MEAN", ("MEAN-rank_3_kept",), fields={"axis_number_slots": ()}),
    Mutation(
        "the result is rescaled to a different output scale",
        "REDUCE_MIN",
        ("REDUCE_MIN-uint8_to_a_different_scale,_which_XNNPACK_ignores_kept",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "ARG_MAX",
        ("ARG_MAX-an_axis_of_rank_1",),
        fields={"axis_number_slots": ()},
    ),
    Mutation(
        "the last of equal values",
        "ARG_MAX",
        ("ARG_MAX-int8_axis_1",),
        emits={"ArgMax": with_attributes(select_last_index=1)},
    ),
    Mutation(
        "integers are rounded", "MEAN", ("MEAN-int32,_truncated_toward_zero_kept",), fields={"lower": _round_mean}
    ),
    Mutation("quantized values are summed", "SUM", ("SUM-int8_kept",), fields={"quantization": Raw()}),
    Mutation(
        "the result is rescaled to a different output scale",
        "REDUCE_MAX",
        ("REDUCE_MAX-uint8_to_a_different_scale,_which_XNNPACK_ignores_kept",),
        fields={"quantization": Dequantized()},
    ),
    *(
        Mutation(
            "different parameters are rescaled",
            code,
            (f"{code}-int8_to_a_different_scale,_which_XNNPACK_ignores_kept",),
            fields={"quantization": SameScale()},
        )
        for code in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    Mutation(
        "axes are not mapped to the layout",
        "REDUCE_MAX",
        ("REDUCE_MAX-axes_[1]_kept_between_convolutions",),
        fields={"axis_number_slots": ()},
    ),
    Mutation("keep_dims is ignored", "REDUCE_MIN", ("REDUCE_MIN-axes_[1]_kept",), options={"keep_dims": False}),
    Mutation(
        "the result has an unknown rank",
        "REDUCE_PROD",
        ("REDUCE_PROD-result_without_rank,_keep_dims_False",),
        fields={"result_shape": None},
    ),
    Mutation(
        "an axis named twice counts twice",
        "REDUCE_PROD",
        ("REDUCE_PROD-repeated_axis_known_at_runtime",),
        emits={"Min": leave_out},
    ),
    Mutation(
        "transforms of length 1 are accepted",
        "RFFT2D",
        ("RFFT2D-transforms_of_length_1",),
        fields={"accepts": None},
    ),
    Mutation("empty inputs are not padded", "RFFT2D", ("RFFT2D-zero_rows",), emits={"Pad": leave_out}),
)
