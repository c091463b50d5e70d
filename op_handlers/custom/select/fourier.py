"""Fourier transforms, and complex numbers, which are pairs along a last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Operator,
    Replacement,
    Rewriter,
    Terminate,
    Transparent,
    Value,
    emit_irfft,
    emit_rfft,
    handler,
    is_product,
    out,
)
from op_handlers.custom.select.nodedef import PREFIX, NodeDef
from op_handlers.custom.select.rewriting import Declare, check_acceptable, check_element_count, kernel_of, rewrite_to
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.math import arithmetic, unary

PART = ("complex64 -> float32",)


def emit_angle(steps: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit ATAN2 of the imaginary and the real part."""
    z, dims = steps.op[0], steps.op[0].dims
    real, imaginary = (steps.call(part, [z], "float32", dims) for part in (unary.real_part, unary.imaginary_part))
    return steps.finish(arithmetic.atan2, [imaginary, real])


real_ = rewrite_to("Real", unary.real_part, kernel_of(np.real), types=PART)
imag = rewrite_to("Imag", unary.imaginary_part, kernel_of(np.imag), types=PART)
complex_abs = rewrite_to("ComplexAbs", unary.complex_absolute, kernel_of(np.abs), types=PART)
angle = rewrite_to("Angle", arithmetic.atan2, kernel_of(np.angle), rewrite=emit_angle, types=PART)


def check_equal_shapes(at: Instance) -> Decline | None:
    one, other = at.op[0].dims, at.op[1].dims
    return (
        None
        if one == other
        else Decline(f"the operands have shapes {list(one)} and {list(other)}, expected equal ones")
    )


@handler(
    PREFIX + "Complex",
    max_version=1,
    layout=Transparent(),
    types="float32, float32 -> complex64",
    converts={"*": ("*",)},
    accepts=check_acceptable(2, accepts=check_equal_shapes),
    kernel=kernel_of(lambda x, y: (x + 1j * y).astype(np.complex64)),
)
def complex_(ctx: Context, real: Value, imaginary: Value) -> Value:
    """Emit pairs of real and imaginary parts."""
    return ctx.ops.Concat(*(ctx.ops.Unsqueeze(part, [-1]) for part in (real, imaginary)), axis=-1)


@handler(
    PREFIX + "Conj",
    max_version=1,
    layout=Transparent(),
    types="complex64 -> complex64",
    accepts=check_acceptable(1),
    kernel=kernel_of(np.conj),
)
def conj(ctx: Context, z: Value) -> Value:
    """Emit the pairs with the imaginary part negated."""
    return ctx.ops.Mul(z, np.asarray([1, -1], np.float32))


# --- transforms -------------------------------------------------------------------------------


def has_rows(at: Instance) -> Decline | None:
    """Return a Decline for an operand without axes, or a result of another rank."""
    x, y = at.op[0], at.op[out(0)]
    if x.rank and (y.rank == x.rank or not y.has_rank):
        return None
    return Decline(f"the operand has rank {x.rank} and the result {y.rank}, expected equal ranks")


def transform(
    name: str, types: str, operands: int, kernel: Callable[..., Any], opset: int | Callable[[Instance], int] = 17
) -> Declare:
    """Return a decorator that declares a Fourier transform along the last axis."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Terminate(),
        min_opset=opset,
        types=types,
        converts={"*": ("*",)},
        accepts=check_acceptable(operands, accepts=check_element_count(1, 1, has_rows) if operands == 2 else has_rows),
        kernel=kernel,
    )


def rows(kernel: Callable[..., Any], dtype: Any) -> Callable[..., Array]:
    """Return a NumPy transform of rows; its length is an operand."""

    def transform(op: Operator, x: Array, *length: Array) -> Array:
        return np.asarray(kernel(x, *(int(n.reshape(-1)[0]) for n in length))).astype(dtype)

    return transform


def along_rows(ctx: Context, pairs: Value, emit: Callable[[Value, int], Value]) -> Value:
    """Apply ``emit`` to pairs along the axis of their elements: DFT takes a batch before it."""
    rank = ctx.op[0].rank
    if rank > 1:
        return emit(pairs, rank - 1)
    return ctx.ops.Squeeze(emit(ctx.ops.Unsqueeze(pairs, [0]), 1), [0])


@transform("FFT", "complex64 -> complex64", 1, rows(np.fft.fft, np.complex64))
def fft(ctx: Context, z: Value) -> Value:
    """Emit DFT."""
    return along_rows(ctx, z, lambda pairs, axis: ctx.ops.DFT(pairs, None, np.asarray(axis)))


@transform("IFFT", "complex64 -> complex64", 1, rows(np.fft.ifft, np.complex64))
def ifft(ctx: Context, z: Value) -> Value:
    """Emit the inverse DFT."""
    return along_rows(ctx, z, lambda pairs, axis: ctx.ops.DFT(pairs, None, np.asarray(axis), inverse=1))


def constant_length(op: Operator) -> int:
    """Return the transform's length; 0 if it is a runtime value."""
    length = op.constant(1)
    return 0 if length is None else int(length.reshape(-1)[0])


