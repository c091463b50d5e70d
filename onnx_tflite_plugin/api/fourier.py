"""Fourier transforms of real rows as products with constant matrices.

ONNX Runtime's DFT is slower at most lengths, inaccurate at lengths other than powers of two, and needs opset 17. One thread,
ONNX Runtime 1.32, AMD EPYC (Zen 4, AVX-512); milliseconds for DFT, one product, and two products:
511 rows of 2048: 19.6, 45.3, 8.2; 511 of 1024: 9.3, 11.4, 3.2; 96 of 512: 0.75, 0.46, 0.28; 96 of 256: 0.35, 0.13, 0.15.

Two products follow the Cooley-Tukey factorization ``points = first * second``. Samples have the indices
``second * a + b``, and frequencies the indices ``f + first * g``. Samples are real, so frequencies with
``f > first / 2`` are complex conjugates of computed frequencies and are not computed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from onnx_tflite_plugin.api.budget import spend_budget
from onnx_tflite_plugin.api.context import Context
from onnx_tflite_plugin.api.values import Value
from onnx_tflite_plugin.source.model import Array, Dims

Part = Literal["pairs", "real", "imaginary", "power"]
"""Content of a spectrum: (real, imaginary) pairs along the last axis, only one of the two parts, or squared magnitudes."""

MAX_ONE_PRODUCT_ELEMENTS = {"float32": 512 * 257, "float64": 128 * 130}
"""Maximum elements of the matrix for which one product is as fast as two (measured as above)."""
MAX_MATRIX_ELEMENTS = 1 << 21
"""Maximum elements of the matrices for which products replace DFT: 8 MB of float32 in the file."""


def can_emit_rfft(points: int, width: int, part: Part = "pairs", dtype: str = "float32") -> bool:
    """True if :func:`emit_rfft` transforms rows of this width.

    Rows have ``width`` samples and are zero-padded to ``points``. ``part`` and ``dtype``: as passed to
    :func:`emit_rfft`. :func:`emit_irfft` requires ``can_emit_rfft(points, points)``.
    """
    return points > 0 and width > 0 and _second_factor(points, width, part, dtype) is not None


def is_projected_rfft_faster(points: int, width: int, part: Part, columns: int) -> bool:
    """True if one product is faster than the transform followed by the projection.

    The product with the combined matrix is faster if it takes fewer multiplications. ``columns``: the number of columns
    of the projection.

    For 511 rows of 2048 samples and 96 mel filters: 1.3 ms instead of 7.4 (measured as above).
    """
    second = _second_factor(points, width, part, "float32")
    if second is None or width * columns > MAX_MATRIX_ELEMENTS:
        return False
    frequencies = points // 2 + 1
    transform = width * frequencies if second == 1 else _two_products_cost(points, second)
    return width * columns <= transform + frequencies * columns


def emit_projected_rfft(ctx: Context, x: Value, width: int, points: int, part: Part, projection: Array) -> Value:
    """Transform rows ``[..., width]``, and multiply the spectra by ``projection``.

    ``projection`` has the shape ``[points // 2 + 1, n]``. Return float32 ``[..., n]``.
    """
    matrix = _dft_matrix(width, points, part) @ projection.astype(np.float64)
    return ctx.ops.MatMul(x, matrix.astype(np.float32))


def emit_rfft(ctx: Context, x: Value, dims: Dims, points: int, part: Part = "pairs", dtype: str = "float32") -> Value:
    """Return the spectra of rows ``[..., width]``, zero-padded to ``points``.

    ``dims``: the shape of ``x``; its last dimension is static and at most ``points``. ``part`` selects what is returned for
    each frequency from 0 to ``points // 2``. The result is ``[..., points // 2 + 1]``, with a last axis of 2 for pairs. Raises
    ValueError if :func:`can_emit_rfft` is False.
    """
    width, frequencies = dims[-1] or 0, points // 2 + 1
    second = _second_factor(points, width, part, dtype)
    if second is None:
        raise ValueError(f"a transform of {width} samples, padded to {points}, is too large for matrix products")
    if second > 1:
        return _emit_two_products(ctx, x, dims, points, second, part, dtype)
    spectrum = ctx.ops.MatMul(x, _dft_matrix(width, points, part).astype(dtype))
    if part == "pairs":
        return ctx.ops.Reshape(spectrum, [*[0] * (len(dims) - 1), frequencies, 2])
    return _sum_squares(ctx, spectrum, frequencies, len(dims) - 1) if part == "power" else spectrum


def emit_irfft(ctx: Context, z: Value, dims: Dims, points: int) -> Value:
    """Return the real rows ``[..., points]`` of float32 spectra.

    ``dims``: the shape of the spectra, ``[..., points // 2 + 1, 2]``. Imaginary parts at both ends are ignored, as in
    FFT libraries. Raises ValueError if :func:`can_emit_rfft` is False.
    """
    frequencies, ops = points // 2 + 1, ctx.ops
    second = _second_factor(points, points, "pairs", "float32")
    if second is None:
        raise ValueError(f"a transform of {points} samples is too large for matrix products")
    if second == 1:
        weights = _mirror_weights(np.arange(frequencies), points)
        matrix = _dft_matrix(points, points, "pairs").T * np.repeat(weights, 2)[:, np.newaxis] / points
        return ops.MatMul(ops.Reshape(z, [*[0] * (len(dims) - 2), 2 * frequencies]), matrix.astype(np.float32))
    first = points // second
    f_count = first // 2 + 1
    frequency = np.add.outer(np.arange(f_count), first * np.arange(second)).reshape(-1)
    # Frequencies above half of ``points`` are read from their mirror images; the twiddle factors conjugate them.
    sources = np.where(frequency > points // 2, points - frequency, frequency)
    pairs = ops.Gather(ops.Reshape(z, [-1, frequencies, 2]), sources, axis=1)
    by_frequency = ops.Transpose(ops.Reshape(pairs, [-1, f_count, 2 * second]), perm=[1, 0, 2])
    twiddles = np.ascontiguousarray(_twiddle_matrices(first, second, "pairs").transpose(0, 2, 1)).astype(np.float32)
    rows = ops.Reshape(ops.Transpose(ops.MatMul(by_frequency, twiddles), perm=[1, 0, 2]), [-1, 2 * f_count, second])
    angles = _angles(np.arange(first), np.arange(f_count), first)
    weights = _mirror_weights(np.arange(f_count), first) / points
    first_matrix = np.stack([np.cos(angles) * weights, -np.sin(angles) * weights], axis=2).reshape(first, 2 * f_count)
    return _restore_leading(ctx, ops.MatMul(first_matrix.astype(np.float32), rows), z, dims[:-2], (points,))


def _second_factor(points: int, width: int, part: Part, dtype: str) -> int | None:
    """Return ``second`` for two products, 1 for one, None if matrices are too large."""
    columns = (points // 2 + 1) * (1 if part in ("real", "imaginary") else 2)
    factors = [n for n in range(2, min(points // 2, 512) + 1) if points % n == 0]
    cheapest = min(factors, key=lambda second: _two_products_cost(points, second), default=1)
    if (
        width * columns > MAX_ONE_PRODUCT_ELEMENTS[dtype]
        and cheapest > 1
        and _two_products_cost(points, cheapest) < width * columns
    ):
        f_count = points // cheapest // 2 + 1
        elements = 4 * f_count * cheapest**2 + 2 * f_count * points // cheapest
        return cheapest if elements <= MAX_MATRIX_ELEMENTS else None
    return 1 if width * columns <= MAX_MATRIX_ELEMENTS else None


def _two_products_cost(points: int, second: int) -> int:
    """Return the number of multiplications that two products need for one row."""
    f_count = points // second // 2 + 1
    return 2 * f_count * points + 4 * f_count * second**2


def _sum_squares(ctx: Context, parts: Value, size: int, axis: int) -> Value:
    """Return squared magnitudes.

    The axis has ``size`` real parts, followed by ``size`` imaginary parts.
    """
    real, imaginary = ctx.ops.Split(parts, [size, size], axis=axis, outputs=2)
    return ctx.ops.Add(ctx.ops.Mul(real, real), ctx.ops.Mul(imaginary, imaginary))


def _angles(samples: Array, frequencies: Array, points: int) -> Array:
    """Return ``2 pi samples frequencies / points``, reduced modulo 2 pi for accuracy."""
    return 2 * np.pi * (np.multiply.outer(samples, frequencies) % points) / points


def _join_parts(real: Array, imaginary: Array, part: Part) -> Array:
    """Return real and imaginary columns: interleaved, concatenated, or only one."""
    if part == "pairs":
        return np.stack([real, imaginary], axis=-1).reshape(*real.shape[:-1], -1)
    if part == "power":
        return np.concatenate([real, imaginary], axis=-1)
    return real if part == "real" else imaginary


def _dft_matrix(width: int, points: int, part: Part) -> Array:
    """Return the DFT matrix ``[width, columns]``."""
    frequencies = points // 2 + 1
    spend_budget(2 * width * frequencies, 8, "the matrix of a Fourier transform")
    angles = _angles(np.arange(width), np.arange(frequencies), points)
    return _join_parts(np.cos(angles), -np.sin(angles), part)


def _emit_two_products(ctx: Context, x: Value, dims: Dims, points: int, second: int, part: Part, dtype: str) -> Value:
    """Emit the spectra as two products; the second one includes the twiddle factors.

    The first product sums over ``a`` for each ``b``, and the second over ``b`` for each ``f``.
    """
    ops, width, first = ctx.ops, dims[-1] or 0, points // second
    f_count, a_count = first // 2 + 1, -(-width // second)
    spend_budget(2 * f_count * a_count + 4 * f_count * second**2 + points, 8, "the matrices of a Fourier transform")
    padding = a_count * second - width
    rows = ops.Pad(x, [*[0] * (2 * len(dims) - 1), padding]) if padding else x
    angles = _angles(np.arange(f_count), np.arange(a_count), first)
    first_matrix = np.stack([np.cos(angles), -np.sin(angles)], axis=1).reshape(2 * f_count, a_count).astype(dtype)
    first_product = ops.MatMul(first_matrix, ops.Reshape(rows, [-1, a_count, second]))
    by_frequency = ops.Transpose(ops.Reshape(first_product, [-1, f_count, 2, second]), perm=[1, 0, 2, 3])
    # The Reshape separates Transpose and MatMul: ONNX Runtime 1.22 fuses them into a product without a float64 kernel.
    second_operand = ops.Reshape(by_frequency, [f_count, -1, 2 * second])
    spectra = ops.MatMul(second_operand, _twiddle_matrices(first, second, part).astype(dtype))
    if part == "power":
        spectra = _sum_squares(ctx, spectra, second, axis=2)
    pair_axis = [2] if part == "pairs" else []
    in_factor_order = ops.Reshape(ops.Transpose(spectra, perm=[1, 0, 2]), [-1, f_count * second, *pair_axis])
    in_frequency_order = ops.Gather(in_factor_order, _frequency_positions(first, second), axis=1)
    return _restore_leading(ctx, in_frequency_order, x, dims[:-1], (points // 2 + 1, *pair_axis))


def _restore_leading(ctx: Context, rows: Value, x: Value, leading: Dims, sizes: tuple[int, ...]) -> Value:
    """Return ``rows`` reshaped to the leading dimensions of ``x``, then ``sizes``."""
    if leading.count(None) <= 1:
        return ctx.ops.Reshape(rows, [*(-1 if size is None else size for size in leading), *sizes])
    leading_sizes = ctx.ops.Slice(ctx.ops.Shape(x), [0], [len(leading)])
    return ctx.ops.Reshape(rows, ctx.ops.Concat(leading_sizes, list(sizes), axis=0))


def _twiddle_matrices(first: int, second: int, part: Part) -> Array:
    """Return one matrix per ``f``.

    Rows: the real parts for each ``b``, then the imaginary ones. Columns: the requested part for each ``g``.
    Frequencies above half of ``points`` are conjugated, since they stand for their mirror images.
    """
    f, b, g = np.ogrid[: first // 2 + 1, :second, :second]
    angles = 2 * np.pi * (b * (f + first * g) % (first * second)) / (first * second)
    sign = np.where(f + first * g > first * second // 2, -1.0, 1.0)
    cosines, sines = np.cos(angles), np.sin(angles)
    real = np.concatenate([cosines, sines], axis=1)
    imaginary = np.concatenate([-sines * sign, cosines * sign], axis=1)
    return _join_parts(real, imaginary, part)


def _frequency_positions(first: int, second: int) -> Array:
    """Return the position of each frequency up to ``points / 2`` in ``(f, g)``.

    A frequency that is not computed has the position of its mirror image.
    """
    points = first * second
    frequencies = np.arange(points // 2 + 1)
    computed = np.where(frequencies % first <= first // 2, frequencies, points - frequencies)
    return np.asarray(computed % first * second + computed // first)


def _mirror_weights(frequencies: Array, points: int) -> Array:
    """Return 2 for frequencies with a mirror image, and 1 for 0 and ``points / 2``."""
    return np.where((frequencies == 0) | (2 * frequencies == points), 1.0, 2.0)
