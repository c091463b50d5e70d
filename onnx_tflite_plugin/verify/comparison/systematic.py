"""Differences that stay within a tolerance and are no rounding: the same way in every element, or in every run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

_LEAST = 32  # elements from which on a share says something
_MOST_MOVED = 0.75  # of a step, the same way; roundings of a network that are no fault of its conversion stay below


def moved(actual: Sequence[Array], sets: Iterable[Sequence[Array]]) -> str:
    """Whether practically all integers, or all of a channel, are off the same way, which is no rounding but another zero point
    or bias; else nothing. A channel that does not vary may be a tie throughout.
    """
    whole, channels = [], []
    for arrays in sets:
        if any(array.dtype.kind not in "iu" for array in (*actual, *arrays)):  # a dtype that LiteRT does not have
            return ""
        if any(one.shape != other.shape for one, other in zip(actual, arrays, strict=True)):
            continue  # a set that computes other shapes is not the nearest
        numbers = [array.astype(np.int64) for array in arrays]
        moves = [one.astype(np.int64) - other for one, other in zip(actual, numbers, strict=True)]
        if sum(move.size for move in moves) < _LEAST:
            return ""
        whole.append(sum(int(move.sum()) for move in moves) / sum(move.size for move in moves))
        channels.append(_channels(moves, numbers))
    least = min(whole, key=abs)
    if abs(least) > _MOST_MOVED:
        return f"off by {least:+.2f} LSB on average, the same way nearly everywhere"
    by_channel = np.min(np.abs(np.stack(channels)), axis=0) if channels[0].size else np.zeros(1)
    worst = int(by_channel.argmax())
    if by_channel[worst] <= _MOST_MOVED:
        return ""
    return f"off by {channels[0][worst]:+.2f} LSB on average, the same way nearly everywhere, in channel {worst}"


def _channels(moves: Sequence[Array], numbers: Sequence[Array]) -> Array:
    """The mean of each channel's moves, 0 for one of few elements; empty where there are no channels."""
    if moves[0].ndim < 2 or len({move.shape[-1] for move in moves}) > 1:
        return np.empty(0)
    rows, own = (np.concatenate([a.reshape(-1, a.shape[-1]) for a in arrays]) for arrays in (moves, numbers))
    return _means(rows, own) if len(rows) >= _LEAST else np.zeros(own.shape[1])


def _means(moves: Array, numbers: Array) -> Array:
    """The mean of each column's moves, 0 for one that hardly varies.

    A number counts once however often it occurs: the one that most elements have, as behind a bound, may be a tie.
    """
    if not numbers.size:
        return np.zeros(numbers.shape[1])
    known, rank = np.unique(numbers, return_inverse=True)
    pairs = rank.reshape(numbers.shape) + len(known) * np.arange(numbers.shape[1])  # of a column and one of its numbers
    found, place, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    each = np.bincount(place.reshape(-1), moves.reshape(-1)) / counts
    column = found // len(known)
    return np.where(numbers.std(0) > 1, np.bincount(column, each) / np.bincount(column), 0.0)


_ROWS = 8  # elements of a channel of floats from which on its range says something
_ALL = 0.5  # of a channel's own range
_ROUNDED = 2.0**-20  # of the whole range: what float32 leaves of sums that cancel out


def lost(actual: Sequence[Array], sets: Iterable[Sequence[Array]], least: float) -> str:
    """Whether a channel of floats is another, which is beyond every tolerance of a range that other channels have: numbers of
    objects beside their scores. Else nothing. ``least``: an absolute error that is none.
    """
    found: list[Array] = []
    for arrays in sets:
        if arrays[0].ndim < 2 or len({array.shape[-1] for array in (*actual, *arrays)}) > 1:
            return ""
        if any(one.shape != other.shape for one, other in zip(actual, arrays, strict=True)):
            continue
        here, there = (np.concatenate([a.reshape(-1, a.shape[-1]) for a in side]) for side in (actual, arrays))
        if len(there) < _ROWS or not there.size or not np.isfinite(there).all():
            return ""
        off, span = np.abs(here.astype(np.float64) - there).max(0), np.ptp(there, 0)
        floor = max(least, _ROUNDED * max(float(np.ptp(there)), float(np.abs(there).max())))
        found.append((span > 0) & (off > _ALL * span) & (off > floor))
    wrong = [] if not found else np.flatnonzero(np.all(found, axis=0)).tolist()
    return f"off by more than half the range of channel {wrong[0]}, which other channels' range hides" if wrong else ""


_RUNS = 6  # from which on a mean says something
_ALIKE = 3  # times the least range of a run
_NEGLIGIBLE = 1e-3  # of the range
_MOVES = 0.02  # of the range, from run to run


def offset(actual: Sequence[Array], expected: Sequence[Array]) -> str:
    """What remains of the difference when it is averaged over all runs, where noise would have left less; else nothing.

    Dynamic quantization rounds activations to steps that are others in every run: what that changes has a mean of zero. The
    mean of R runs has then a variance of 1/R of theirs; over n elements, the quotient of both is 1 give or take 1/n, or more where
    elements differ together: three standard errors are none. Noise grows with what is fed: only the runs with the least range
    count. Where results hardly depend on what is fed, neither do the steps.
    """
    if len({array.shape for array in (*actual, *expected)}) > 1 or not actual[0].size:
        return ""
    spans = [float(np.ptp(array)) for array in expected]
    least = min(spans)
    chosen = [k for k, span in enumerate(spans) if span <= _ALIKE * least]
    if len(chosen) < _RUNS or not math.isfinite(least) or not least:
        return ""
    difference = np.stack([actual[k].astype(np.float64) - expected[k] for k in chosen]) / least
    means, variances = difference.mean(0), difference.var(0, ddof=1)
    offset = math.sqrt(float(np.square(means).mean()))
    noise = float(variances.mean()) / len(chosen)
    moves = math.sqrt(float((np.stack([expected[k] for k in chosen]) / least).var(0, ddof=1).mean()))
    if offset <= _NEGLIGIBLE or moves <= _MOVES or offset**2 <= (9 + 30 / means.size) * noise:
        return ""
    return f"off by the same {offset:.2g} of the output's range in {len(chosen)} runs, which is no noise of dynamic quantization"
