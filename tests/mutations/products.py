"""Matrix products, and weights of 4 and 2 bits: what goes wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from onnx_tflite_plugin.api import Raw, Terminate, Transparent, format_axes

from .planting import Change, Mutation, returning, with_attributes

MODEL = "onnx_tflite_plugin.source.model"


def _adjoint(x: bool, y: bool) -> Change:
    """The axes of operands that are not turned though the options say so."""

    def axes(at: Any) -> str:
        from op_handlers.matrix.batch_matmul import product_axes

        op = at.op
        adj_x, adj_y = op.options.adj_x and not x, op.options.adj_y and not y
        *operands, result = product_axes(op, "km" if adj_x else "mk", "nk" if adj_y else "kn")
        return format_axes(operands, result)

    return axes


def _own_zero_point(_original: Any) -> Any:
    return lambda ctx, slot: (
        np.asarray(ctx.quantization(slot).zero_point[0], ctx.dtype(slot)) if ctx.quantization(slot) else None
    )


def _highest_bits_first(original: Any) -> Any:
    def unpacked(self: Any, count: int) -> Any:
        whole = original(self, count + -count % 4)
        per_byte = {"int2": 4}.get(self._dtype, 2)
        return whole.reshape(-1, per_byte)[:, ::-1].reshape(-1)[:count]

    return unpacked


def _rows_at_bytes(original: Any) -> Any:
    def unpacked(self: Any, count: int) -> Any:
        row = self._shape[-1]
        wide = row + -row % {"int2": 4}.get(self._dtype, 2)
        return np.resize(original(self, count), (count // row, wide))[:, :row].reshape(-1)

    return unpacked


def _down_the_columns(original: Any) -> Any:
    return lambda self: original(self).reshape(self.scales.shape).T.reshape(-1)


def _one_a_row(original: Any) -> Any:
    return lambda self: np.repeat(original(self).reshape(self.scales.shape)[:, :1], self.scales.shape[-1])


HIGH_BITS_FIRST = {"onnx_tflite_plugin.source.data:Stored._unpacked": _highest_bits_first}


def _unbiased(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.matrix.fully_connected import fully_connected

    return fully_connected(ctx, x, w)


def _transposed_alone(_original: Any) -> Any:
    """Only which axes the TRANSPOSE swaps, not what lies along them."""

    def last_two(match: Any) -> bool:
        axes = next(op for op in match.calls.values() if op.code == "TRANSPOSE").constant(1).tolist()
        return bool(axes == [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2])

    return last_two


MUTATIONS = (
    Mutation(
        "shared matrices are transposed whatever they are reshaped to",
        "BATCH_MATMUL",
        (
            "BATCH_MATMUL-shared_matrices,_no:_reshaped_to_11x5_before_TRANSPOSE",
            "BATCH_MATMUL-shared_matrices,_no:_reshaped_to_1x55_before_TRANSPOSE,_scaled",
        ),
        patches={"op_handlers.fusions.attention:_swaps_last_two": _transposed_alone},
        fusions=True,
    ),
    Mutation(
        "any TRANSPOSE of shared matrices swaps their axes alone",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-shared_matrices,_no:_batches_transposed",),
        patches={"op_handlers.fusions.attention:_swaps_last_two": returning(True)},
        fusions=True,
    ),
    Mutation(
        "TANH and SIGN_BIT are ignored",
        "FULLY_CONNECTED",
        (
            "FULLY_CONNECTED-float32_by_int8_with_a_scale_each_with_TANH",
            "FULLY_CONNECTED-float32_by_int4_with_one_scale_with_SIGN_BIT",
            "FULLY_CONNECTED-one_row_of_many_weights_with_TANH",
            "FULLY_CONNECTED-int8_with_TANH",
        ),
        fields={"activation": "fused_activation_function"},
    ),
    Mutation(
        "adj_x is not looked at", "BATCH_MATMUL", ("BATCH_MATMUL-square_adj_x",), fields={"axes": _adjoint(True, False)}
    ),
    Mutation(
        "adj_y is not looked at", "BATCH_MATMUL", ("BATCH_MATMUL-square_adj_y",), fields={"axes": _adjoint(False, True)}
    ),
    Mutation(
        "zero points count in int32",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-int8_by_constants_to_int32",),
        patches={"op_handlers.matrix.batch_matmul:zero_point_shift": _own_zero_point},
    ),
    Mutation(
        "the last axis is the row",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-rank_3,_a_row_across_axes",),
        fields={"reshapes": {}},
    ),
    *(
        Mutation("the first element is in the highest bits", cases[0].partition("-")[0], cases, patches=HIGH_BITS_FIRST)
        for cases in (
            (
                "FULLY_CONNECTED-float32_by_int4_rows_of_13_with_a_scale_each",
                "FULLY_CONNECTED-int8_by_int2_rows_of_13_with_one_scale",
                "FULLY_CONNECTED-int16_by_int4_rows_of_13_with_one_scale",
                "FULLY_CONNECTED-three_blocks_of_32",
                "FULLY_CONNECTED-three_blocks_of_32,_folded",
            ),
            (
                "CONV_2D-float32_by_int4_with_one_scale",
                "CONV_2D-int8_by_int4_with_a_scale_each",
                "CONV_2D-int16_by_int4_in_three_groups",
            ),
            ("DEPTHWISE_CONV_2D-int8_by_int4_with_a_scale_each",),
            (
                "EMBEDDING_LOOKUP-int4_to_float32_with_one_scale",
                "EMBEDDING_LOOKUP-int2_to_float16_with_a_scale_each",
                "EMBEDDING_LOOKUP-int2_to_float32_in_blocks_of_4",
            ),
        )
    ),
    Mutation(
        "every row begins with a byte",
        "FULLY_CONNECTED",
        (
            "FULLY_CONNECTED-float32_by_int4_rows_of_13_with_one_scale",
            "FULLY_CONNECTED-int8_by_int4_rows_of_13_with_a_scale_each",
            "FULLY_CONNECTED-float32_by_int2_rows_of_13_with_a_scale_each",
        ),
        patches={"onnx_tflite_plugin.source.data:Stored._unpacked": _rows_at_bytes},
    ),
    *(
        Mutation(trap, cases[0].partition("-")[0], cases, patches={f"{MODEL}:BlockwiseQuantization.flat": change})
        for trap, change in (
            ("blocks count down the columns", _down_the_columns),
            ("a row has one scale", _one_a_row),
            (
                "scales are bfloat16",
                lambda _: lambda self: self.scales.array.view(bfloat16).astype(np.float32).reshape(-1),
            ),
        )
        for cases in (
            (
                "FULLY_CONNECTED-three_blocks_of_32",
                "FULLY_CONNECTED-three_blocks_of_32,_folded",
                "FULLY_CONNECTED-blocks_of_11,_which_end_within_a_byte",
                "FULLY_CONNECTED-blocks_of_96,_which_are_three_of_32",
            ),
            (
                "EMBEDDING_LOOKUP-int4_to_float32_in_blocks_of_4",
                "EMBEDDING_LOOKUP-int4_to_float32_in_blocks,_folded",
            ),
        )
    ),
    Mutation(
        "blocks are cut as the columns are",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-blocks_after_a_flatten",),
        fields={
            "layout": Terminate(unordered="k"),
            "axes": "n k, o k, o -> n o",
            "lower": lambda ctx, x, w, b=None: ctx.ops.Gemm(x, w, b, transB=1),
        },
        patches={"onnx_tflite_plugin.lowering.values:has_split_axis": returning(False)},
    ),
    Mutation(
        "uint8 is what the file says",
        "EMBEDDING_LOOKUP",
        ("EMBEDDING_LOOKUP-uint8_to_float32,_which_the_kernel_reads_as_int8",),
        patches={
            "op_handlers.tensor.indexing:rows_and_scales": lambda original: (
                lambda op: (op[1].array.astype(np.int16), original(op)[1]) if op[1].dtype == "uint8" else original(op)
            )
        },
    ),
    Mutation(
        "one scale for the table",
        "EMBEDDING_LOOKUP",
        ("EMBEDDING_LOOKUP-int8_to_float32_with_a_scale_each", "EMBEDDING_LOOKUP-int4_to_float32_in_rows_of_two_axes"),
        patches={
            "op_handlers.tensor.indexing:rows_and_scales": lambda original: (
                lambda op: (original(op)[0], np.full_like(original(op)[1], original(op)[1].reshape(-1)[0]))
            )
        },
    ),
    Mutation(
        "the activation is left out",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-float32_with_RELU",),
        fields={"activation": None},
    ),
    Mutation(
        "the bias is left out",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-rank_3,_a_row_of_two_axes",),
        fields={"lower": _unbiased},
    ),
    Mutation(
        "the weight's columns stay where the input's elements move",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-many_rows_after_a_flatten",),
        fields={"axes": "... , o k, o -> ... o", "layout": Transparent()},
    ),
    Mutation(
        "weights are activations of other parameters",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-int8_[2,_3,_5,_7]_by_[7,_3]",),
        fields={"quantization": Raw()},
    ),
    Mutation(
        "what the storage adds is multiplied too",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-int8_to_int32_between_convolutions",),
        patches={"op_handlers.matrix.batch_matmul:zero_point_shift": returning(None)},
    ),
    Mutation(
        "a size of 0 is that of the rows",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-float32_with_RELU_N1_TO_1,_leading_axes_of_unknown_size",),
        emits={"Reshape": with_attributes(allowzero=None)},
    ),
)