def rfft_opset(at: Instance) -> int:
    return 1 if is_product(constant_length(at.op), at.op[0].dims[-1] or 0) else 17


@transform("RFFT", "float32, int32 -> complex64", 2, rows(np.fft.rfft, np.complex64), rfft_opset)
def rfft(ctx: Context, x: Value, length: Value) -> Value:
    """Emit the one-sided transform of rows, cropped or zero-padded to the length: products, or DFT."""
    points, dims = constant_length(ctx.op), ctx.op[0].dims
    width = min(dims[-1] or 0, points)
    if is_product(points, width):
        cropped = x if width == dims[-1] else ctx.ops.Slice(x, [0], [width], [-1])
        return emit_rfft(ctx, cropped, (*dims[:-1], width), points)
    number = scalar(ctx, length)

    def emit(pairs: Value, axis: int) -> Value:
        return ctx.ops.DFT(pairs, number, np.asarray(axis), onesided=1)

    return along_rows(ctx, ctx.ops.Unsqueeze(x, [ctx.op[0].rank]), emit)


def irfft_opset(at: Instance) -> int:
    points = constant_length(at.op)
    return 1 if is_product(points, points) else 17


@transform("IRFFT", "complex64, int32 -> float32", 2, rows(np.fft.irfft, np.float32), irfft_opset)
def irfft(ctx: Context, z: Value, length: Value) -> Value:
    """Emit the inverse transform of one-sided spectra: products, or DFT of the bins and their mirror images."""
    ops, one, points = ctx.ops, np.asarray([1]), constant_length(ctx.op)
    number = ops.Reshape(scalar(ctx, length), [1])
    half = ops.Add(ops.Div(number, np.asarray([2])), one)
    if is_product(points, points):
        leading = ctx.op[0].dims[:-1]
        return emit_irfft(ctx, bins(ctx, z, half, len(leading)), (*leading, points // 2 + 1, 2), points)

    def emit(pairs: Value, axis: int) -> Value:
        at = np.asarray([axis])
        given = bins(ctx, pairs, half, axis)
        mirrored = ops.Slice(given, ops.Sub(number, half), np.asarray([0]), at, np.asarray([-1]))
        whole = ops.Concat(given, ops.Mul(mirrored, np.asarray([1, -1], np.float32)), axis=axis)
        return ops.Gather(ops.DFT(whole, None, np.asarray(axis), inverse=1), np.asarray(0), axis=-1)

    return along_rows(ctx, z, emit)


def bins(ctx: Context, pairs: Value, half: Value, axis: int) -> Value:
    """Emit the first bins, up to the requested length; TensorFlow's kernel refuses fewer (fft_ops.cc)."""
    length, held = ctx.op.constant(1), ctx.op[0].dims[-1]
    if length is not None and int(length.reshape(-1)[0]) // 2 + 1 == held:
        return pairs
    return ctx.ops.Slice(pairs, np.asarray([0]), half, np.asarray([axis]))


def scalar(ctx: Context, length: Value) -> Any:
    """Return the length as an int64 scalar."""
    number = cast_to_int64(ctx, 1, length)
    if isinstance(number, np.ndarray):
        return number.reshape(())
    return ctx.ops.Reshape(number, np.zeros(0, np.int64))
