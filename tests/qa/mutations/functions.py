"""Planted bugs in elementwise functions, random operators and generators."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized, out
from tests.qa.mutations.planting import Mutation, with_attributes


def _round_half_away(ctx: Any, x: Any) -> Any:
    ops = ctx.ops
    return ops.Mul(ops.Sign(x), ops.Floor(ops.Add(ops.Abs(x), np.asarray(0.5, ctx.dtype(0)))))


def _truncate_quotient(ctx: Any, x: Any, y: Any) -> Any:
    return ctx.ops.Div(x, y)


def _floor_float32_quotient(ctx: Any, x: Any, y: Any) -> Any:
    return ctx.ops.Floor(ctx.ops.Div(x, y))


def _mod_with_sign_of_dividend(ctx: Any, x: Any, y: Any) -> Any:
    return ctx.ops.Mod(x, y, fmod=1)


def _atan_without_quadrants(ctx: Any, y: Any, x: Any) -> Any:
    return ctx.ops.Atan(ctx.ops.Div(y, x))


def _atan_without_signed_zero(ctx: Any, y: Any, x: Any) -> Any:
    ops = ctx.ops
    half = ops.Where(ops.Less(y, 0.0), -float(np.pi), float(np.pi))
    return ops.Add(ops.Atan(ops.Div(y, x)), ops.Where(ops.Less(x, 0.0), half, 0.0))


def _shift_towards_zero(ctx: Any, x: Any, y: Any) -> Any:
    ops = ctx.ops
    power = ops.Pow(np.float64(2), ops.Cast(y, to="float64"))
    return ops.Cast(ops.Div(ops.Cast(x, to="float64"), power), to=ctx.dtype(0))


def _count_from_end(ctx: Any, indices: Any, depth: Any, on: Any, off: Any) -> Any:
    values = ctx.ops.Concat(*(ctx.ops.Reshape(v, [1]) for v in (off, on)), axis=0)
    return ctx.ops.OneHot(indices, depth, values, axis=ctx.axis(ctx.options.axis, out(0)))


def _range_as_in_onnx(ctx: Any, start: Any, limit: Any, delta: Any) -> Any:
    return ctx.ops.Range(start, limit, delta)


def _multiply_by_zero(ctx: Any, x: Any) -> Any:
    return ctx.ops.Mul(x, ctx.scalar(0))


def _norm_of_squares(ctx: Any, x: Any) -> Any:
    return ctx.ops.ReduceL2(x, axes=[-1], keepdims=0) if ctx.opset < 18 else ctx.ops.ReduceL2(x, [-1], keepdims=0)


def _count_boundaries_below(ctx: Any, x: Any) -> Any:
    ops, bounds = ctx.ops, np.asarray(ctx.options.boundaries, np.float32)
    is_above = ops.Greater(ops.Unsqueeze(ops.Cast(x, to="float32"), [len(ctx.shape(0))]), bounds)
    return ops.ReduceSum(ops.Cast(is_above, to="int32"), [len(ctx.shape(0))], keepdims=0)


def _sum_of(*slots: int) -> Any:
    """Add up only the operands in these slots."""
    return lambda ctx, *operands: ctx.ops.Sum(*(operands[k] for k in slots))


def _with_lowering(lower: Any) -> dict[str, Any]:
    return {"lower": lower}


MUTATIONS = (
    Mutation(
        "rounded down instead of up",
        "CEIL",
        ("CEIL-float32_at_its_edge_cases",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Floor(x)),
    ),
    Mutation(
        "halves are rounded away from zero",
        "ROUND",
        ("ROUND-float32_halves", "ROUND-float16_halves"),
        fields=_with_lowering(_round_half_away),
    ),
    Mutation(
        "zero is positive",
        "SIGN",
        ("SIGN-int32",),
        fields=_with_lowering(
            lambda ctx, x: ctx.ops.Where(ctx.ops.Less(x, ctx.scalar(0)), ctx.scalar(-1), ctx.scalar(1))
        ),
    ),
    Mutation(
        "cosine instead of sine",
        "SIN",
        ("SIN-float32_edge_cases",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Cos(x)),
    ),
    Mutation(
        "sine instead of cosine",
        "COS",
        ("COS-float32_edge_cases",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Sin(x)),
    ),
    Mutation(
        "the other part",
        "REAL",
        ("REAL-complex64_of_shape_[2,_5,_7]",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Gather(x, np.asarray(1), axis=-1)),
    ),
    Mutation(
        "the other part",
        "IMAG",
        ("IMAG-complex64_of_shape_[2,_5,_7]",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Gather(x, np.asarray(0), axis=-1)),
    ),
    Mutation(
        "squares overflow",
        "COMPLEX_ABS",
        ("COMPLEX_ABS-magnitudes_whose_squares_overflow_or_underflow",),
        fields=_with_lowering(_norm_of_squares),
    ),
    Mutation(
        "a value at a boundary counts as below it",
        "BUCKETIZE",
        ("BUCKETIZE-float32_at_boundaries", "BUCKETIZE-int32,_compared_as_float32"),
        fields=_with_lowering(_count_boundaries_below),
    ),
    Mutation(
        "halves are rounded to even",
        "FAKE_QUANT",
        ("FAKE_QUANT-halves",),
        emits={"Floor": lambda emit, x: x, "GreaterOrEqual": lambda emit, x, y: emit(x, 9.0)},
    ),
    Mutation(
        "the integer quotient is rounded towards zero",
        "FLOOR_DIV",
        ("FLOOR_DIV-int32,_every_sign",),
        fields=_with_lowering(_truncate_quotient),
    ),
    Mutation(
        "the quotient is float32",
        "FLOOR_DIV",
        ("FLOOR_DIV-float32_quotients_that_need_float64",),
        fields=_with_lowering(_floor_float32_quotient),
    ),
    Mutation(
        "the remainder has the dividend's sign",
        "FLOOR_MOD",
        ("FLOOR_MOD-int32,_every_sign", "FLOOR_MOD-float32,_every_sign"),
        fields=_with_lowering(_mod_with_sign_of_dividend),
    ),
    Mutation("quadrants are ignored", "ATAN2", ("ATAN2-float32",), fields=_with_lowering(_atan_without_quadrants)),
    Mutation(
        "the sign of zero is ignored",
        "ATAN2",
        ("ATAN2-float32_edges",),
        fields=_with_lowering(_atan_without_signed_zero),
    ),
    Mutation(
        "the shift rounds towards zero",
        "RIGHT_SHIFT",
        ("RIGHT_SHIFT-int8_by_a_constant",),
        fields=_with_lowering(_shift_towards_zero),
    ),
    Mutation(
        "operands are dequantized",
        "RIGHT_SHIFT",
        ("RIGHT_SHIFT-int8_with_scales,_which_the_kernel_ignores_between_convolutions",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "or instead of exclusive or",
        "BITWISE_XOR",
        ("BITWISE_XOR-int8",),
        fields=_with_lowering(lambda ctx, x, y: ctx.ops.BitwiseOr(x, y)),
    ),
    Mutation(
        "only two operands are added", "ADD_N", ("ADD_N-float32,_3_operands",), fields=_with_lowering(_sum_of(0, 1))
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "ARG_MIN",
        ("ARG_MIN-axis_1_between_convolutions",),
        fields={"axis_number_slots": ()},
    ),
    Mutation(
        "the last of equal values",
        "ARG_MIN",
        ("ARG_MIN-first_of_equal_values",),
        emits={"ArgMin": with_attributes(select_last_index=1)},
    ),
    Mutation(
        "any instead of all",
        "REDUCE_ALL",
        ("REDUCE_ALL-axes_[1,_2]_kept",),
        emits={"Not": lambda emit, x: x},
    ),
    Mutation("keep_dims is ignored", "REDUCE_ANY", ("REDUCE_ANY-axes_[1,_2]_kept",), options={"keep_dims": False}),
    Mutation("exclusive is ignored", "CUMSUM", ("CUMSUM-axis_1_exclusive",), options={"exclusive": False}),
    Mutation(
        "the axis is not mapped to the layout",
        "CUMSUM",
        ("CUMSUM-axis_1_reverse_between_convolutions",),
        fields={"axis_number_slots": ()},
    ),
    Mutation(
        "one element is 0, as in ONNX Runtime before 1.32",
        "SOFTMAX",
        ("SOFTMAX-uint8_of_one_element",),
        fields=_with_lowering(lambda ctx, x: ctx.ops.Mul(x, 0.0)),
    ),
    Mutation(
        "NaN times zero",
        "ZEROS_LIKE",
        ("ZEROS_LIKE-NaN,_infinities_and_negative_zero",),
        fields=_with_lowering(_multiply_by_zero),
    ),
    Mutation(
        "negative indices count from the end", "ONE_HOT", ("ONE_HOT-axis_1",), fields=_with_lowering(_count_from_end)
    ),
    Mutation(
        "computed in float64",
        "RANGE",
        ("RANGE-float32_[0.0,_0.3,_0.1]",),
        fields=_with_lowering(_range_as_in_onnx),
    ),
    Mutation(
        "the rank is one less",
        "RANK",
        ("RANK-float32_of_shape_[2,_5,_7,_3]",),
        fields=_with_lowering(lambda ctx, x: ctx.constant_value(np.asarray(ctx.op[0].rank - 1, np.int32))),
    ),
    Mutation(
        "sizes are not permuted to the layout",
        "FILL",
        ("FILL-float32_between_convolutions",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation(
        "the spectrum is two-sided", "RFFT2D", ("RFFT2D-shape_[3,_8,_16]",), emits={"DFT": with_attributes(onesided=0)}
    ),
    Mutation(
        "the most significant part is first",
        "BITCAST",
        ("BITCAST-int32_of_shape_[3,_5]_to_uint8",),
        emits={"Concat": lambda emit, *parts, **named: emit(*parts[::-1], **named)},
    ),
    Mutation(
        "the minimum is -1",
        "RANDOM_UNIFORM",
        ("RANDOM_UNIFORM-seeds_[7,_0]",),
        emits={"RandomUniform": with_attributes(low=-1.0)},
    ),
    Mutation(
        "a different mean",
        "RANDOM_STANDARD_NORMAL",
        ("RANDOM_STANDARD_NORMAL-seeds_[7,_0]",),
        emits={"RandomNormal": with_attributes(mean=20.0)},
    ),
    Mutation(
        "infinite logits have probabilities",
        "MULTINOMIAL",
        ("MULTINOMIAL-int32,_one_class_certain",),
        emits={"Less": lambda emit, x, y: emit(y, x)},
    ),
)
