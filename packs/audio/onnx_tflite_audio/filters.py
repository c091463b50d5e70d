"""Filter banks in integers: energies, roots, logarithms and gain control."""

from __future__ import annotations

import math

import numpy as np

from onnx_tflite_audio.arithmetic import POWERS, bit_lengths, emit_bit_length, emit_max, emit_min, emit_shift_right
from onnx_tflite_plugin.api import Array, Context, Decline, Instance, Operator, Raw, Terminate, Value, handler

# --- sums -------------------------------------------------------------------------------------


def channel_matrix(frequencies: int, channels: int, operands: list[Array]) -> Array:
    """Return the ``[frequencies, channels]`` matrix of a filter bank.

    Each band adds its energies times the weights to one channel, and times the unweights to the next channel.
    """
    weights, unweights, starts, weight_starts, widths = (array.astype(np.int64) for array in operands)
    matrix = np.zeros((frequencies, channels + 2), np.int64)
    for channel in range(channels + 1):
        band = slice(starts[channel], starts[channel] + widths[channel])
        entries = slice(weight_starts[channel], weight_starts[channel] + widths[channel])
        matrix[band, channel] += weights[entries]
        matrix[band, channel + 1] += unweights[entries]
    return matrix[:, 1:-1]


def check_filter_bank(at: Instance) -> Decline | None:
    """Return a Decline for operands that the kernel reads without checking."""
    op = at.op
    operands = [array for slot in range(1, 6) if (array := op.constant(slot)) is not None]
    frequencies, channels = op[0].dims[-1], op.options.get("num_channels")
    if channels is None or op[~0].dims != (channels,):
        return Decline(f"the filters have {list(op[~0].dims)} channels, but option num_channels is {channels}")
    if len(operands) < 5 or frequencies is None:
        return Decline("the weights or the number of frequencies are runtime values; they must be constant")
    weights, unweights, starts, weight_starts, widths = operands
    if min(len(starts), len(weight_starts), len(widths)) <= channels:
        return Decline(f"starts or widths have fewer than {channels + 1} entries")
    widths = widths[: channels + 1].astype(np.int64)
    band_ends, weight_ends = starts[: channels + 1] + widths, weight_starts[: channels + 1] + widths
    if (
        min(*starts, *weight_starts, *widths) < 0
        or max(band_ends) > frequencies
        or max(weight_ends) > min(len(weights), len(unweights))
    ):
        return Decline("channels reach beyond the frequencies or the weights")
    return None


def accumulate_channels(op: Operator, x: Array, *operands: Array) -> Array:
    """Return the weighted sum of energies of each channel, modulo 2^64.

    The kernel is FilterbankAccumulateChannels, filter_bank.cc. Its first sum is scratch and is dropped.
    """
    weights, unweights, starts, weight_starts, widths = (array.astype(np.int64) for array in operands)
    result, carried = [], 0
    for channel in range(op.options.num_channels + 1):
        energy_sum, next_carried = carried, 0
        for k in range(widths[channel]):
            band_energy = int(x[starts[channel] + k])
            energy_sum += int(weights[weight_starts[channel] + k]) * band_energy
            next_carried += int(unweights[weight_starts[channel] + k]) * band_energy
        result.append(energy_sum % 2**64)
        carried = next_carried
    return np.asarray(result[1:], np.uint64)


@handler(
    "CUSTOM.SignalFilterBank",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types="uint32, int16, int16, int16, int16, int16 -> uint64",
    accepts=check_filter_bank,
    kernel=accumulate_channels,
)
def filter_bank(
    ctx: Context, x: Value, weights: Value, unweights: Value, starts: Value, weight_starts: Value, widths: Value
) -> Value:
    """Emit MatMul of int64."""
    operands = [ctx.require_constant(slot) for slot in range(1, 6)]
    sums = channel_matrix(ctx.op[0].shape[0], ctx.options.num_channels, operands)
    return ctx.ops.Cast(ctx.ops.MatMul(ctx.ops.Cast(x, to="int64"), sums), to="uint64")


# --- roots ------------------------------------------------------------------------------------


def compute_roots(op: Operator, x: Array, bits: Array) -> Array:
    """Return square roots, rounded to nearest unless that needs one bit more.

    The kernels are Sqrt64, square_root_64.cc, and Sqrt32, square_root_32.cc.
    """
    roots = []
    for number in map(int, x):
        root = math.isqrt(number)
        largest = 0xFFFF if number < 2**32 else 0xFFFFFFFF
        roots.append(root + (number - root * root > root and root != largest))
    return np.asarray(roots, np.uint32) >> np.uint32(bits)


