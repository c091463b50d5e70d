"""Times several things side by side."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Array

Run = Callable[[], object]

SAMPLE = 0.01  # seconds: far above the clock's resolution and the cost of reading it
_WARM_UP = 3

# The processor's time of this process, not the wall clock's: with one thread a runtime the two agree on an idle machine,
# and on a busy one the time that others had the core is left out. All threads are added up, so a pool that somebody
# started against the rules is charged rather than rewarded. What others still do to caches and clock rate lasts longer
# than one round, and within a round it meets everybody: hence the ratio is taken round by round.
clock = time.process_time


def interleaved(runs: Sequence[Run], rounds: int) -> Array:
    """Seconds a run, one row for each of ``runs``, one column a round; each is sampled once a round.

    A sample repeats the run until it lasts about ``SAMPLE``. The order rotates, so that nobody always follows the same.
    """
    repeats = [_repeats(run) for run in runs]
    seconds = np.zeros((len(runs), rounds))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for round_ in range(rounds):
            for k in np.roll(np.arange(len(runs)), round_).tolist():
                seconds[k, round_] = _timed(runs[k], repeats[k]) / repeats[k]
    finally:
        if collecting:
            gc.enable()
    return seconds


def _repeats(run: Run) -> int:
    """How many runs a sample takes; what it costs to find out is the warm-up."""
    _timed(run, _WARM_UP)
    count = 1
    while (taken := _timed(run, count)) < SAMPLE / 4:
        count *= 2
    return max(1, math.ceil(count * SAMPLE / taken))


def _timed(run: Run, count: int) -> float:
    start = clock()
    for _ in range(count):
        run()
    return clock() - start
