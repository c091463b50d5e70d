"""Power spectra of real rows as products with constant matrices, in float64.

ONNX Runtime's DFT takes 1.4 to 1.6 times as long as two such products at 512 to 4096 points (measured on AMD Zen 5, one
thread, ONNX Runtime 1.32), and needs opset 17.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value, spend

MAX_SINGLE_PRODUCT = 128
"""Number of points up to which one matrix is as fast as two factors (measured as above)."""
MAX_SECOND_FACTOR = 32
"""Maximum number of points of the second factor, so that its matrices stay small."""


def power_spectrum(ctx: Context, rows: Value, width: int, points: int) -> Value:
    """Return squared magnitudes ``[R, points / 2 + 1]`` of the transforms of float64 rows ``[R, width]``, zero-padded.

    ``points`` is a power of two, at least ``width`` and at least 2.
    """
    if points <= MAX_SINGLE_PRODUCT:
        return _sum_squares(ctx, ctx.ops.MatMul(rows, _dft_matrix(width, points)), points // 2 + 1, axis=1)
    return _emit_factored(ctx, rows, width, points)


def _sum_squares(ctx: Context, parts: Value, size: int, axis: int) -> Value:
    """Return the sum of squares of both halves of an axis: ``size`` real parts, then as many imaginary parts."""
    ops = ctx.ops
    real, imaginary = ops.Split(parts, [size, size], axis=axis, outputs=2)
    return ops.Add(ops.Mul(real, real), ops.Mul(imaginary, imaginary))


def _angles(one: Array, other: Array, points: int) -> Array:
    """Return the angles ``2 pi one other / points``, reducing the products modulo ``points`` so that none is large."""
    return 2 * np.pi * (np.multiply.outer(one, other) % points) / points


def _dft_matrix(width: int, points: int) -> Array:
    """Return the DFT matrix ``[width, 2 (points / 2 + 1)]``: real parts of each frequency, then imaginary parts."""
    angles = _angles(np.arange(width), np.arange(points // 2 + 1), points)
    return np.concatenate([np.cos(angles), -np.sin(angles)], axis=1)


def _emit_factored(ctx: Context, rows: Value, width: int, points: int) -> Value:
    """Return the power spectrum by the Cooley-Tukey factorization ``points = first * second``.

    Sample ``second * a + b`` and frequency ``f + first * g``: a transform over ``a`` for each ``b``, then for each ``f`` one over
    ``b`` with the twiddle factors multiplied in. Of ``f`` one half suffices, since samples are real.
    """
    ops, second = ctx.ops, min(1 << (points.bit_length() - 2) // 2, MAX_SECOND_FACTOR)
    first = points // second
    half, steps = first // 2 + 1, -(-width // second)
    spend(2 * half * steps + 4 * half * second**2 + points, 8, "the matrices of a Fourier transform")
    if steps * second > width:
        rows = ops.Pad(rows, [0, 0, 0, steps * second - width])
    inner = _angles(np.arange(half), np.arange(steps), first)
    stages = np.stack([np.cos(inner), -np.sin(inner)], axis=1).reshape(2 * half, steps)
    partial = ops.MatMul(stages, ops.Reshape(rows, [-1, steps, second]))
    by_frequency = ops.Transpose(ops.Reshape(partial, [-1, half, 2, second]), perm=[1, 0, 2, 3])
    # Reshaped after the Transpose: ONNX Runtime 1.22 fuses the two neighbours into a product that it has no float64 kernel of.
    joined = ops.Reshape(by_frequency, [half, -1, 2 * second])
    powers = _sum_squares(ctx, ops.MatMul(joined, _twiddle_matrices(first, second)), second, axis=2)
    flat = ops.Reshape(ops.Transpose(powers, perm=[1, 0, 2]), [-1, half * second])
    return ops.Gather(flat, _frequency_positions(first, second), axis=1)


def _twiddle_matrices(first: int, second: int) -> Array:
    """Return a matrix ``[2 second, 2 second]`` for each frequency ``f``, real parts before imaginary parts on both sides."""
    f, b, g = np.ogrid[: first // 2 + 1, :second, :second]
    angles = 2 * np.pi * (b * (f + first * g) % (first * second)) / (first * second)
    cosines, sines = np.cos(angles), np.sin(angles)
    upper, lower = np.concatenate([cosines, -sines], axis=2), np.concatenate([sines, cosines], axis=2)
    return np.concatenate([upper, lower], axis=1)


def _frequency_positions(first: int, second: int) -> Array:
    """Return the position of each frequency in ``(f, g)``; a missing ``f`` takes the power of its mirror image."""
    frequencies = np.arange(first * second // 2 + 1)
    known = np.where(frequencies % first <= first // 2, frequencies, first * second - frequencies)
    return np.asarray(known % first * second + known // first)
