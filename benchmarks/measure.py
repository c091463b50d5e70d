"""Interleaved timing of several functions."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

Run = Callable[[], object]

PIECE_SECONDS = 0.002  # a thousand times the cost of reading the clock, and less than a scheduler time slice
PIECES_PER_SAMPLE = 5
MAX_SAMPLE_SECONDS = 0.06  # for samples of several pieces; otherwise 25 rounds of a large network take minutes
_WARM_UP_RUNS = 3

# Processor time excludes other processes. It adds up all threads, so that extra threads give no advantage.
# Other processes can still evict caches, but rarely during every piece of a sample; therefore the fastest piece counts.
# A longer effect, such as a falling clock rate, affects all runtimes of a round; therefore ratios are computed per round.
# With two busy processes on two cores, the median ratio of the most sensitive network rose by up to 50 %, but the ratio
# of its fastest rounds mostly by less than 10 %. Therefore the ratio of the fastest rounds is reported too.
clock = time.process_time


def interleave_runs(runs: Sequence[Run], rounds: int) -> Array:
    """Return the seconds per run in each round, as an array ``[runs, rounds]``.

    Each round takes one sample of every run, in rotated order, so that no run always follows the same other run. A
    sample has ``PIECES_PER_SAMPLE`` pieces, and the fastest piece counts. A piece repeats a run for about
    ``PIECE_SECONDS``. If the slowest run needs more than ``MAX_SAMPLE_SECONDS`` for all its pieces, every sample has
    fewer pieces, but at least one.
    """
    runs_per_piece, piece_seconds = zip(*map(_piece_size, runs), strict=True)
    pieces_per_sample = min(PIECES_PER_SAMPLE, max(1, int(MAX_SAMPLE_SECONDS / max(piece_seconds))))
    seconds = np.zeros((len(runs), rounds))
    gc_was_enabled = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(rounds):
            for k in np.roll(np.arange(len(runs)), round_).tolist():
                piece_times = [_time_of(runs[k], runs_per_piece[k]) for _ in range(pieces_per_sample)]
                seconds[k, round_] = min(piece_times) / runs_per_piece[k]
    finally:
        if gc_was_enabled:
            gc.enable()
    return seconds


def _piece_size(run: Run) -> tuple[int, float]:
    """Return the runs per piece and the expected seconds of a piece, after a warm-up."""
    _time_of(run, _WARM_UP_RUNS)
    count = 1
    while (seconds := _time_of(run, count)) < PIECE_SECONDS / 4:
        count *= 2
    repeats = max(1, math.ceil(count * PIECE_SECONDS / seconds))
    return repeats, repeats * seconds / count


def _time_of(run: Run, count: int) -> float:
    start = clock()
    for _ in range(count):
        run()
    return clock() - start
