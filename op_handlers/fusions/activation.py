"""Activations spelled out by the arithmetic they are made of."""

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
half, one, three, six, sixth, cubed, slope = operands("1/2 1 3 6 1/6 cubed slope")
NUMBERS = {half: 0.5, one: 1.0, three: 3.0, six: 6.0, sixth: 1 / 6, cubed: 0.044715, slope: sqrt(2 / pi)}


def plain(code: str, left: Call | Operand, right: Call | Operand, activation: str = "NONE") -> Call:
    """A binary operator with its operands in either order (but for DIV) and one fused activation."""
    return Call(code, left, right, commutes=code != "DIV", fused_activation_function=activation)


def times(*factors: Call | Operand) -> Iterator[Call]:
    """A product of two or three, in every association."""
    first, second, *more = factors
    if not more:
        yield plain("MUL", first, second)
        return
    for pair, last in (((first, second), more[0]), ((first, more[0]), second), ((second, more[0]), first)):
        yield plain("MUL", plain("MUL", *pair), last)


def these_numbers(match: Match) -> Decline | None:
    """Why a match is none after all: the constants are others."""
    for operand, number in NUMBERS.items():
        if operand in match.tensors:
            constant = match.constant(operand)
            scalar = constant is not None and constant.size == 1 and constant.ndim <= match[x].rank
            if constant is None or not scalar or not isclose(constant.item(), number, rel_tol=1e-6):
                return Decline(f"{match[operand].name!r} is not the number {operand.name}")
    return None


# --- x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) ----------------------------------------


def tanh_forms() -> Iterator[Call]:
    square = plain("MUL", x, x)
    cubics = [plain("MUL", cube, cubed) for cube in (Call("POW", x, three), plain("MUL", square, x))]
    arguments = [plain("MUL", plain("ADD", x, cubic), slope) for cubic in cubics]
    for squared in (plain("MUL", square, cubed), plain("MUL", plain("MUL", x, cubed), x)):
        arguments.extend(times(x, slope, plain("ADD", squared, one)))  # x * sqrt(2/pi) * (1 + 0.044715 x^2)
    for argument in arguments:
        yield from times(x, half, plain("ADD", Call("TANH", argument), one))


def approximate(match: Match) -> Mapping[str, Any] | Decline:
    return these_numbers(match) or {"approximate": True}


@fusion(
    "GELU",
    pattern=tuple(tanh_forms()),
    inputs=(x,),
    where=approximate,
    layout=Transparent(),
    types="float32",
    quantization=NotQuantizable(),
)
def gelu(ctx: Context, x: Value) -> Value:
    """Gelu, with the Tanh that approximates it."""
    y: Value = gelu_handler(ctx, x)
    return y


# --- x * relu6(x + 3) / 6 ---------------------------------------------------------------------


def relu6_forms() -> Iterator[Call]:
    for ramp in (plain("ADD", x, three, "RELU6"), Call("RELU6", plain("ADD", x, three))):
        yield from times(x, ramp, sixth)
        yield plain("DIV", plain("MUL", x, ramp), six)
        yield plain("MUL", x, plain("DIV", ramp, six))
        yield plain("MUL", plain("DIV", x, six), ramp)
    for line in times(x, sixth), (plain("DIV", x, six),):
        for gate in line:
            shifted = plain("ADD", gate, half)
            yield plain("MUL", x, Call("RELU_0_TO_1", shifted))
            yield plain("MUL", x, Call("RELU", Call("MINIMUM", shifted, one, commutes=True)))


def in_numbers(match: Match) -> Mapping[str, Any] | Decline:
    return these_numbers(match) or {}


@fusion(
    "HARD_SWISH",
    pattern=tuple(relu6_forms()),
    inputs=(x,),
    where=in_numbers,
    layout=Transparent(),
    types="float32",
    quantization=NotQuantizable(),
)
def hard_swish(ctx: Context, x: Value) -> Value:
    """HardSwish."""
    y: Value = hard_swish_handler(ctx, x)
    return y


# --- relu(x) + slopes * -relu(-x) -------------------------------------------------------------


def for_each_element(match: Match) -> Mapping[str, Any] | Decline:
    """Slopes that are no larger than x, in whose shape the sum is too."""
    sizes = zip(match[x].dims[::-1], match[slopes].dims[::-1], strict=False)
    fits = match[slopes].rank <= match[x].rank and all(size in (1, wanted) for wanted, size in sizes)
    return {} if fits else Decline(f"its slopes {list(match[slopes].dims)} do not fit {list(match[x].dims)}")


@fusion(
    "PRELU",
    pattern=plain("ADD", Call("RELU", x), plain("MUL", slopes, Call("NEG", Call("RELU", Call("NEG", x))))),
    inputs=(x, slopes),
    where=for_each_element,
    layout=Transparent(),
    types="float32, float32",
    quantization=NotQuantizable(),
)
def prelu(ctx: Context, x: Value, slope: Value) -> Value:
    """PRelu, as MTCNN and other networks of TensorFlow 1 have it."""
    y: Value = prelu_handler(ctx, x, slope)
    return y
