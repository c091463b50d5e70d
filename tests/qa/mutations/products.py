"""Planted bugs in matrix products and 4-bit and 2-bit weights."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Raw, Transparent, format_axes
from tests.qa.mutations.planting import Change, Mutation, with_attributes


def _ignore_adjoint(x: bool, y: bool) -> Change:
    """Return the axes without the transpositions of the adjoint options."""

    def axes(at: Any) -> str:
        from op_handlers.matrix.batch_matmul import product_axes

        op = at.op
        adj_x, adj_y = op.options.adj_x and not x, op.options.adj_y and not y
        *operands, result = product_axes(op, "km" if adj_x else "mk", "nk" if adj_y else "kn")
        return format_axes(operands, result)

    return axes


def _drop_bias(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.matrix.fully_connected import fully_connected

    return fully_connected(ctx, x, w)


MUTATIONS = (
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
        "adj_x is ignored",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-square_adj_x",),
        fields={"axes": _ignore_adjoint(True, False)},
    ),
    Mutation(
        "adj_y is ignored",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-square_adj_y",),
        fields={"axes": _ignore_adjoint(False, True)},
    ),
    Mutation(
        "a row is always the last axis",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-rank_3,_a_row_across_axes",),
        fields={"reshapes": {}},
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
        fields={"lower": _drop_bias},
    ),
    Mutation(
        "columns of the weights are not permuted like the input",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-many_rows_after_a_flatten",),
        fields={"axes": "... , o k, o -> ... o", "layout": Transparent()},
    ),
    Mutation(
        "operands with different parameters are not dequantized",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-int8_[2,_3,_5,_7]_by_[7,_3]",),
        fields={"quantization": Raw()},
    ),
    Mutation(
        "a size of 0 copies the input's size",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-float32_with_RELU_N1_TO_1,_dynamic_leading_axes",),
        emits={"Reshape": with_attributes(allowzero=None)},
    ),
)
