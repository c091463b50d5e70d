"""Planted bugs in operators that reshape, stack, repeat and pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized
from tests.qa.mutations.planting import Mutation, file_axis


def _axis_of_operand(ctx: Any, axis: int, slot: int = 0) -> int:
    """Count a negative axis in the axes of input 0 instead of the result."""
    return int(ctx.axis(axis % ctx.op[0].rank if axis < 0 and ctx.op[0].rank else axis, slot))


def _interleave_pads(emit: Any, x: Any, pads: Any, *rest: Any, **attributes: Any) -> Any:
    return emit(x, pads.reshape(2, -1).T.reshape(-1) if isinstance(pads, np.ndarray) else pads, *rest, **attributes)


def _drop_pad_value(emit: Any, x: Any, pads: Any, _value: Any = None, **attributes: Any) -> Any:
    return emit(x, pads, **attributes)


MUTATIONS = (
    Mutation("the shape of the planned layout", "SHAPE", ("SHAPE-static,_int32",), fields={"indexed_by_axis": {}}),
    Mutation("the axis is not mapped to the layout", "EXPAND_DIMS", ("EXPAND_DIMS-bool",), sees={"axis": file_axis}),
    Mutation(
        "a negative axis counts in the operand's axes",
        "EXPAND_DIMS",
        ("EXPAND_DIMS-axis_-2",),
        sees={"axis": _axis_of_operand},
    ),
    Mutation(
        "a negative axis counts in the operands' axes", "PACK", ("PACK-axis_-4",), sees={"axis": _axis_of_operand}
    ),
    Mutation("the axis is not mapped to the layout", "PACK", ("PACK-one_operand",), sees={"axis": file_axis}),
    Mutation(
        "the axis is not mapped to the layout",
        "UNPACK",
        ("UNPACK-one_result", "UNPACK-equal_dimensions,_along_axis_1"),
        sees={"axis": file_axis},
    ),
    Mutation(
        "multiples are not permuted to the layout",
        "TILE",
        ("TILE-int8_to_different_quantization_parameters,_which_the_kernel_ignores",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation("paddings are not permuted to the layout", "PAD", ("PAD-rank_3",), fields={"indexed_by_axis": {}}),
    Mutation("begin and end of paddings are interleaved", "PAD", ("PAD-rank_2",), emits={"Pad": _interleave_pads}),
    Mutation(
        "the padding value is left out", "PADV2", ("PADV2-float32,_height_and_width",), emits={"Pad": _drop_pad_value}
    ),
    Mutation(
        "perm is not mapped to the layout",
        "TRANSPOSE",
        ("TRANSPOSE-rank_6",),
        fields={"lower": lambda ctx, x, _perm: ctx.ops.Transpose(x, perm=[int(p) for p in ctx.op.constant(1)])},
    ),
    Mutation(
        "all axes of size 1 are removed",
        "SQUEEZE",
        ("SQUEEZE-float32",),
        fields={"lower": lambda ctx, x: ctx.ops.Squeeze(x)},
    ),
    *(
        Mutation(
            "the result is rescaled to a different output scale",
            code,
            (f"{code}-int8,_input_and_output_with_different_quantization_parameters,_which_the_kernel_ignores",),
            fields={"quantization": Dequantized()},
        )
        for code in ("RESHAPE", "SQUEEZE", "TRANSPOSE")
    ),
    Mutation(
        "a result without rank has the operand's shape",
        "BROADCAST_TO",
        ("BROADCAST_TO-result_without_rank,_scalar_operand",),
        fields={"result_shape": None},
    ),
)
