"""Systematic errors within the tolerance: errors of one sign, or of one channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.criteria import Tolerance

_MIN_ELEMENTS = 32  # for a meaningful mean
_MIN_DISTINCT = 8  # distinct values per column for a meaningful mean
_MIN_ROWS = 8  # elements per float channel for a meaningful range
_MAX_TABLE = 1 << 22  # entries of a table of counts; counting in a table takes a tenth of the time of sorting
_SMALLEST_NORMAL = 2.0**-126  # of float32


def describe_bias(
    actual: Sequence[Array], expected: Sequence[Array], mean: float, tolerance: Tolerance, zero_point: int = 0
) -> str:
    """Describe a wrong zero point, bias or rounding of quantized results.

    The description is empty if rounding alone explains the errors. ``mean``: the mean absolute error in steps.
    """
    if mean > tolerance.mean_of_dtype(expected[0].dtype.name):
        return f"off by {mean:.2g} quantization steps on average"
    if tolerance.of_dtype(expected[0].dtype.name) > 1 or sum(array.size for array in expected) < _MIN_ELEMENTS:
        return ""
    errors = [result.astype(np.int64) - reference for result, reference in zip(actual, expected, strict=True)]
    flat_errors, values = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (errors, expected))
    (bias,) = _biases(flat_errors[:, None], values[:, None])
    if abs(bias) > criteria.BIAS:
        return f"off by {bias:+.2f} quantization steps on average, in the same direction in nearly all elements"
    if rounding := _describe_rounding(flat_errors, values, zero_point, tolerance.rounding_bias):
        return rounding
    checks_8_bit_channels = tolerance.by_channel and expected[0].dtype.itemsize == 1
    if (
        checks_8_bit_channels
        and np.ptp(values.astype(np.int64)) < criteria.FEW_STEPS
        and mean > criteria.FEW_STEPS_MEAN
    ):
        return f"off by {mean:.2g} quantization steps on average, in a tensor with few distinct values"
    channel_counts = {error.shape[-1] for error in errors if error.ndim > 1}
    if len(channel_counts) != 1:
        return ""
    (channel_count,) = channel_counts
    if len(flat_errors) // channel_count < _MIN_ELEMENTS:
        return ""
    limit = criteria.CHANNEL_BIAS if checks_8_bit_channels else criteria.BIAS
    biases = _biases(flat_errors.reshape(-1, channel_count), values.reshape(-1, channel_count))
    channel = int(np.abs(biases).argmax())
    return (
        f"off by {biases[channel]:+.2f} quantization steps on average in channel {channel}"
        if abs(biases[channel]) > limit
        else ""
    )


def _describe_rounding(errors: Array, values: Array, zero_point: int, limit: float) -> str:
    """Describe a mean error above the limit on one side of the zero point.

    Return an empty text if there is none. Truncation has opposite errors on the two sides, which cancel out in the mean over
    all values.
    """
    below = values < zero_point
    sides = {"below": below, "above": ~below}
    biases = {
        side: float(_biases(errors[mask, None], values[mask, None])[0])
        for side, mask in sides.items()
        if np.count_nonzero(mask) >= _MIN_ELEMENTS
    }
    if all(abs(bias) <= limit for bias in biases.values()):
        return ""
    means = ", ".join(f"{bias:+.2f} steps for values {side} the zero point" for side, bias in biases.items())
    return (
        f"mean error {means} (tolerance {limit:g} steps); one model may round down or toward zero, the other to nearest"
    )


def _biases(errors: Array, values: Array) -> Array:
    """Return the mean error of each column; each distinct value counts once.

    Kernels round values halfway between two steps differently. A frequent value, such as the bound of a clip, may lie
    halfway, and would dominate the mean of all elements. If a column has little variation or few distinct values, all of
    them may lie halfway; its mean is therefore 0.
    """
    offsets = values.astype(np.int64) - int(values.min())
    span = int(offsets.max()) + 1
    bins = (offsets + span * np.arange(values.shape[1])).reshape(-1)  # one bin per column and distinct value
    keys = np.arange(span * values.shape[1])
    if len(keys) > _MAX_TABLE:  # values of 16 bits in many columns
        keys, bins = np.unique(bins, return_inverse=True)
    counts = np.bincount(bins, minlength=len(keys))
    nonempty_bins = np.flatnonzero(counts)
    mean_errors = np.bincount(bins, errors.reshape(-1), len(keys))[nonempty_bins] / counts[nonempty_bins]
    column = keys[nonempty_bins] // span
    distinct_counts = np.bincount(column)
    has_variation = (values.std(0) > 1) & (distinct_counts >= _MIN_DISTINCT)
    return np.where(has_variation, np.bincount(column, mean_errors) / distinct_counts, 0.0)


def describe_channel_error(
    actual: Sequence[Array], expected: Sequence[Array], allowed_fraction: float, floor: float
) -> str:
    """Describe the first float32 channel whose error exceeds a fraction of its range.

    Return an empty text if there is none. ``floor``: absolute error that is always allowed.
    """
    if (
        any(array.ndim < 2 or array.dtype != np.float32 for array in expected)
        or len({a.shape[-1] for a in expected}) > 1
    ):
        return ""
    results, references = (
        np.concatenate([a.reshape(-1, a.shape[-1]) for a in arrays]) for arrays in (actual, expected)
    )
    if len(references) < _MIN_ROWS or not results.size:
        return ""
    if not (np.isfinite(references).all() and np.isfinite(results).all()):
        return ""
    errors, ranges = np.abs(results - references).max(0), np.ptp(references, 0)
    floor = max(floor, criteria.RESIDUE * float(np.abs(references).max()))
    exceeding_channels = np.flatnonzero(errors > np.maximum(allowed_fraction * ranges, floor))
    if not exceeding_channels.size:
        return ""
    channel = int(exceeding_channels[0])
    return f"off by {errors[channel] / max(ranges[channel], _SMALLEST_NORMAL):.2g} of the range of channel {channel}"