@handler(
    "CUSTOM.SignalFilterBankSquareRoot",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types="uint64, int32 -> uint32",
    kernel=compute_roots,
)
def square_root(ctx: Context, x: Value, bits: Value) -> Value:
    """Emit Sqrt of float64, corrected by the integer remainder.

    The float root is off by 1 at most.
    """
    ops = ctx.ops
    radicand = ops.Cast(x, to="int64")  # the remainder is small and therefore exact, although the products wrap around
    root = ops.Cast(ops.Sqrt(ops.Cast(x, to="float64")), to="int64")
    for _ in range(2):  # correct roots that are too large, then roots that are too small
        remainder = ops.Sub(radicand, ops.Mul(root, root))
        is_too_large, is_too_small = ops.Less(remainder, np.int64(0)), ops.Greater(remainder, ops.Add(root, root))
        root = ops.Add(ops.Sub(root, ops.Cast(is_too_large, to="int64")), ops.Cast(is_too_small, to="int64"))
    remainder = ops.Sub(radicand, ops.Mul(root, root))
    fits_32_bits = ops.And(ops.GreaterOrEqual(radicand, np.int64(0)), ops.Less(radicand, np.int64(1 << 32)))
    largest = ops.Where(fits_32_bits, np.int64(0xFFFF), np.int64(0xFFFFFFFF))
    round_up = ops.And(ops.Greater(remainder, root), ops.Less(root, largest))
    return ops.BitShift(
        ops.Cast(ops.Add(root, ops.Cast(round_up, to="int64")), to="uint32"),
        ops.Cast(bits, to="uint32"),
        direction="RIGHT",
    )


# --- logarithms -------------------------------------------------------------------------------

SEGMENTS = 128
LOG_TABLE = np.rint([65536 * (math.log2(1 + k / SEGMENTS) - k / SEGMENTS) for k in range(SEGMENTS + 1)]).astype(
    np.int64
)
"""The kernel's table: log2(1 + x) - x for x from 0 to 1, in units of 2^-16."""
LN_2 = 45426  # in units of 2^-16


def check_log_options(at: Instance) -> Decline | None:
    """Return a Decline for options that the kernel uses as shifts without checking."""
    options = at.op.options
    if missing := [name for name in ("input_correction_bits", "output_scale") if name not in options]:
        return Decline(f"the options lack {', '.join(missing)}")
    if not (0 <= options.input_correction_bits < 32 and 0 <= options.output_scale < 2**31):
        return Decline(
            f"output_scale is {options.output_scale} and input_correction_bits is {options.input_correction_bits}, expected "
            "0 to 2^31 - 1 and 0 to 31"
        )
    return None


def compute_logarithms(op: Operator, x: Array) -> Array:
    """Return natural logarithms, interpolated linearly from a table.

    The kernels are FilterbankLog, filter_bank_log.cc, and Log32, log.cc.
    """
    shifted = (x.astype(np.int64) << op.options.input_correction_bits) % (1 << 32)
    exponent = bit_lengths(np.maximum(shifted, 1)) - 1
    fraction = (np.maximum(shifted, 1) - (1 << exponent)) * 65536 >> exponent
    segment = fraction >> 9
    slope = (LOG_TABLE[segment + 1] - LOG_TABLE[segment]) * (fraction - (segment << 9)) >> 16
    log_base_2 = (exponent << 16) + fraction + LOG_TABLE[segment] + slope
    natural_log = (LN_2 * log_base_2 + 32768) >> 16
    result = ((op.options.output_scale * natural_log + 32768) % (1 << 32)) >> 16
    return np.where(shifted > 1, np.minimum(result, 32767), 0).astype(np.int16)


@handler(
    "CUSTOM.SignalFilterBankLog",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types="uint32 -> int16",
    accepts=check_log_options,
    kernel=compute_logarithms,
)
def log(ctx: Context, x: Value) -> Value:
    """Emit the integer part by bit length, and the fraction by the kernel's table."""
    ops, options = ctx.ops, ctx.options
    factor, scale = 1 << options.input_correction_bits, options.output_scale
    scaled = ops.Mod(ops.Mul(ops.Cast(x, to="int64"), factor), 1 << 32)
    number = emit_max(ctx, scaled, 1)
    exponent = ops.Sub(emit_bit_length(ctx, number), 1)
    power = ops.Gather(POWERS, exponent)
    fraction = ops.Div(ops.Mul(ops.Sub(number, power), 65536), power)
    segment = ops.Div(fraction, 512)
    correction, next_correction = ops.Gather(LOG_TABLE, segment), ops.Gather(LOG_TABLE, ops.Add(segment, 1))
    slope = emit_shift_right(
        ctx, ops.Mul(ops.Sub(next_correction, correction), ops.Sub(fraction, ops.Mul(segment, 512))), 16
    )
    log_base_2 = ops.Add(ops.Add(ops.Mul(exponent, 65536), fraction), ops.Add(correction, slope))
    natural_log = ops.Div(ops.Add(ops.Mul(log_base_2, LN_2), 32768), 65536)
    result = ops.Div(ops.Mod(ops.Add(ops.Mul(natural_log, scale), 32768), 1 << 32), 65536)
    return ops.Cast(ops.Where(ops.Greater(scaled, np.int64(1)), emit_min(ctx, result, 32767), np.int64(0)), to="int16")


