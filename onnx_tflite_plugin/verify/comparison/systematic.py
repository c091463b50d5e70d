"""Differences that stay within a tolerance and are no rounding: the same way in every element, or in every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

_LEAST = 32  # elements from which on a share says something
_MOST_MOVED = 0.75  # of a step, the same way; roundings of a network that are no fault of its conversion stay below


def describe_offset(actual: Sequence[Array], sets: Iterable[Sequence[Array]]) -> str:
    """Describe an offset that nearly all integers, or all of a channel, share: another zero point or bias, not rounding.

    Returns "" for other differences. A channel that does not vary may be a tie throughout.
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
    """Return the mean error of each channel, 0 for one of few elements; empty without a channel axis."""
    if moves[0].ndim < 2 or len({move.shape[-1] for move in moves}) > 1:
        return np.empty(0)
    rows, own = (np.concatenate([a.reshape(-1, a.shape[-1]) for a in arrays]) for arrays in (moves, numbers))
    return _means(rows, own) if len(rows) >= _LEAST else np.zeros(own.shape[1])


def _means(moves: Array, numbers: Array) -> Array:
    """Return the mean error of each column, 0 for one that hardly varies.

    A number counts once however often it occurs: the one that most elements have, as after a bound, may be a tie.
    """
    if not numbers.size:
        return np.zeros(numbers.shape[1])
    known, rank = np.unique(numbers, return_inverse=True)
    pairs = rank.reshape(numbers.shape) + len(known) * np.arange(numbers.shape[1])  # of a column and one of its numbers
    found, place, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    each = np.bincount(place.reshape(-1), moves.reshape(-1)) / counts
    column = found // len(known)
    return np.where(numbers.std(0) > 1, np.bincount(column, each) / np.bincount(column), 0.0)
