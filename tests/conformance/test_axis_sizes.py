"""Declared axes are compared with the sizes of a case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.case import Case
from conformance.models import PLACEMENTS, constant, in_isolation, random_array, tensor
from conformance.runner import run_case
from onnx_tflite_plugin.api import Array, Attribute, Context, Dequantized, Implicit, Value, handler
from onnx_tflite_plugin.host import Host

CODE = "CUSTOM.Acme"


def mean_host(axes: str) -> Host:
    @handler(
        CODE, max_version=1, layout=Attribute(), axes=axes, quantization=Dequantized(), kernel=lambda op, x: x.mean(1)
    )
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.ReduceMean(x, [ctx.axis(1)], keepdims=0)

    return Host(handlers={CODE: lower})


@pytest.mark.parametrize("place", PLACEMENTS)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_result_with_another_axis_of_the_operand_is_reported(place: Any, dtype: str) -> None:
    case = place(CODE, dtype, [tensor(2, 5, 7, 3, dtype=dtype)], tensor(2, 7, 3, dtype=dtype))
    reason = run_case(case, mean_host("n h w c -> n h c")).reasons[0]
    assert "letter h is 5 in operand 0 and 7 in result 0, the size of w, which the declared result lacks" in reason
    assert "declare 'n w c' for result 0 (the declaration of " in reason
    assert run_case(case, mean_host("n h w c -> n w c")).ok


@pytest.mark.parametrize(
    ("axes", "x", "y", "suggestion"),
    [
        ("n h w c -> n h w", (2, 5, 7, 3), (2, 7, 3), "declare 'n w c' for result 0"),
        ("n h w c -> n h c", (2, 5, 7, 3), (2, 4, 3), ""),  # h is cut: no axis has the new size
        ("n h w c d -> n h c", (2, 5, 7, 3, 7), (2, 7, 3), ""),  # w or d
        ("n h w c -> n h w c", (2, 5, 7, 3), (2, 7, 5, 3), ""),  # resized: the result lacks no letter
        ("n h w c -> n h c", (2, 1, 7, 3), (2, 7, 3), ""),  # broadcast
        ("n h w c, h -> n h c", (2, 5, 7, 3), (2, 7, 3), ""),  # the other operand has the size
    ],
)
def test_only_an_unambiguous_choice_of_axes_is_suggested(
    axes: str, x: tuple[int, ...], y: tuple[int, ...], suggestion: str
) -> None:
    @handler(CODE, max_version=1, layout=Attribute(), axes=axes, kernel=lambda op, *x: np.zeros(y, np.float32))
    def lower(ctx: Context, x: Value, other: Value | None = None) -> Value:
        return ctx.ops.Expand(0.0, list(y))

    operands = [tensor(*x), *([tensor(7)] if "," in axes else [])]
    text = run_case(in_isolation(CODE, "x", operands, tensor(*y)), Host(handlers={CODE: lower})).text
    assert (suggestion in text) if suggestion else ("letter" not in text)


def convolve(op: Any, x: Array, weights: Array) -> Array:
    return np.asarray(np.einsum("nhwc,oc->nhwo", x, weights))


def test_contradictory_shapes_are_named_before_the_kernels_error() -> None:
    @handler(CODE, max_version=1, axes="n h w c, o c -> n h w o", layout=Implicit(onnx={0: "n h w c"}), kernel=convolve)
    def lower(ctx: Context, x: Value, weights: Value) -> Value:
        return ctx.ops.MatMul(x, ctx.ops.Transpose(weights))

    case: Case = in_isolation(CODE, "x", [tensor(2, 5, 7, 3), constant(random_array(11, 4))], tensor(2, 5, 7, 11))
    contradiction, error = run_case(case, Host(handlers={CODE: lower})).reasons
    assert "axis 'c' has size 3 in operand 0 but 4 in operand 1" in contradiction
    assert "correct the shapes in the case" in contradiction
    assert error.startswith("the case cannot be run: ")
