"""Time a model in LiteRT and its conversion in ONNX Runtime, in turns on the same inputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.options import BenchOptions, VerifyOptions
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.inputs.user_data import InputData
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.run import onnx_source, read_tflite
from onnx_tflite_plugin.verify.runtimes.litert import start_litert
from onnx_tflite_plugin.verify.runtimes.processor import processor
from onnx_tflite_plugin.verify.times.profile import OperatorTime, profile

if TYPE_CHECKING:
    from onnx import ModelProto

TURN = 0.02  # seconds that one runtime is timed for before the other has its turn
WARM = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | Array) -> Spread:
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Seconds a run in each runtime, and ONNX Runtime's share of LiteRT's, round by round.

    ``operators``: where the model was profiled, the time of each, the one that loses most first.
    """

    litert: Spread
    onnxruntime: Spread
    ratio: Spread
    rounds: int
    threads: int
    clock: str
    kernels: str
    processor: str
    operators: tuple[OperatorTime, ...] = ()


def bench(
    tflite: str | os.PathLike[str] | bytes,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    threads: int = BenchOptions.threads,
    rounds: int = BenchOptions.rounds,
    inputs: InputData = None,
    seed: int = VerifyOptions.seed,
    signature: str | None = None,
    profiled: bool = False,
    progress: Progress | None = None,
) -> Benchmark:
    """Time both models with ``threads`` each, in turns of some 20 ms, ``rounds`` times.

    With one thread the processor's time is taken, which other processes do not add to; with more it is the clock's.
    ``inputs`` as for ``verify``; of several runs the first. ``profiled``: operator by operator too, each runtime in one
    thread. Raises as ``verify`` does.
    """
    report = progress or (lambda stage: None)
    report("loading both models")
    pair = ModelPair(read_tflite(tflite), onnx_source(onnx), signature, None, report, threads=threads)
    trial = pair.trial
    (arrays, *_), original = pair.draw_accepted_inputs(
        lambda drawn: start_litert(trial.data, drawn[0], signature=trial.signature, known=trial.model, threads=threads),
        inputs,
        seed,
    )
    session = pair.session
    session.run(pair.interface.feeds(arrays))  # whatever ONNX Runtime refuses is an OrtError here
    session.reset()
    feeds = session.feeds(pair.interface.feeds(arrays))
    names = [info.name for info in session.outputs]
    clock: Callable[[], float] = time.process_time if threads == 1 else time.perf_counter
    runs: list[Callable[[], Any]] = [original.prepare(arrays), lambda: session.invoke(names, feeds)]
    counts = [_count(run) for run in runs]
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        report(f"round {number + 1} of {rounds}")
        for k in (0, 1) if number % 2 else (1, 0):
            start = clock()
            for _ in range(counts[k]):
                runs[k]()
            seconds[k].append((clock() - start) / counts[k])
    ratios = [ours / theirs for theirs, ours in zip(*seconds, strict=True)]
    litert, onnxruntime = map(Spread.of, seconds)
    operators: Sequence[OperatorTime] = ()
    if profiled:
        operators = profile(trial, session.proto, arrays, feeds, onnxruntime.median, report)
    return Benchmark(
        litert, onnxruntime, Spread.of(ratios), rounds, threads,
        "processor time" if threads == 1 else "wall-clock time", original.kernels, processor(), tuple(operators),
    )  # fmt: skip


def _count(run: Callable[[], Any]) -> int:
    """Return the number of runs that fill a turn."""
    for _ in range(WARM):
        run()
    start = time.perf_counter()
    run()
    return max(1, round(TURN / max(time.perf_counter() - start, 1e-7)))
