"""Spectrum of frames and its energy.

Real and imaginary parts are interleaved along the last axis.
"""

from __future__ import annotations

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Instance,
    Operator,
    Raw,
    Refusal,
    Terminate,
    Value,
    can_emit_rfft,
    emit_irfft,
    emit_rfft,
    handler,
)


def check_float(op: Operator) -> Decline | None:
    """Return a Decline for an integer transform or missing options.

    Integer transforms are not expressible in ONNX.
    """
    if op[0].dtype != "float32":
        return Decline(f"{op[0].dtype} FFTs round after every butterfly, which is not expressible in ONNX")
    return None if "fft_length" in op.options else Decline("the options lack fft_length")


def leading_sizes(ctx: Context) -> list[int]:
    """Return the sizes before the last axis, for a Reshape.

    A dynamic first dimension is -1. Raises Refusal if another one is dynamic.
    """
    sizes = ctx.op[0].dims[:-1]
    if None in sizes[1:]:
        raise Refusal("the number of frames is dynamic; set it with --input-shape")
    return [-1 if size is None else size for size in sizes]


def check_rfft(at: Instance) -> Decline | None:
    """Return a Decline unless the frame fits the transform's length."""
    if declined := check_float(at.op):
        return declined
    length, frame = at.op.options.fft_length, at.op[0].dims[-1]
    if length < 2 or length % 2 or frame is None or frame > length:
        return Decline(f"a transform of length {length} is too short for a frame of {frame} samples")
    return None


def compute_rfft(op: Operator, x: Array) -> Array:
    """Compute RfftEval (rfft.cc): the frame is zero-padded to the transform's length."""
    spectrum = np.fft.rfft(x.astype(np.float64), op.options.fft_length)
    pairs = np.stack([spectrum.real, spectrum.imag], axis=-1)
    return pairs.reshape(*x.shape[:-1], -1).astype(np.float32)


def rfft_opset(at: Instance) -> int:
    """Return the minimum opset: 17 if the transform is emitted as DFT."""
    return 13 if can_emit_rfft(at.op.options.fft_length, at.op[0].dims[-1] or 0) else 17


def irfft_opset(at: Instance) -> int:
    """Return the minimum opset: 17 if the transform is emitted as DFT."""
    return 13 if can_emit_rfft(at.op.options.fft_length, at.op.options.fft_length) else 17


@handler(
    "CUSTOM.SignalRfft",
    max_version=1,
    min_opset=rfft_opset,
    layout=Terminate(),
    accepts=check_rfft,
    kernel=compute_rfft,
)
def rfft(ctx: Context, x: Value) -> Value:
    """Emit the one-sided transform of each frame, as matrix products or DFT."""
    ops, length, sizes = ctx.ops, ctx.options.fft_length, leading_sizes(ctx)
    dims = ctx.op[0].dims
    if can_emit_rfft(length, dims[-1] or 0):
        return ops.Reshape(emit_rfft(ctx, x, dims, length), [*sizes, length + 2])
    # ONNX Runtime before 1.25 transforms a wrong axis if there is a single frame.
    pairs = ops.DFT(ops.Unsqueeze(x, [0, -1]), np.asarray(length), np.asarray(len(sizes) + 1), onesided=1)
    return ops.Reshape(pairs, [*sizes, length + 2])


def check_irfft(at: Instance) -> Decline | None:
    """Return a Decline unless the spectrum fits the transform's length."""
    if declined := check_float(at.op):
        return declined
    length, value_count, sample_count = at.op.options.fft_length, at.op[0].dims[-1], at.op[~0].dims[-1]
    if length < 2 or length % 2 or (value_count, sample_count) != (length + 2, length):
        return Decline(
            f"the spectrum has {value_count} values and the output {sample_count} samples; fft_length {length} requires "
            f"{length + 2} values and {length} samples"
        )
    return None


def compute_irfft(op: Operator, x: Array) -> Array:
    """Return the inverse transform, divided by the length.

    The kernel is IrfftFloatApply, irfft_float.cc. It ignores the imaginary parts at both ends of the spectrum.
    """
    pairs = x.astype(np.float64).reshape(*x.shape[:-1], -1, 2)
    return np.asarray(np.fft.irfft(pairs[..., 0] + 1j * pairs[..., 1], op.options.fft_length), np.float32)


@handler(
    "CUSTOM.SignalIrfft",
    max_version=1,
    min_opset=irfft_opset,
    layout=Terminate(),
    accepts=check_irfft,
    kernel=compute_irfft,
)
def irfft(ctx: Context, x: Value) -> Value:
    """Emit an inverse DFT of the spectrum and its conjugate mirror image."""
    ops, length, sizes = ctx.ops, ctx.options.fft_length, leading_sizes(ctx)
    bin_axis, half = len(sizes) + 1, length // 2
    if can_emit_rfft(length, length):
        dims = (*ctx.op[0].dims[:-1], half + 1, 2)
        return ops.Reshape(emit_irfft(ctx, ops.Reshape(x, [*sizes, half + 1, 2]), dims, length), [*sizes, length])
    pairs = ops.Reshape(x, [1, *sizes, half + 1, 2])
    mirrored = ops.Mul(ops.Slice(pairs, [half - 1], [0], [bin_axis], [-1]), np.asarray([1, -1], np.float32))
    mask = np.ones((half + 1, 2), np.float32)
    mask[[0, half], 1] = 0
    spectrum = ops.Concat(ops.Mul(pairs, mask), mirrored, axis=bin_axis) if half > 1 else ops.Mul(pairs, mask)
    samples = ops.DFT(spectrum, np.asarray(length), np.asarray(bin_axis), inverse=1)
    return ops.Reshape(ops.Slice(samples, [0], [1], [bin_axis + 1]), [*sizes, length])


def check_range(at: Instance) -> Decline | None:
    """Return a Decline unless the range lies in the spectrum, as the kernel assumes."""
    options, size = at.op.options, at.op[~0].dims[-1]
    if missing := [name for name in ("start_index", "end_index") if name not in options]:
        return Decline(f"the options lack {', '.join(missing)}")
    if len(at.op[0].dims) != 1 or size is None or not 0 <= options.start_index <= options.end_index <= size:
        return Decline(
            f"the range {options.start_index} to {options.end_index} is outside the spectrum, which has {size} bins"
        )
    return None


def compute_energies(op: Operator, x: Array) -> Array:
    """Return ``real * real + imag * imag`` in uint32; 0 outside of the range.

    The kernel is SpectrumToEnergy, energy.cc.
    """
    values = x.astype(np.int64)
    result = np.zeros(op[~0].shape, np.uint32)
    span = slice(op.options.start_index, op.options.end_index)
    result[span] = (values[0::2] ** 2 + values[1::2] ** 2)[span]
    return result


@handler(
    "CUSTOM.SignalEnergy",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types="int16 -> uint32",
    accepts=check_range,
    kernel=compute_energies,
)
def energy(ctx: Context, x: Value) -> Value:
    """Emit the sum of squares of the real and the imaginary part."""
    ops, size = ctx.ops, ctx.op[~0].shape[-1]
    start, end = ctx.options.start_index, ctx.options.end_index
    values = ops.Slice(ops.Cast(x, to="int64"), [2 * start], [2 * end], [0])
    sums = ops.ReduceSumSquare(ops.Reshape(values, [end - start, 2]), [1], keepdims=0)
    return ops.Cast(ops.Pad(sums, [start, size - end]), to="uint32")