# --- gain control -----------------------------------------------------------------------------

MIN_TABLE_ENTRIES = 4 * 32 - 6 + 3  # number of table entries that the largest input reads


def check_pcan(at: Instance) -> Decline | None:
    """Return a Decline for operands that the kernel reads without checking."""
    table, shift = at.op.constant(2), at.op.options.get("snr_shift")
    if shift is None or not 0 <= shift < 64:
        return Decline(f"option snr_shift is {shift}, expected 0 to 63")
    if table is None or table.size < MIN_TABLE_ENTRIES:
        return Decline(f"the gain table must be a constant with at least {MIN_TABLE_ENTRIES} entries")
    return None if at.op[0].dims == at.op[1].dims else Decline("signal and noise have different lengths")


def apply_gain(op: Operator, x: Array, noise: Array, table: Array) -> Array:
    """Return the signal times a gain that depends on the noise, with compressed peaks.

    The kernel is ApplyPcanAutoGainControlFixed, pcan_argc_fixed.cc.
    """
    result = []
    lut = table.astype(np.int64)
    for signal, noise_estimate in zip(map(int, x), map(int, noise), strict=True):
        if noise_estimate <= 2:
            gain = int(lut[noise_estimate])
        else:
            bits = noise_estimate.bit_length()
            first_entry = 4 * bits - 6
            fraction = (noise_estimate << 11 >> bits) & 0x3FF
            curve = ((int(lut[first_entry + 2]) * fraction >> 5) + int(lut[first_entry + 1]) * 32) * fraction
            gain = int(np.int64((curve + (1 << 14) >> 15) + int(lut[first_entry])).astype(np.int16))
        ratio = (signal * (gain % 2**32) % 2**64 >> op.options.snr_shift) % 2**32
        result.append((ratio * ratio % 2**32) >> 20 if ratio < 2 << 12 else (ratio >> 6) - 64)
    return np.asarray(result, np.uint32)


@handler(
    "CUSTOM.SignalPCAN",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    types="uint32, uint32, int16 -> uint32",
    accepts=check_pcan,
    kernel=apply_gain,
)
def pcan(ctx: Context, x: Value, noise: Value, table: Value) -> Value:
    """Emit the gain from the kernel's table, a polynomial per power of two."""
    ops, lut = ctx.ops, ctx.require_constant(2).astype(np.int64)
    noise_estimate = ops.Cast(noise, to="int64")
    bits = emit_max(ctx, emit_bit_length(ctx, noise_estimate), 2)
    fraction = ops.Mod(ops.Div(ops.Mul(noise_estimate, 2048), ops.Gather(POWERS, bits)), 1024)
    first_entry = ops.Sub(ops.Mul(bits, 4), 6)
    c0, c1, c2 = (ops.Gather(lut[k:], first_entry) for k in range(3))
    slope = ops.Add(emit_shift_right(ctx, ops.Mul(c2, fraction), 5), ops.Mul(c1, 32))
    curve = ops.Add(emit_shift_right(ctx, ops.Add(ops.Mul(slope, fraction), 1 << 14), 15), c0)
    wrapped = ops.Sub(ops.Mod(ops.Add(curve, 1 << 15), 1 << 16), 1 << 15)  # wraps as int16
    gain = ops.Where(
        ops.LessOrEqual(noise_estimate, np.int64(2)), ops.Gather(lut, emit_min(ctx, noise_estimate, 2)), wrapped
    )
    product = ops.Cast(ops.Mul(ops.Cast(x, to="int64"), ops.Mod(gain, 1 << 32)), to="uint64")
    shifted = ops.BitShift(product, np.uint64(ctx.options.snr_shift), direction="RIGHT")
    ratio = ops.Cast(ops.Cast(shifted, to="uint32"), to="int64")
    small_ratio = emit_min(ctx, ratio, 2 << 12)
    small = ops.Div(ops.Mul(small_ratio, small_ratio), 1 << 20)
    large = ops.Sub(ops.Div(ratio, 64), 64)
    return ops.Cast(ops.Where(ops.Less(ratio, np.int64(2 << 12)), small, large), to="uint32")
