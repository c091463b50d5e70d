"""Decomposed normalizations, as exported from Keras and PyTorch."""

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
    format_axes,
    fusion,
    operands,
)
from op_handlers.kernels.operands import NO_ACTIVATION

x, gamma, beta, epsilon, axes, exponent = operands("x gamma beta epsilon axes exponent")
zero, column_shape = operands("zero column_shape", constant=True)
Term = Call | Operand


def _add(a: Term, b: Term) -> Call:
    return Call("ADD", a, b, commutes=True, **NO_ACTIVATION)


def _multiply(a: Term, b: Term) -> Call:
    return Call("MUL", a, b, commutes=True, **NO_ACTIVATION)


def _mean(operand: Term) -> Call:
    return Call("MEAN", operand, axes, keep_dims=True)


def keras_pattern(has_gamma: bool, has_beta: bool) -> Call:
    """Return the pattern that Keras exports.

    The pattern is ``x * s + (beta - mean * s)`` with ``s = gamma / sqrt(variance + epsilon)``. ``has_gamma``,
    ``has_beta``: the pattern contains gamma or beta.
    """
    mean = _mean(x)
    variance = _mean(Call("SQUARED_DIFFERENCE", x, mean, commutes=True))
    inverse = Call("RSQRT", _add(variance, epsilon))
    scale = _multiply(inverse, gamma) if has_gamma else inverse
    offset = (
        Call("SUB", beta, _multiply(mean, scale), **NO_ACTIVATION) if has_beta else _multiply(Call("NEG", mean), scale)
    )
    return _add(_multiply(x, scale), offset)


def pytorch_pattern(has_gamma: bool, has_beta: bool, square: str, has_division: bool) -> Call:
    """Return the pattern of decompositions from PyTorch.

    The pattern is ``(x - mean) / sqrt(variance + epsilon) * gamma + beta``. ``square``: the code of the operator that
    squares. ``has_division``: the pattern contains DIV and SQRT instead of MUL and RSQRT.
    """
    centered = Call("SUB", x, _mean(x), **NO_ACTIVATION)
    squares = {
        "MUL": Call("MUL", centered, centered, **NO_ACTIVATION),
        "SQUARE": Call("SQUARE", centered),
        "POW": Call("POW", centered, exponent),
        "SQUARED_DIFFERENCE": Call("SQUARED_DIFFERENCE", x, _mean(x), commutes=True),
    }
    variance = _add(_mean(squares[square]), epsilon)
    normalized = (
        Call("DIV", centered, Call("SQRT", variance), **NO_ACTIVATION)
        if has_division
        else _multiply(centered, Call("RSQRT", variance))
    )
    result = _multiply(normalized, gamma) if has_gamma else normalized
    return _add(result, beta) if has_beta else result


def litert_torch_pattern(has_gamma: bool, has_beta: bool) -> Call:
    """Return the pattern that litert-torch exports.

    The pattern is ``x * r + (0 - r * mean)`` with ``r = 1 / sqrt(variance + epsilon)``. Means drop the normalized axis,
    and RESHAPE restores it.
    """
    mean = Call("MEAN", x, axes, keep_dims=False)
    variance = Call("MEAN", Call("SQUARED_DIFFERENCE", x, _column(mean), commutes=True), axes, keep_dims=False)
    inverse = Call("RSQRT", _add(variance, epsilon))
    offset = Call("SUB", zero, _multiply(inverse, mean), **NO_ACTIVATION)
    normalized = _add(_multiply(x, _column(inverse)), _column(offset))
    result = _multiply(normalized, gamma) if has_gamma else normalized
    return _add(result, beta) if has_beta else result


def _column(operand: Term) -> Call:
    return Call("RESHAPE", operand, column_shape)


def _patterns() -> Iterator[Call]:
    for has_gamma, has_beta in product((True, False), repeat=2):
        yield litert_torch_pattern(has_gamma, has_beta)
    for has_gamma, has_beta in product((True, False), repeat=2):
        yield keras_pattern(has_gamma, has_beta)
        for square, has_division in product(("MUL", "SQUARE", "POW", "SQUARED_DIFFERENCE"), (False, True)):
            yield pytorch_pattern(has_gamma, has_beta, square, has_division)


def match_last_axis(match: Match) -> Mapping[str, Any] | Decline:
    """Return epsilon if the last axis is normalized, or a Decline."""
    reduced_axes, size, epsilon_value = match.constant(axes), match[x].dims[-1], match.constant(epsilon)
    if reduced_axes is None or not _is_last_axis(match[x], {int(a) % match[x].rank for a in reduced_axes.reshape(-1)}):
        return Decline("the mean is not over the last axis")
    mean_dims = (*match[x].dims[:-1], 1)
    if (
        any(op.code == "RESHAPE" and op[~0].dims != mean_dims for op in match.calls.values())
        or mean_dims.count(None) > 1
    ):
        return Decline("the means are reshaped to other axes")
    if zero in match.tensors and np.any(match.constant(zero)):
        return Decline("the mean is subtracted from a number other than 0")
    if epsilon_value is None or epsilon_value.size != 1:
        return Decline("epsilon is not a constant scalar")
    if exponent in match.tensors and not np.all(match.constant(exponent) == 2):
        return Decline("the exponent is not 2")
    if size is None or any(_row_size(match, operand) not in (None, size) for operand in (gamma, beta)):
        return Decline("scale or offset is not a vector along the last axis")
    if any(match[operand].rank > match[x].rank for operand in (gamma, beta) if operand in match.tensors):
        return Decline("scale or offset has a higher rank than the input")
    return {"epsilon": float(epsilon_value.reshape(-1)[0])}


