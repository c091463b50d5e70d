"""Spectrograms and cepstra of speech models: AudioSpectrogram and Mfcc.

The kernels are kernels/audio_spectrogram.cc and kernels/mfcc.cc. LiteRT computes both operators in float64. Here, only
the spectrum is computed in float64. In float32, rounding errors of a loud tone would exceed the quiet frequencies, and
the logarithm in Mfcc would make that visible.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    NotQuantizable,
    Operator,
    Refusal,
    Terminate,
    Value,
    can_emit_rfft,
    emit_rfft,
    handler,
    spend_budget,
)
from op_handlers.kernels.mel import FLOOR, Filterbank, dct_matrix
from op_handlers.kernels.operands import reshape_to_scalar

MAX_INT32 = (1 << 31) - 1
SPECTROGRAM_OPTIONS = ("window_size", "stride")
CEPSTRUM_OPTIONS = (
    "filterbank_channel_count",
    "dct_coefficient_count",
    "lower_frequency_limit",
    "upper_frequency_limit",
)


def integer_option(op: Operator, name: str) -> int:
    """Return an option as the kernels read it: truncated to an integer, 0 if absent."""
    value = op.options.get(name)
    return int(value) if isinstance(value, (bool, int, float)) else 0


def check_options(instance: Instance, names: tuple[str, ...]) -> Decline | None:
    """Return a Decline if an option cannot be read as a 32-bit integer."""
    for name in names:
        value = instance.op.options.get(name)
        if value is not None and not isinstance(value, (bool, int, float)):
            return Decline(f"option {name!r} is {value!r}, which is not a number")
        if value is not None and not abs(value) <= MAX_INT32:
            return Decline(f"option {name!r} is {value}, which is not a 32-bit integer")
    return None


def check_spectrogram(instance: Instance) -> Decline | None:
    """Return a Decline for a window or a stride that the kernel refuses in Initialize."""
    if declined := check_options(instance, SPECTROGRAM_OPTIONS):
        return declined
    window, stride = (integer_option(instance.op, name) for name in SPECTROGRAM_OPTIONS)
    if window < 2:
        return Decline(f"option 'window_size' is {window}; LiteRT's kernel refuses windows of fewer than 2 samples")
    if stride < 1:
        return Decline(f"option 'stride' is {stride}; LiteRT's kernel refuses strides below 1")
    if not can_emit_rfft(1 << (window - 1).bit_length(), window, "power", "float64"):
        return Decline(f"option 'window_size' is {window}; the matrices of the transform would exceed 16 MB")
    return None


@handler(
    "CUSTOM.AudioSpectrogram",
    max_version=1,
    layout=Terminate(),
    axes="n c -> c f k",
    quantization=NotQuantizable(),
    types="float32 -> float32",
    accepts=check_spectrogram,
)
def audio_spectrogram(ctx: Context, samples: Value) -> Value:
    """Emit the magnitudes of each frame's Fourier transform, or their squares.

    Frames are multiplied by a periodic Hann window and zero-padded to a power of two.
    """
    ops, channels = ctx.ops, ctx.op[0].dims[1]
    window, stride = (integer_option(ctx.op, name) for name in SPECTROGRAM_OPTIONS)
    points = 1 << (window - 1).bit_length()
    frames = frame_count(ctx, window, stride)
    channel_count = [channels] if channels is not None else ops.Slice(ops.Shape(samples), [1], [2])
    sizes = ops.Concat(channel_count, [frames, points // 2 + 1], axis=0)
    if frames == 0 or channels == 0:
        return ops.Expand(np.zeros((), np.float32), sizes)
    spend_budget(window, 8, "the window of a spectrogram")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    framed = ops.Mul(take_frames(ctx, ops.Cast(samples, to="float64"), window, stride), hann)
    rows = ops.Reshape(framed, [-1, window])
    powers = ops.Cast(emit_rfft(ctx, rows, (None, window), points, "power", "float64"), to="float32")
    if not integer_option(ctx.op, "magnitude_squared"):
        powers = ops.Sqrt(powers)
    return ops.Reshape(powers, sizes)


def frame_count(ctx: Context, window: int, stride: int) -> int:
    """Return the number of complete windows; -1 for a dynamic number of samples."""
    samples = ctx.op[0].dims[0]
    return -1 if samples is None else max((samples - window) // stride + 1, 0)


def take_frames(ctx: Context, samples: Value, window: int, stride: int) -> Value:
    """Return the frames ``[channels, frames, window]`` of ``[samples, channels]``.

    Samples are gathered in blocks of gcd(window, stride), which needs fewer indices than single samples.
    """
    ops, block = ctx.ops, gcd(window, stride)
    by_channel = ops.Transpose(samples, perm=[1, 0])
    blocks_per_window, blocks_per_stride = window // block, stride // block
    offsets, frames = np.arange(blocks_per_window), frame_count(ctx, window, stride)
    if frames >= 0:
        spend_budget(frames * blocks_per_window, 8, "the sample indices of a spectrogram's frames")
        indices: Value | Array = np.arange(frames)[:, np.newaxis] * blocks_per_stride + offsets
        end: Value | Array = np.asarray([(frames - 1) * stride + window])
    else:
        sample_count = ops.Gather(ops.Shape(by_channel), np.asarray(1))
        start_limit = ops.Max(ops.Sub(sample_count, np.asarray(window - stride)), np.asarray(0))
        frame_starts = ops.Range(np.asarray(0), ops.Div(start_limit, np.asarray(stride)), np.asarray(1))
        indices = ops.Add(ops.Unsqueeze(ops.Mul(frame_starts, np.asarray(blocks_per_stride)), [1]), offsets)
        end = ops.Reshape(ops.Mul(ops.Div(sample_count, np.asarray(block)), np.asarray(block)), [1])
    blocks = ops.Reshape(ops.Slice(by_channel, [0], end, [1]), [0, -1, block])
    return ops.Reshape(ops.Gather(blocks, indices, axis=1), [0, frames, window])


def check_cepstrum(instance: Instance) -> Decline | None:
    """Return a Decline for options and sizes that make the kernel fail."""
    op = instance.op
    if declined := check_options(instance, CEPSTRUM_OPTIONS):
        return declined
    channels, coefficients, lower, upper = (integer_option(op, name) for name in CEPSTRUM_OPTIONS)
    if not 1 <= coefficients <= channels:
        return Decline(
            f"the options request {coefficients} coefficients of {channels} filters; LiteRT's kernel computes 1 to {channels}"
        )
    if not 0 <= lower < upper:
        return Decline(f"the filters range from {lower} to {upper} Hz; LiteRT's kernel requires 0 <= lower < upper")
    if op[0].rank == 3 and op[0].dims[2] is not None and op[0].dims[2] < 2:
        return Decline(f"the input has {op[0].dims[2]} frequencies; LiteRT's kernel requires at least 2")
    rate = op.constant(1)
    if rate is not None and rate.size == 1 and rate.item() <= 0:
        return Decline(f"the sample rate is {rate.item()}; LiteRT's kernel requires a positive rate")
    return None


@handler(
    "CUSTOM.Mfcc",
    max_version=1,
    layout=Terminate(),
    axes="c f k, _ -> c f m",
    quantization=NotQuantizable(),
    types="float32, int32 -> float32",
    accepts=check_cepstrum,
)
def mfcc(ctx: Context, powers: Value, rate: Value) -> Value:
    """Emit the discrete cosine transform of log mel energies."""
    ops, bins = ctx.ops, ctx.op[0].dims[2]
    if bins is None:
        raise Refusal(
            "the input has an unknown number of frequencies, which determines the filters; set it with --input-shape"
        )
    channels, coefficients, lower, upper = (integer_option(ctx.op, name) for name in CEPSTRUM_OPTIONS)
    spend_budget(channels * (bins + coefficients), 8, "the filters of a cepstrum")
    # The kernel stores the limits as float32.
    filterbank = Filterbank(bins, channels, float(np.float32(lower)), float(np.float32(upper)))
    transform, constant_rate = dct_matrix(channels, coefficients).astype(np.float32), ctx.constant(1)
    magnitudes, enough_bins = ops.Sqrt(powers), None
    if constant_rate is None:
        weights, used_bins, enough_bins = filterbank.emit(ctx, reshape_to_scalar(ctx, 1, rate))
        magnitudes = ops.Where(used_bins, magnitudes, np.float32(0))
        energies = ops.MatMul(magnitudes, ops.Cast(weights, to="float32"))
    elif (filters := filterbank.matrix(int(constant_rate.item()))) is None:
        sizes = ops.Concat(ops.Slice(ops.Shape(powers), [0], [2]), [coefficients], axis=0)
        return ops.Expand(np.zeros((), np.float32), sizes)
    else:
        first_bin, matrix = filters
        magnitudes = ops.Slice(magnitudes, [first_bin], [first_bin + len(matrix)], [2])
        energies = ops.MatMul(magnitudes, matrix.astype(np.float32))
    result = ops.MatMul(ops.Log(ops.Max(energies, np.float32(FLOOR))), transform)
    return result if enough_bins is None else ops.Where(enough_bins, result, np.float32(0))
