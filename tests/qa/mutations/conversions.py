"""Planted bugs in conversions, control flow and states."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Dequantized, out
from tests.qa.mutations.planting import Mutation


def _keep_bytes(ctx: Any, x: Any) -> Any:
    """Keep the bytes of values of equal scale, although the zero points differ by 128."""
    before, after = ctx.op[0].quantization, ctx.op[out(0)].quantization
    if before is None or after is None or before.scale != after.scale or ctx.op[0].dtype == ctx.op[out(0)].dtype:
        return x
    return ctx.ops.Sub(x, float(before.scale[0] * 128))


def _ignore_third_operand(emit: Any, condition: Any, x: Any, y: Any) -> Any:
    return emit(condition, x, x)


def _at_least_once(emit: Any, count: Any, _start: Any, *values: Any, **attributes: Any) -> Any:
    return emit(count, np.asarray(True), *values, **attributes)


def _read_initial_state(ctx: Any, _resource: Any) -> Any:
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.dtype(out(0)), ctx.shape(out(0)))
    state.get()
    return state.input


def _pass_through(ctx: Any, x: Any) -> Any:
    return ctx.quantized_values(0) if ctx.op[0].dtype == ctx.op[out(0)].dtype else x


def _ignore_zero_point(ctx: Any, x: Any) -> Any:
    quantization = ctx.op[0].quantization
    return (
        x
        if quantization is None or len(quantization.scale) > 1
        else ctx.ops.Add(x, float(quantization.scale[0] * quantization.zero_point[0]))
    )


def _read_zeros(ctx: Any, _resource: Any) -> Any:
    ctx.state(ctx.resource(0)).declare(ctx.dtype(out(0)), ctx.shape(out(0)))
    return ctx.constant_value(np.zeros([d or 1 for d in ctx.shape(out(0))], ctx.dtype(out(0))))


def _forget_state(ctx: Any, _resource: Any, _value: Any) -> Any:
    ctx.state(ctx.resource(0)).declare(ctx.dtype(1), ctx.shape(1))
    return ()


MUTATIONS = (
    Mutation("NaN becomes the minimum", "CAST", ("CAST-float64_to_int8",), emits={"Where": _ignore_third_operand}),
    Mutation(
        "8 bits of the same scale pass through",
        "QUANTIZE",
        ("QUANTIZE-int8_to_uint8_of_the_same_scale",),
        fields={"lower": _keep_bytes},
    ),
    Mutation(
        "the condition is evaluated after the first step",
        "WHILE",
        ("WHILE-uint8,_cumulative_sum",),
        emits={"Loop": _at_least_once},
    ),
    Mutation(
        "the value at the start of the run",
        "READ_VARIABLE",
        ("READ_VARIABLE-before_and_after_an_assignment",),
        fields={"lower": _read_initial_state},
    ),
    Mutation(
        "quantized values are passed on",
        "QUANTIZE",
        ("QUANTIZE-int8_to_int8",),
        fields={"lower": _pass_through, "quantization": Dequantized()},
    ),
    Mutation(
        "int32 is truncated",
        "QUANTIZE",
        ("QUANTIZE-every_int16_to_int32_of_scale_0.02",),
        emits={"Add": lambda emit, x, y: x if np.ndim(y) == 0 and y == 0.5 else emit(x, y)},
    ),
    Mutation("the zero point is ignored", "DEQUANTIZE", ("DEQUANTIZE-int8",), fields={"lower": _ignore_zero_point}),
    Mutation(
        "elements without their indices",
        "DENSIFY",
        ("DENSIFY-sparse_axes",),
        fields={"evaluate": lambda at: np.sort(at.op.constant(0), axis=None).reshape(at.op[0].shape)},
    ),
    Mutation(
        "always the initial value",
        "READ_VARIABLE",
        ("READ_VARIABLE-float32,_cumulative_sum",),
        fields={"lower": _read_zeros},
    ),
    Mutation(
        "the assignment is ignored",
        "ASSIGN_VARIABLE",
        ("ASSIGN_VARIABLE-float32,_previous_input",),
        fields={"lower": _forget_state},
    ),
    Mutation(
        "the call is ignored",
        "CALL_ONCE",
        ("CALL_ONCE-initial_values_computed_by_operators",),
        fields={"lower": lambda ctx: ()},
    ),
)
