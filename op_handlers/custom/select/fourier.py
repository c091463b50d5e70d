"""Fourier transforms and complex numbers.

A complex tensor has a last axis of size 2: the real and the imaginary part.
"""

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
    can_emit_rfft,
    emit_irfft,
    emit_rfft,
    handler,
    out,
)
from op_handlers.custom.select.nodedef import PREFIX, NodeDef
from op_handlers.custom.select.rewriting import (
    HandlerDecorator,
    acceptance_check,
    element_count_check,
    make_kernel,
    rewrite_to,
)
from op_handlers.kernels.operands import cast_to_int64
from op_handlers.math import arithmetic, unary

REAL_TYPES = ("complex64 -> float32",)


def emit_angle(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
    """Emit ATAN2 of the imaginary and the real part."""
    z, dims = rewriter.op[0], rewriter.op[0].dims
    real, imaginary = (rewriter.call(part, [z], "float32", dims) for part in (unary.real_part, unary.imaginary_part))
    return rewriter.finish(arithmetic.atan2, [imaginary, real])


real_ = rewrite_to("Real", unary.real_part, make_kernel(np.real), types=REAL_TYPES)
imag = rewrite_to("Imag", unary.imaginary_part, make_kernel(np.imag), types=REAL_TYPES)
complex_abs = rewrite_to("ComplexAbs", unary.complex_absolute, make_kernel(np.abs), types=REAL_TYPES)
angle = rewrite_to("Angle", arithmetic.atan2, make_kernel(np.angle), rewrite=emit_angle, types=REAL_TYPES)


@handler(
    PREFIX + "Complex",
    max_version=1,
    layout=Transparent(),
    types="float32, float32 -> complex64",
    result_dtypes={"*": ("*",)},
    accepts=acceptance_check(2),
    kernel=make_kernel(lambda x, y: (x + 1j * y).astype(np.complex64)),
)
def complex_(ctx: Context, real: Value, imaginary: Value) -> Value:
    """Emit pairs of real and imaginary parts, broadcast to one shape."""
    ops, dims = ctx.ops, ctx.op[0].dims
    if dims != ctx.op[1].dims or None in dims:
        real, imaginary = ops.Expand(real, ops.Shape(imaginary)), ops.Expand(imaginary, ops.Shape(real))
    return ops.Concat(*(ops.Unsqueeze(part, [-1]) for part in (real, imaginary)), axis=-1)


@handler(
    PREFIX + "Conj",
    max_version=1,
    layout=Transparent(),
    types="complex64 -> complex64",
    accepts=acceptance_check(1),
    kernel=make_kernel(np.conj),
)
def conj(ctx: Context, z: Value) -> Value:
    """Emit the pairs with negated imaginary parts."""
    return ctx.ops.Mul(z, np.asarray([1, -1], np.float32))


# --- transforms -------------------------------------------------------------------------------


def check_ranks(instance: Instance) -> Decline | None:
    """Return a Decline for an operand without axes, or a result of a different rank."""
    x, y = instance.op[0], instance.op[out(0)]
    if x.rank and (y.rank == x.rank or not y.has_rank):
        return None
    return Decline(f"the operand has rank {x.rank} and the result {y.rank}, expected equal ranks")


def fourier_transform(
    name: str, types: str, operands: int, kernel: Callable[..., Any], opset: int | Callable[[Instance], int] = 17
) -> HandlerDecorator:
    """Return a decorator that declares a Fourier transform along the last axis."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Terminate(),
        min_opset=opset,
        types=types,
        result_dtypes={"*": ("*",)},
        accepts=acceptance_check(
            operands, accepts=element_count_check(check_ranks, slot=1, count=1) if operands == 2 else check_ranks
        ),
        kernel=kernel,
    )


def fft_kernel(function: Callable[..., Any], dtype: Any) -> Callable[..., Array]:
    """Return a kernel that applies a NumPy transform along the last axis.

    If the operator has a second operand, it is the transform's length.
    """

    def kernel(op: Operator, x: Array, *length: Array) -> Array:
        return np.asarray(function(x, *(int(n.reshape(-1)[0]) for n in length))).astype(dtype)

    return kernel


def apply_along_last_axis(ctx: Context, pairs: Value, emit: Callable[[Value, int], Value]) -> Value:
    """Return ``emit(pairs, axis)``, where ``axis`` is the axis before the pairs.

    A tensor of rank 1 gets a batch axis, which DFT requires.
    """
    rank = ctx.op[0].rank
    if rank > 1:
        return emit(pairs, rank - 1)
    return ctx.ops.Squeeze(emit(ctx.ops.Unsqueeze(pairs, [0]), 1), [0])


@fourier_transform("FFT", "complex64 -> complex64", 1, fft_kernel(np.fft.fft, np.complex64))
def fft(ctx: Context, z: Value) -> Value:
    """Emit DFT."""
    return apply_along_last_axis(ctx, z, lambda pairs, axis: ctx.ops.DFT(pairs, None, np.asarray(axis)))


@fourier_transform("IFFT", "complex64 -> complex64", 1, fft_kernel(np.fft.ifft, np.complex64))
def ifft(ctx: Context, z: Value) -> Value:
    """Emit the inverse DFT."""
    return apply_along_last_axis(ctx, z, lambda pairs, axis: ctx.ops.DFT(pairs, None, np.asarray(axis), inverse=1))


def constant_length(op: Operator) -> int:
    """Return the length of the transform, or 0 if it is a runtime value."""
    length = op.constant(1)
    return 0 if length is None else int(length.reshape(-1)[0])


def rfft_opset(instance: Instance) -> int:
    return 1 if can_emit_rfft(constant_length(instance.op), instance.op[0].dims[-1] or 0) else 17


@fourier_transform("RFFT", "float32, int32 -> complex64", 2, fft_kernel(np.fft.rfft, np.complex64), rfft_opset)
def rfft(ctx: Context, x: Value, length: Value) -> Value:
    """Emit the one-sided transform of the last axis, as matrix products or DFT.

    The axis is cropped or zero-padded to the length.
    """
    points, dims = constant_length(ctx.op), ctx.op[0].dims
    width = min(dims[-1] or 0, points)
    if can_emit_rfft(points, width):
        cropped = x if width == dims[-1] else ctx.ops.Slice(x, [0], [width], [-1])
        return emit_rfft(ctx, cropped, (*dims[:-1], width), points)
    dft_length = length_scalar(ctx, length)

    def emit(pairs: Value, axis: int) -> Value:
        return ctx.ops.DFT(pairs, dft_length, np.asarray(axis), onesided=1)

    return apply_along_last_axis(ctx, ctx.ops.Unsqueeze(x, [ctx.op[0].rank]), emit)


def irfft_opset(instance: Instance) -> int:
    points = constant_length(instance.op)
    return 1 if can_emit_rfft(points, points) else 17


@fourier_transform("IRFFT", "complex64, int32 -> float32", 2, fft_kernel(np.fft.irfft, np.float32), irfft_opset)
def irfft(ctx: Context, z: Value, length: Value) -> Value:
    """Emit the inverse transform of one-sided spectra, as products or DFT.

    DFT requires a two-sided spectrum, so the mirror image is appended.
    """
    ops, points = ctx.ops, constant_length(ctx.op)
    length_vector = ops.Reshape(length_scalar(ctx, length), [1])
    bin_count = ops.Add(ops.Div(length_vector, np.asarray([2])), np.asarray([1]))
    if can_emit_rfft(points, points):
        batch_dims = ctx.op[0].dims[:-1]
        bins = crop_bins(ctx, z, bin_count, len(batch_dims))
        return emit_irfft(ctx, bins, (*batch_dims, points // 2 + 1, 2), points)

    def emit(pairs: Value, axis: int) -> Value:
        axes = np.asarray([axis])
        spectrum = crop_bins(ctx, pairs, bin_count, axis)
        mirror_image = ops.Slice(spectrum, ops.Sub(length_vector, bin_count), np.asarray([0]), axes, np.asarray([-1]))
        two_sided = ops.Concat(spectrum, ops.Mul(mirror_image, np.asarray([1, -1], np.float32)), axis=axis)
        return ops.Gather(ops.DFT(two_sided, None, np.asarray(axis), inverse=1), np.asarray(0), axis=-1)

    return apply_along_last_axis(ctx, z, emit)


def crop_bins(ctx: Context, pairs: Value, bin_count: Value, axis: int) -> Value:
    """Return the first ``bin_count`` bins of a spectrum.

    TensorFlow's kernel fails for a spectrum with fewer bins (fft_ops.cc).
    """
    length, stored_bins = ctx.op.constant(1), ctx.op[0].dims[-1]
    if length is not None and int(length.reshape(-1)[0]) // 2 + 1 == stored_bins:
        return pairs
    return ctx.ops.Slice(pairs, np.asarray([0]), bin_count, np.asarray([axis]))


def length_scalar(ctx: Context, length: Value) -> Any:
    """Return the length as an int64 scalar."""
    int64_length = cast_to_int64(ctx, 1, length)
    if isinstance(int64_length, np.ndarray):
        return int64_length.reshape(())
    return ctx.ops.Reshape(int64_length, np.zeros(0, np.int64))
