"""Errors within the tolerance that are no rounding: in the same direction in nearly all elements, or large for their channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.criteria import Tolerance

_FEW = 32  # minimum number of elements for a meaningful mean
_DISTINCT = 8  # minimum number of distinct values per column for a meaningful mean
_ROWS = 8  # minimum number of elements per float channel for a meaningful range
_TABLE = (
    1 << 22
)  # pairs of a column and a value that are counted in a table, which takes a tenth of the time of sorting
_TINY = 2.0**-126


def describe_bias(actual: Sequence[Array], expected: Sequence[Array], mean: float, tolerance: Tolerance) -> str:
    """Describe a wrong zero point, bias or rounding of quantized results; empty for usual rounding.

    ``mean``: the mean absolute error in steps.
    """
    if mean > tolerance.mean_steps:
        return f"off by {mean:.2g} LSB on average"
    if tolerance.of_dtype(expected[0].dtype.name) > 1 or sum(array.size for array in expected) < _FEW:
        return ""
    moves = [one.astype(np.int64) - other for one, other in zip(actual, expected, strict=True)]
    flat, numbers = (np.concatenate([array.reshape(-1) for array in arrays]) for arrays in (moves, expected))
    (bias,) = _biases(flat[:, None], numbers[:, None])
    if abs(bias) > criteria.BIAS:
        return f"off by {bias:+.2f} LSB on average, in the same direction in nearly all elements"
    strict = tolerance.by_channel and expected[0].dtype.itemsize == 1
    if strict and np.ptp(numbers.astype(np.int64)) < criteria.FEW_STEPS and mean > criteria.FEW_STEPS_MEAN:
        return f"off by {mean:.2g} LSB on average, in a tensor with few distinct values"
    channels = {move.shape[-1] for move in moves if move.ndim > 1}
    if len(channels) != 1 or len(flat) // min(channels) < _FEW:
        return ""
    limit = criteria.CHANNEL_BIAS if strict else criteria.BIAS
    biases = _biases(flat.reshape(-1, min(channels)), numbers.reshape(-1, min(channels)))
    worst = int(np.abs(biases).argmax())
    return f"off by {biases[worst]:+.2f} LSB on average in channel {worst}" if abs(biases[worst]) > limit else ""


def _biases(moves: Array, numbers: Array) -> Array:
    """Return the mean error of each column; 0 for a column with little variation or few distinct values, which may all be ties.

    Each distinct value counts once: the most frequent value, for example the bound of a clip, may be a tie.
    """
    ranks = numbers.astype(np.int64) - int(numbers.min())
    span = int(ranks.max()) + 1
    pairs = (ranks + span * np.arange(numbers.shape[1])).reshape(-1)  # one number per column and distinct value
    known = np.arange(span * numbers.shape[1])
    if len(known) > _TABLE:  # values of 16 bits in many columns
        known, pairs = np.unique(pairs, return_inverse=True)
    counts = np.bincount(pairs, minlength=len(known))
    found = np.flatnonzero(counts)
    each = np.bincount(pairs, moves.reshape(-1), len(known))[found] / counts[found]
    column = known[found] // span
    distinct = np.bincount(column)
    return np.where((numbers.std(0) > 1) & (distinct >= _DISTINCT), np.bincount(column, each) / distinct, 0.0)


def describe_channel_error(actual: Sequence[Array], expected: Sequence[Array], share: float, floor: float) -> str:
    """Describe the first channel of float32 that differs by more than the share of its own range; empty if none does."""
    if (
        any(array.ndim < 2 or array.dtype != np.float32 for array in expected)
        or len({a.shape[-1] for a in expected}) > 1
    ):
        return ""
    here, there = (np.concatenate([a.reshape(-1, a.shape[-1]) for a in arrays]) for arrays in (actual, expected))
    if len(there) < _ROWS or not here.size or not (np.isfinite(there).all() and np.isfinite(here).all()):
        return ""
    errors, ranges = np.abs(here - there).max(0), np.ptp(there, 0)
    floor = max(floor, criteria.RESIDUE * float(np.abs(there).max()))
    wrong = np.flatnonzero(errors > np.maximum(share * ranges, floor))
    if not wrong.size:
        return ""
    worst = int(wrong[0])
    return f"off by {errors[worst] / max(ranges[worst], _TINY):.2g} of the range of channel {worst}"
