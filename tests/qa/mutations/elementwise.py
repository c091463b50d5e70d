"""Planted bugs in elementwise operators, Softmax and normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import ActivationKernel, Dequantized, FusedActivation, Raw
from tests.qa.mutations.planting import Mutation, file_axis, leave_out, with_attributes


def _multiply_by_beta(ctx: Any, value: Any) -> Any:
    return ctx.ops.Mul(value, ctx.scalar(ctx.options.beta))


def _max_of_both(ctx: Any, x: Any) -> Any:
    return ctx.ops.Max(x, ctx.ops.Mul(x, float(ctx.options.alpha)))


def _floor_quotient(ctx: Any, x: Any, y: Any) -> Any:
    if ctx.op[0].dtype != "int32":
        return ctx.ops.Div(x, y)
    quotient = ctx.ops.Div(*(ctx.ops.Cast(v, to="float64") for v in (x, y)))
    return ctx.ops.Cast(ctx.ops.Floor(quotient), to="int32")


def _swap_operands(ctx: Any, x: Any, y: Any) -> Any:
    return ctx.ops.Sub(y, x)


def _without_upper_bound(ctx: Any, x: Any) -> Any:
    return ctx.ops.Mul(x, ctx.ops.Div(ctx.ops.Relu(ctx.ops.Add(x, 3.0)), 6.0))


def _hard_sigmoid(ctx: Any, x: Any) -> Any:
    return ctx.ops.HardSigmoid(x, alpha=0.25, beta=0.5)


def _saturate(ctx: Any, x: Any, y: Any) -> Any:
    if ctx.op[0].dtype != "int32":
        return ctx.ops.Mul(x, y)
    wide = ctx.ops.Mul(*(ctx.ops.Cast(v, to="float64") for v in (x, y)))
    low, high = (np.asarray(limit, np.float64) for limit in (np.iinfo(np.int32).min, np.iinfo(np.int32).max))
    return ctx.ops.Cast(ctx.ops.Clip(wide, low, high), to="int32")


ACTIVATED = {
    "ADD": "ADD-float32_with_RELU_between_convolutions",
    "RELU": "RELU-int8",
    "RELU6": "RELU6-float32",
}

APPLIED = FusedActivation(ActivationKernel.ELEMENTWISE)
REFUSING = {
    "MUL": "MUL-complex64_with_RELU",
    "CONCATENATION": "CONCATENATION-RELU,_two_operands",
    "L2_NORMALIZATION": "L2_NORMALIZATION-TANH",
}


MUTATIONS = (
    Mutation(
        "TANH is applied",
        "ADD",
        ("ADD-int16_with_TANH,_which_the_kernel_ignores",),
        fields={"activation": APPLIED},
    ),
    Mutation(
        "operands are dequantized",
        "MINIMUM",
        ("MINIMUM-uint8_with_different_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "a different output scale is ignored",
        "RELU",
        ("RELU-uint8_to_a_different_scale",),
        fields={"quantization": Raw()},
    ),
    Mutation(
        "a different output scale is ignored",
        "ABS",
        ("ABS-int8_to_a_different_scale",),
        fields={"quantization": Raw()},
    ),
    Mutation(
        "the maximum of x and alpha x", "LEAKY_RELU", ("LEAKY_RELU-int16,_alpha_1.7",), fields={"lower": _max_of_both}
    ),
    Mutation(
        "slopes are broadcast as in ONNX",
        "PRELU",
        ("PRELU-equal_numbers_of_rows_and_channels",),
        fields={"axes": "..., _ -> ..."},
    ),
    Mutation(
        "approximate is ignored",
        "GELU",
        ("GELU-float32,_approximate,_different_scale",),
        options={"approximate": False},
    ),
    Mutation(
        "complex numbers are multiplied as pairs of numbers",
        "MUL",
        ("MUL-complex64",),
        fields={"lower": lambda ctx, x, y: ctx.ops.Mul(x, y)},
    ),
    Mutation(
        "roots are rounded to nearest",
        "SQRT",
        ("SQRT-int8,_output_scale_1.66667_between_convolutions",),
        fields={"lower": lambda ctx, x: ctx.ops.Sqrt(x)},
    ),
    Mutation(
        "the quotient is rounded towards minus infinity", "DIV", ("DIV-int32",), fields={"lower": _floor_quotient}
    ),
    Mutation(
        "beta multiplies the result",
        "SOFTMAX",
        ("SOFTMAX-float32,_beta_0.3",),
        fields={"lower": lambda ctx, x: _multiply_by_beta(ctx, ctx.ops.Softmax(x, axis=ctx.axis(-1)))},
    ),
    Mutation("beta is ignored", "SOFTMAX", ("SOFTMAX-float32,_beta_0.3",), options={"beta": 1.0}),
    Mutation("along axis 1", "SOFTMAX", ("SOFTMAX-float32_of_rank_3",), emits={"Softmax": with_attributes(axis=1)}),
    Mutation(
        "the axis is not mapped to the layout",
        "LOG_SOFTMAX",
        ("LOG_SOFTMAX-float32_of_shape_(2,_3,_11)",),
        sees={"axis": file_axis},
    ),
    Mutation(
        "no minimum length", "L2_NORMALIZATION", ("L2_NORMALIZATION-uint8,_a_row_of_zeros",), emits={"Max": leave_out}
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "L2_NORMALIZATION",
        ("L2_NORMALIZATION-float32_of_shape_(2,_3,_5,_1)",),
        sees={"axis": file_axis},
    ),
    *(
        Mutation("the activation is left out", code, (case,), fields={"activation": None})
        for code, case in ACTIVATED.items()
    ),
    Mutation(
        "TANH is applied",
        "DIV",
        ("DIV-float32_with_TANH,_which_the_kernel_ignores", "DIV-int8_with_TANH,_which_the_kernel_ignores"),
        fields={"activation": APPLIED},
    ),
    Mutation(
        "operands are dequantized",
        "MAXIMUM",
        ("MAXIMUM-int8_with_different_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "the operand is dequantized",
        "NEG",
        ("NEG-int8_with_a_zero_point,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "operands are broadcast as in ONNX",
        "ADD",
        ("ADD-uint8,_both_broadcast_between_convolutions",),
        fields={"axes": "..., _ -> ..."},
    ),
    Mutation("operands are swapped", "SUB", ("SUB-float32",), fields={"lower": _swap_operands}),
    Mutation("integer overflow saturates", "MUL", ("MUL-int32_that_wraps_around",), fields={"lower": _saturate}),
    Mutation("no upper bound", "HARD_SWISH", ("HARD_SWISH-float32",), fields={"lower": _without_upper_bound}),
    Mutation("a piecewise linear approximation", "LOGISTIC", ("LOGISTIC-float32",), fields={"lower": _hard_sigmoid}),
    Mutation(
        "along the last axis of the planned layout",
        "SOFTMAX",
        ("SOFTMAX-float32_between_convolutions",),
        emits={"Softmax": with_attributes(axis=-1)},
    ),
    Mutation(
        "int16 slopes are read as int16",
        "PRELU",
        ("PRELU-int16_by_int16_slopes,_of_which_the_kernel_reads_bytes",),
        fields={"types": ""},
    ),
    *(
        Mutation("an activation that LiteRT refuses", code, (case,), fields={"activation": None})
        for code, case in REFUSING.items()
    ),
)
