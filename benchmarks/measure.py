"""Time several functions in alternation."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

Run = Callable[[], object]

PIECE = 0.002  # seconds: a thousand times the cost of reading the clock, and less than a scheduler time slice
PIECES = 5
SAMPLE = 0.06  # maximum seconds of a sample of several pieces; otherwise 25 rounds of a large network take minutes
_WARM_UP = 3

# The processor's time of this process, not the wall clock's: with one thread a runtime the two agree on an idle machine,
# and on a busy one the time that others had the core is left out. All threads are added up, so a pool that somebody
# started against the rules is charged rather than rewarded.
# What the clock cannot leave out is that others empty the caches, which costs the runtime more that uses more memory.
# That only ever adds time, and rarely to every piece between two turns of the scheduler: hence the fastest piece. What
# lasts longer, as a clock rate that falls, meets everybody in a round: hence the ratio round by round. With two busy
# neighbors on two cores the median of the most sensitive network tried still rose by up to half, the ratio of its
# fastest rounds mostly by less than a tenth: that one is told as well.
clock = time.process_time


def interleave_runs(runs: Sequence[Run], rounds: int) -> Array:
    """Seconds a run, one row for each of ``runs``, one column a round: the fastest piece of a sample.

    A piece repeats the run until it lasts about ``PIECE``. A sample is ``PIECES`` of them, thus 10 ms, or as many as the slowest
    of ``runs`` does in ``SAMPLE``, at least one. All are sampled in each round, in an order that rotates, so that nobody
    always follows the same.
    """
    repeats, lasting = zip(*map(_piece, runs), strict=True)
    count = min(PIECES, max(1, int(SAMPLE / max(lasting))))
    seconds = np.zeros((len(runs), rounds))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(rounds):
            for k in np.roll(np.arange(len(runs)), round_).tolist():
                pieces = [_time_of(runs[k], repeats[k]) for _ in range(count)]
                seconds[k, round_] = min(pieces) / repeats[k]
    finally:
        if collecting:
            gc.enable()
    return seconds


def _piece(run: Run) -> tuple[int, float]:
    """Return how many runs make up one measurement and its expected seconds; finding out serves as the warm-up."""
    _time_of(run, _WARM_UP)
    count = 1
    while (taken := _time_of(run, count)) < PIECE / 4:
        count *= 2
    repeats = max(1, math.ceil(count * PIECE / taken))
    return repeats, repeats * taken / count


def _time_of(run: Run, count: int) -> float:
    start = clock()
    for _ in range(count):
        run()
    return clock() - start
