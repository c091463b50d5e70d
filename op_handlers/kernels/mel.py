"""Mel filter banks and cosine transforms of Mfcc.

Source: mfcc_mel_filterbank.cc and mfcc_dct.cc in kernels/internal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Value

FLOOR = 1e-12
"""Minimum energy of a channel before its logarithm is taken (kFilterbankFloor)."""


def hertz_to_mel(frequency: Array) -> Array:
    """Return frequencies, given in hertz, on the mel scale."""
    return np.asarray(1127.0 * np.log1p(frequency / 700.0))


def dct_matrix(channels: int, coefficients: int) -> Array:
    """Return the matrix of the cosine transform, ``[channels, coefficients]``.

    Coefficient 0 is not scaled for orthogonality.
    """
    angles = np.pi / channels * np.multiply.outer(np.arange(channels) + 0.5, np.arange(coefficients))
    return np.asarray(np.sqrt(2.0 / channels) * np.cos(angles))


@dataclass(frozen=True)
class Filterbank:
    """Triangular filters, equally spaced on the mel scale.

    The filters apply to ``bins`` frequencies from 0 to half the sample rate. The kernel ignores frequency 0,
    frequencies below ``lower`` plus half a bin, and frequencies above ``upper``. If ``upper`` lies beyond the last bin, every
    coefficient is 0.
    """

    bins: int
    channels: int
    lower: float
    upper: float

    @property
    def corners(self) -> Array:
        """Return the first left corner, all peaks and the last right corner, in mel."""
        low, high = hertz_to_mel(np.asarray([self.lower, self.upper]))
        return np.asarray(low + (high - low) / (self.channels + 1) * np.arange(self.channels + 2))

    def matrix(self, rate: int) -> tuple[int, Array] | None:
        """Return the first used bin and the weights ``[used bins, channels]``.

        Return None if the bins end below the upper limit.
        """
        spacing = 0.5 * rate / (self.bins - 1)
        first, last = int(1.5 + self.lower / spacing), int(self.upper / spacing)
        if last >= self.bins:
            return None
        mel = hertz_to_mel(np.arange(first, last + 1) * spacing)[:, np.newaxis]
        left, peak, right = (self.corners[k : k + self.channels] for k in range(3))
        rising, falling = (mel - left) / (peak - left), (right - mel) / (right - peak)
        return first, np.maximum(np.minimum(rising, falling), 0)

    def emit(self, ctx: Context, rate: Value) -> tuple[Value, Value, Value]:
        """Emit the filters for a sample rate that is a runtime value.

        The results are float64 weights ``[bins, channels]``, the mask of used bins, and a scalar that is true if there
        are enough bins.
        """
        ops, corners = ctx.ops, self.corners
        spacing = ops.Div(ops.Mul(ops.Cast(rate, to="float64"), np.float64(0.5)), np.float64(self.bins - 1))
        first = ops.Floor(ops.Add(ops.Div(np.float64(self.lower), spacing), np.float64(1.5)))
        last = ops.Floor(ops.Div(np.float64(self.upper), spacing))
        bin_numbers = np.arange(self.bins, dtype=np.float64)
        hertz = ops.Mul(spacing, bin_numbers[:, np.newaxis])
        mel = ops.Mul(ops.Log(ops.Add(ops.Div(hertz, np.float64(700)), np.float64(1))), np.float64(1127))
        left, peak, right = (corners[k : k + self.channels] for k in range(3))
        rising = ops.Div(ops.Sub(mel, left), peak - left)
        falling = ops.Div(ops.Sub(right, mel), right - peak)
        is_used = ops.And(ops.LessOrEqual(first, bin_numbers), ops.LessOrEqual(bin_numbers, last))
        return ops.Max(ops.Min(rising, falling), np.float64(0)), is_used, ops.Less(last, np.float64(self.bins))