def _is_last_axis(tensor: Tensor, reduced_axes: set[int]) -> bool:
    """True if ``reduced_axes`` are the last axis and possibly axes of size 1."""
    return tensor.rank - 1 in reduced_axes and all(tensor.dims[axis] == 1 for axis in reduced_axes - {tensor.rank - 1})


def _row_size(match: Match, operand: Operand) -> int | None:
    """Return the size of a vector operand, ``None`` if the pattern lacks the operand.

    Return 0 if the operand is not a vector. Leading axes may have size 1.
    """
    if operand not in match.tensors:
        return None
    *leading, last = match[operand].shape or (0,)
    return 0 if any(n != 1 for n in leading) else last


def normalization_axes(instance: Instance, parameters: int = 2) -> str:
    """Return the axes of input, scale and offset.

    Scale and offset end with the normalized axis, after axes of size 1.
    """
    tensors = [instance.op.tensor(k) for k in range(1, 1 + parameters)]
    rows = [None if t is None else [*(f"u{k}{i}" for i in range(t.rank - 1)), "k"] for k, t in enumerate(tensors)]
    return format_axes([["...", "k"], *rows], ["...", "k"])


@fusion(
    "LAYER_NORMALIZATION",
    pattern=list(_patterns()),
    inputs=(x, gamma, beta),
    check=match_last_axis,
    layout=Terminate(unordered="..."),
    axes=normalization_axes,
    types="float32",
    quantization=NotQuantizable(),
    min_opset=17,
)
def layer_normalization(ctx: Context, x: Value, gamma: Value | None = None, beta: Value | None = None) -> Value:
    """Emit LayerNormalization over the last TFLite axis."""
    size = ctx.op[0].dims[-1] or 1
    scale = np.ones(size, np.float32) if gamma is None else flatten_parameter(ctx, 1, gamma)
    offset = None if beta is None else flatten_parameter(ctx, 2, beta)
    return ctx.ops.LayerNormalization(x, scale, offset, axis=-1, epsilon=ctx.options.epsilon)


# --- x / sqrt(mean(x^2) + epsilon) * gamma ------------------------------------------------------


def rms_patterns() -> Iterator[Call]:
    """Yield the patterns of RMS normalization, with SQRT or RSQRT.

    The mean keeps the normalized axis, or a RESHAPE restores it.
    """
    squares = Call("MUL", x, x, **NO_ACTIVATION), Call("SQUARE", x), Call("POW", x, exponent)
    for has_gamma, square in product((True, False), squares):
        flat_mean = _add(Call("MEAN", square, axes, keep_dims=False), epsilon)
        for mean in (_add(_mean(square), epsilon), _column(flat_mean)):
            yield from _rms_calls(has_gamma, Call("RSQRT", mean), Call("SQRT", mean))
        yield from _rms_calls(has_gamma, _column(Call("RSQRT", flat_mean)), _column(Call("SQRT", flat_mean)))


def _rms_calls(has_gamma: bool, inverse: Call, root: Call) -> Iterator[Call]:
    for normalized in (_multiply(x, inverse), Call("DIV", x, root, **NO_ACTIVATION)):
        yield _multiply(normalized, gamma) if has_gamma else normalized


@fusion(
    "RMS_NORMALIZATION",
    pattern=list(rms_patterns()),
    inputs=(x, gamma),
    check=match_last_axis,
    layout=Terminate(unordered="..."),
    axes=lambda instance: normalization_axes(instance, 1),
    types="float32",
    quantization=NotQuantizable(),
)
def rms_normalization(ctx: Context, x: Value, gamma: Value | None = None) -> Value:
    """Emit RMSNormalization, or the decomposition that runtimes fuse before opset 23."""
    size = ctx.op[0].dims[-1] or 1
    scale = np.ones(size, np.float32) if gamma is None else flatten_parameter(ctx, 1, gamma)
    if ctx.opset >= 23:
        return ctx.ops.RMSNormalization(x, scale, axis=-1, epsilon=ctx.options.epsilon)
    squares = ctx.ops.ReduceMean(ctx.ops.Pow(x, np.float32(2)), [-1], keepdims=1)
    root = ctx.ops.Sqrt(ctx.ops.Add(squares, np.float32(ctx.options.epsilon)))
    return ctx.ops.Mul(ctx.ops.Div(x, root), scale)


def flatten_parameter(ctx: Context, slot: int, value: Value) -> Value | Array:
    """Return a scale or offset without its leading axes of size 1."""
    constant = ctx.constant(slot)
    return ctx.ops.Reshape(value, [-1]) if constant is None else constant.reshape(-1)
