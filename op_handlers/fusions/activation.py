"""Fusions of activations that are decomposed into arithmetic operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose, pi, sqrt
from typing import Any

from onnx_tflite_plugin.api import (
    Call,
    Context,
    Decline,
    Match,
    NotQuantizable,
    Operand,
    Transparent,
    Value,
    fusion,
    operands,
)
from op_handlers.math.activation import gelu as gelu_handler
from op_handlers.math.activation import hard_swish as hard_swish_handler
from op_handlers.math.activation import prelu as prelu_handler

(x,) = operands("x")
(slopes,) = operands("slopes", constant=True)
half, one, three, six, sixth, cube_factor, tanh_factor = operands("1/2 1 3 6 1/6 0.044715 sqrt(2/pi)")
CONSTANTS = {
    half: 0.5, one: 1.0, three: 3.0, six: 6.0, sixth: 1 / 6, cube_factor: 0.044715, tanh_factor: sqrt(2 / pi),
}  # fmt: skip


def binary_call(code: str, left: Call | Operand, right: Call | Operand, activation: str = "NONE") -> Call:
    """Return the pattern of a binary operator with a fused activation.

    The operands match in either order, except for DIV.
    """
    return Call(code, left, right, commutes=code != "DIV", fused_activation_function=activation)


def product_patterns(*factors: Call | Operand) -> Iterator[Call]:
    """Yield patterns of the product of two or three factors, in each order."""
    first, second, *others = factors
    if not others:
        yield binary_call("MUL", first, second)
        return
    (third,) = others
    for pair, last in (((first, second), third), ((first, third), second), ((second, third), first)):
        yield binary_call("MUL", binary_call("MUL", *pair), last)


def check_constants(match: Match) -> Decline | None:
    """Return a Decline if a constant differs from its value in the decomposition."""
    for operand, number in CONSTANTS.items():
        if operand in match.tensors:
            constant = match.constant(operand)
            is_scalar = constant is not None and constant.size == 1 and constant.ndim <= match[x].rank
            if constant is None or not is_scalar or not isclose(constant.item(), number, rel_tol=1e-6):
                return Decline(f"{match[operand].name!r} is not the constant {operand.name}")
    return None


# --- x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) ----------------------------------------


def gelu_patterns() -> Iterator[Call]:
    """Yield patterns of the decompositions of the approximate GELU."""
    square = binary_call("MUL", x, x)
    cubes = (Call("POW", x, three), binary_call("MUL", square, x))
    cubic_terms = [binary_call("MUL", cube, cube_factor) for cube in cubes]
    arguments = [binary_call("MUL", binary_call("ADD", x, cubic_term), tanh_factor) for cubic_term in cubic_terms]
    for square_term in (
        binary_call("MUL", square, cube_factor),
        binary_call("MUL", binary_call("MUL", x, cube_factor), x),
    ):
        # x * sqrt(2/pi) * (1 + 0.044715 x^2)
        arguments.extend(product_patterns(x, tanh_factor, binary_call("ADD", square_term, one)))
    for argument in arguments:
        yield from product_patterns(x, half, binary_call("ADD", Call("TANH", argument), one))


def match_gelu(match: Match) -> Mapping[str, Any] | Decline:
    """Return the options of GELU, or a Decline if a constant differs."""
    return check_constants(match) or {"approximate": True}


@fusion(
    "GELU",
    pattern=tuple(gelu_patterns()),
    inputs=(x,),
    check=match_gelu,
    layout=Transparent(),
    types="float32",
    quantization=NotQuantizable(),
)
def gelu(ctx: Context, x: Value) -> Value:
    """Emit Gelu with the tanh approximation."""
    y: Value = gelu_handler(ctx, x)
    return y


# --- x * relu6(x + 3) / 6 ---------------------------------------------------------------------


def hard_swish_patterns() -> Iterator[Call]:
    """Yield patterns of the decompositions of HARD_SWISH."""
    for ramp in (binary_call("ADD", x, three, "RELU6"), Call("RELU6", binary_call("ADD", x, three))):
        yield from product_patterns(x, ramp, sixth)
        yield binary_call("DIV", binary_call("MUL", x, ramp), six)
        yield binary_call("MUL", x, binary_call("DIV", ramp, six))
        yield binary_call("MUL", binary_call("DIV", x, six), ramp)
    for patterns in product_patterns(x, sixth), (binary_call("DIV", x, six),):
        for sixth_of_x in patterns:
            shifted = binary_call("ADD", sixth_of_x, half)
            yield binary_call("MUL", x, Call("RELU_0_TO_1", shifted))
            yield binary_call("MUL", x, Call("RELU", Call("MINIMUM", shifted, one, commutes=True)))


def match_hard_swish(match: Match) -> Mapping[str, Any] | Decline:
    """Return no options, or a Decline if a constant differs."""
    return check_constants(match) or {}


@fusion(
    "HARD_SWISH",
    pattern=tuple(hard_swish_patterns()),
    inputs=(x,),
    check=match_hard_swish,
    layout=Transparent(),
    types="float32",
    quantization=NotQuantizable(),
)
def hard_swish(ctx: Context, x: Value) -> Value:
    """Emit HardSwish."""
    y: Value = hard_swish_handler(ctx, x)
    return y


# --- relu(x) + slopes * -relu(-x) -------------------------------------------------------------


def check_slopes(match: Match) -> Mapping[str, Any] | Decline:
    """Return a Decline unless the slopes broadcast to the shape of x."""
    sizes = zip(match[x].dims[::-1], match[slopes].dims[::-1], strict=False)
    is_broadcast = match[slopes].rank <= match[x].rank and all(
        slope_size in (1, x_size) for x_size, slope_size in sizes
    )
    return (
        {}
        if is_broadcast
        else Decline(f"slopes of shape {list(match[slopes].dims)} do not broadcast to {list(match[x].dims)}")
    )


@fusion(
    "PRELU",
    pattern=binary_call("ADD", Call("RELU", x), binary_call("MUL", slopes, Call("NEG", Call("RELU", Call("NEG", x))))),
    inputs=(x, slopes),
    check=check_slopes,
    layout=Transparent(),
    types="float32, float32",
    quantization=NotQuantizable(),
)
def prelu(ctx: Context, x: Value, slope: Value) -> Value:
    """Emit PRelu for the decomposition in MTCNN and other TensorFlow 1 networks."""
    y: Value = prelu_handler(ctx, x, slope)
    return y
