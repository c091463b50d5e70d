"""Interleaved timing of several functions."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

Run = Callable[[], object]

PIECE_SECONDS = 0.002  # seconds: a thousand times the cost of reading the clock, and less than a scheduler time slice
PIECES_PER_SAMPLE = 5
SAMPLE_SECONDS = (
    0.06  # maximum seconds of a sample of several pieces; otherwise 25 rounds of a large network take minutes
)
_WARM_UP = 3

# Processor time of this process instead of wall-clock time. With one thread per runtime both agree on an idle machine; on a
# busy machine, processor time excludes other processes. It adds up all threads, so extra threads give no advantage.
# Other processes can still evict caches, which slows down the runtime that uses more memory. This only adds time, and
# rarely to every piece between two scheduler turns; therefore the fastest piece counts. A longer effect, such as a
# falling clock rate, affects all runtimes of a round; therefore ratios are computed per round. With two busy processes on
# two cores, the median ratio of the most sensitive network rose by up to 50 %, and the ratio of its fastest rounds mostly
# by less than 10 %. Therefore the latter is reported too.
clock = time.process_time


def interleave_runs(runs: Sequence[Run], rounds: int) -> Array:
    """Return seconds per run, ``[runs, rounds]``: the fastest piece of each sample.

    A piece repeats the run until it lasts about ``PIECE_SECONDS``. A sample has ``PIECES_PER_SAMPLE`` pieces (10 ms), or as
    many as the slowest of ``runs`` completes in ``SAMPLE_SECONDS``, but at least one. Each round samples all runs, in an
    order that rotates, so that no run always follows the same one.
    """
    repeats, piece_seconds = zip(*map(_piece, runs), strict=True)
    count = min(PIECES_PER_SAMPLE, max(1, int(SAMPLE_SECONDS / max(piece_seconds))))
    seconds = np.zeros((len(runs), rounds))
    gc_was_enabled = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(rounds):
            for k in np.roll(np.arange(len(runs)), round_).tolist():
                pieces = [_time_of(runs[k], repeats[k]) for _ in range(count)]
                seconds[k, round_] = min(pieces) / repeats[k]
    finally:
        if gc_was_enabled:
            gc.enable()
    return seconds


def _piece(run: Run) -> tuple[int, float]:
    """Return the runs per piece and the expected seconds of a piece.

    The measurement serves as warm-up.
    """
    _time_of(run, _WARM_UP)
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
