"""Normalizations spelled out, as converters from Keras and PyTorch leave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Call,
    Context,
    Decline,
    Instance,
    Match,
    NotQuantizable,
    Operand,
    Tensor,
    Terminate,
    Value,
    fusion,
    operands,
    spelled,
)
from op_handlers.kernels.operands import NO_ACTIVATION

x, gamma, beta, epsilon, axes, two = operands("x gamma beta epsilon axes two")
zero, column = operands("zero column", constant=True)
Term = Call | Operand


def _added(a: Term, b: Term) -> Call:
    return Call("ADD", a, b, commutes=True, **NO_ACTIVATION)


def _multiplied(a: Term, b: Term) -> Call:
    return Call("MUL", a, b, commutes=True, **NO_ACTIVATION)


def _mean(of: Term) -> Call:
    return Call("MEAN", of, axes, keep_dims=True)


def keras(scaled: bool, shifted: bool) -> Call:
    """``x * s + (beta - mean * s)`` with ``s = gamma / sqrt(variance + epsilon)``."""
    mean = _mean(x)
    variance = _mean(Call("SQUARED_DIFFERENCE", x, mean, commutes=True))
    inverse = Call("RSQRT", _added(variance, epsilon))
    scale = _multiplied(inverse, gamma) if scaled else inverse
    offset = (
        Call("SUB", beta, _multiplied(mean, scale), **NO_ACTIVATION)
        if shifted
        else _multiplied(Call("NEG", mean), scale)
    )
    return _added(_multiplied(x, scale), offset)


def pytorch(scaled: bool, shifted: bool, square: str, quotient: bool) -> Call:
    """``(x - mean) / sqrt(variance + epsilon) * gamma + beta``."""
    centred = Call("SUB", x, _mean(x), **NO_ACTIVATION)
    squares = {
        "MUL": Call("MUL", centred, centred, **NO_ACTIVATION),
        "SQUARE": Call("SQUARE", centred),
        "POW": Call("POW", centred, two),
        "SQUARED_DIFFERENCE": Call("SQUARED_DIFFERENCE", x, _mean(x), commutes=True),
    }
    spread = _added(_mean(squares[square]), epsilon)
    root = (
        Call("DIV", centred, Call("SQRT", spread), **NO_ACTIVATION)
        if quotient
        else _multiplied(centred, Call("RSQRT", spread))
    )
    scale = _multiplied(root, gamma) if scaled else root
    return _added(scale, beta) if shifted else scale


def litert_torch(scaled: bool, shifted: bool) -> Call:
    """``x * r + (0 - r * mean)`` with ``r = 1 / sqrt(variance + epsilon)``: means without the axes of size 1, put back by RESHAPE."""
    mean = Call("MEAN", x, axes, keep_dims=False)
    variance = Call("MEAN", Call("SQUARED_DIFFERENCE", x, _column(mean), commutes=True), axes, keep_dims=False)
    inverse = Call("RSQRT", _added(variance, epsilon))
    offset = Call("SUB", zero, _multiplied(inverse, mean), **NO_ACTIVATION)
    root = _added(_multiplied(x, _column(inverse)), _column(offset))
    scale = _multiplied(root, gamma) if scaled else root
    return _added(scale, beta) if shifted else scale


def _column(of: Term) -> Call:
    return Call("RESHAPE", of, column)


def _patterns() -> Iterator[Call]:
    for scaled, shifted in product((True, False), repeat=2):
        yield litert_torch(scaled, shifted)
    for scaled, shifted in product((True, False), repeat=2):
        yield keras(scaled, shifted)
        for square, quotient in product(("MUL", "SQUARE", "POW", "SQUARED_DIFFERENCE"), (False, True)):
            yield pytorch(scaled, shifted, square, quotient)


def last_axis_only(match: Match) -> Mapping[str, Any] | Decline:
    over, size, small = match.constant(axes), match[x].dims[-1], match.constant(epsilon)
    if over is None or not _last(match[x], {int(a) % match[x].rank for a in over.reshape(-1)}):
        return Decline("it normalizes over other axes than the last")
    wanted = (*match[x].dims[:-1], 1)
    if any(op.code == "RESHAPE" and op[~0].dims != wanted for op in match.calls.values()) or wanted.count(None) > 1:
        return Decline("its means are put to other axes than they came from")
    if zero in match.tensors and np.any(match.constant(zero)):
        return Decline("it subtracts the mean from another number than 0")
    if small is None or small.size != 1:
        return Decline("its epsilon is not a constant")
    if two in match.tensors and not np.all(match.constant(two) == 2):
        return Decline("it raises to another power than 2")
    if size is None or any(_elements(match, operand) not in (None, size) for operand in (gamma, beta)):
        return Decline("its scale or offset is not one number per element of the last axis")
    if any(match[operand].rank > match[x].rank for operand in (gamma, beta) if operand in match.tensors):
        return Decline("its scale or offset has more axes than it, which the result has too")
    return {"epsilon": float(small.reshape(-1)[0])}


def _last(tensor: Tensor, over: set[int]) -> bool:
    """The last axis, and others only of size 1."""
    return tensor.rank - 1 in over and all(tensor.dims[axis] == 1 for axis in over - {tensor.rank - 1})


def _elements(match: Match, operand: Operand) -> int | None:
    """Elements of an operand along its last axis, where it has no other; ``None`` where the pattern lacks it."""
    if operand not in match.tensors:
        return None
    *others, last = match[operand].shape or (0,)
    return 0 if any(n != 1 for n in others) else last


def normalized(at: Instance, parameters: int = 2) -> str:
    """The scale and offset have the normalized axis last, and axes of size 1 before it."""
    present = [at.op.tensor(k) for k in range(1, 1 + parameters)]
    rows = [None if t is None else [*(f"u{k}{i}" for i in range(t.rank - 1)), "k"] for k, t in enumerate(present)]
    return spelled([["...", "k"], *rows], ["...", "k"])


@fusion(
    "LAYER_NORMALIZATION",
    pattern=list(_patterns()),
    inputs=(x, gamma, beta),
    where=last_axis_only,
    layout=Terminate(unordered="..."),
    axes=normalized,
    types="float32",
    quantization=NotQuantizable(),
    min_opset=17,
)
def layer_normalization(ctx: Context, x: Value, gamma: Value | None = None, beta: Value | None = None) -> Value:
    """LayerNormalization over the last TFLite axis."""
    size = ctx.op[0].dims[-1] or 1
    scale = np.ones(size, np.float32) if gamma is None else flat(ctx, 1, gamma)
    offset = None if beta is None else flat(ctx, 2, beta)
    return ctx.ops.LayerNormalization(x, scale, offset, axis=-1, epsilon=ctx.options.epsilon)


# --- x / sqrt(mean(x^2) + epsilon) * gamma ------------------------------------------------------


def root_mean_square() -> Iterator[Call]:
    """By the root or its inverse, which is put back as a column where the mean is without its axis."""
    squares = Call("MUL", x, x, **NO_ACTIVATION), Call("SQUARE", x), Call("POW", x, two)
    for scaled, square in product((True, False), squares):
        flat_spread = _added(Call("MEAN", square, axes, keep_dims=False), epsilon)
        for spread in (_added(_mean(square), epsilon), _column(flat_spread)):
            yield from _normed(scaled, Call("RSQRT", spread), Call("SQRT", spread))
        yield from _normed(scaled, _column(Call("RSQRT", flat_spread)), _column(Call("SQRT", flat_spread)))


def _normed(scaled: bool, inverse: Call, root: Call) -> Iterator[Call]:
    for normed in (_multiplied(x, inverse), Call("DIV", x, root, **NO_ACTIVATION)):
        yield _multiplied(normed, gamma) if scaled else normed


@fusion(
    "RMS_NORMALIZATION",
    pattern=list(root_mean_square()),
    inputs=(x, gamma),
    where=last_axis_only,
    layout=Terminate(unordered="..."),
    axes=lambda at: normalized(at, 1),
    types="float32",
    quantization=NotQuantizable(),
)
def rms_normalization(ctx: Context, x: Value, gamma: Value | None = None) -> Value:
    """RMSNormalization over the last TFLite axis; before opset 23 as it is spelled out in ONNX, which runtimes know."""
    size = ctx.op[0].dims[-1] or 1
    scale = np.ones(size, np.float32) if gamma is None else flat(ctx, 1, gamma)
    if ctx.opset >= 23:
        return ctx.ops.RMSNormalization(x, scale, axis=-1, epsilon=ctx.options.epsilon)
    squares = ctx.ops.ReduceMean(ctx.ops.Pow(x, np.float32(2)), [-1], keepdims=1)
    root = ctx.ops.Sqrt(ctx.ops.Add(squares, np.float32(ctx.options.epsilon)))
    return ctx.ops.Mul(ctx.ops.Div(x, root), scale)


def flat(ctx: Context, slot: int, value: Value) -> Value | Array:
    """A scale or offset without its leading axes of size 1."""
    constant = ctx.constant(slot)
    return ctx.ops.Reshape(value, [-1]) if constant is None else constant.reshape(-1)
