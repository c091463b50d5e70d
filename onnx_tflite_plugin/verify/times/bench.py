"""Function ``bench``: times of a model in LiteRT and of its conversion."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.keywords import name_keywords
from onnx_tflite_plugin.options import BenchOptions, VerifyOptions
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import Source
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.arguments import check_arguments, check_order, onnx_source, read_tflite
from onnx_tflite_plugin.verify.inputs.user_data import InputData
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.origin import check_origin, name_source
from onnx_tflite_plugin.verify.runtimes.litert import start_litert
from onnx_tflite_plugin.verify.runtimes.processor import describe_processor
from onnx_tflite_plugin.verify.times.profile import OperatorTime, profile

if TYPE_CHECKING:
    from onnx import ModelProto

TURN_SECONDS = 0.02  # duration of a turn, in which only one runtime runs
WARM_UP_RUNS = 2  # runs before the first measurement


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles (25 % and 75 %) over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float] | Array) -> Spread:
        low, median, high = np.percentile(values, (25, 50, 75))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Seconds per run in each runtime.

    ``ratio``: ONNX Runtime's time divided by LiteRT's, per round. ``clock``: "processor time" or "wall-clock time".
    ``kernels``: LiteRT's kernel set. ``operators``: times per operator if the model was profiled; the largest loss
    comes first. ``signature``: the key of the signature that was timed. ``inputs``: name, dtype and shape of each input.
    ``notes``: facts that limit what the times show.
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
    signature: str | None = None
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    notes: tuple[str, ...] = ()


@name_keywords()
def bench(
    tflite: Source,
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
    """Time both models in turns of about 20 ms, ``rounds`` times.

    With one thread, times are processor time, which other processes do not affect. With more threads, they are
    wall-clock time.

    Args:
        tflite: path or content of the TFLite model, or a model of a bundle.
        onnx: the converted model: a path, its content, a ModelProto or a Conversion.
        threads: number of threads of each runtime.
        rounds: number of rounds.
        inputs: as for ``verify``; only the first run is used.
        seed: seed of random inputs.
        signature: key of the signature to run; by default the converted one.
        profiled: also time each operator, with one thread per runtime.
        progress: called with the name of each stage as it begins.

    Raises the same errors as ``verify``.
    """
    check_arguments(signature, None, seed, None)
    VerifyOptions(seed=seed), BenchOptions(threads=threads, rounds=rounds)  # check the values
    start_stage = progress or (lambda stage: None)
    start_stage("loading both models")
    check_order(tflite, onnx)
    data, model = read_tflite(tflite), onnx_source(onnx)
    origin_note = check_origin(data, name_source(tflite), model)
    pair = ModelPair(data, model, signature, None, start_stage, threads=threads)
    trial = pair.trial
    (arrays, *_), litert_session = pair.draw_accepted_inputs(
        lambda input_runs: start_litert(
            trial.data, input_runs[0], signature=trial.signature, known=trial.model, threads=threads
        ),
        inputs,
        seed,
    )
    session = pair.session
    session.run(pair.interface.feeds(arrays))  # raises OrtError if ONNX Runtime refuses the inputs
    session.reset()
    feeds = session.feeds(pair.interface.feeds(arrays))
    names = [info.name for info in session.outputs]
    runs: list[Callable[[], Any]] = [litert_session.prepare(arrays), lambda: session.invoke(names, feeds)]
    seconds = _time_rounds(runs, rounds, threads, start_stage)
    ratios = [onnx_seconds / litert_seconds for litert_seconds, onnx_seconds in zip(*seconds, strict=True)]
    litert, onnxruntime = map(Spread.of, seconds)
    operators: Sequence[OperatorTime] = ()
    if profiled:
        operators = profile(trial, session.proto, arrays, feeds, onnxruntime.median, start_stage, threads=threads)
    return Benchmark(
        litert, onnxruntime, Spread.of(ratios), rounds, threads,
        "processor time" if threads == 1 else "wall-clock time", litert_session.kernels,
        describe_processor(session.proto.graph), tuple(operators), trial.signature,
        _describe_inputs(pair.entry.input_names, arrays), (origin_note,) if origin_note else (),
    )  # fmt: skip


def time_onnxruntime(
    tflite: Source,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    threads: int = BenchOptions.threads,
    rounds: int = BenchOptions.rounds,
    inputs: InputData = None,
    seed: int = VerifyOptions.seed,
    signature: str | None = None,
) -> Spread:
    """Return the seconds per run in ONNX Runtime, for a file that LiteRT cannot run.

    Arguments and clock are as for :func:`bench`. Raises OrtError if ONNX Runtime rejects the inputs.
    """
    check_order(tflite, onnx)
    data = read_tflite(tflite)
    pair = ModelPair(data, onnx_source(onnx), signature, None, lambda stage: None, threads=threads)
    session = pair.session
    (arrays, *_), _ = pair.draw_accepted_inputs(
        lambda input_runs: session.run(pair.interface.feeds(input_runs[0])), inputs, seed
    )
    session.reset()
    feeds, names = session.feeds(pair.interface.feeds(arrays)), [info.name for info in session.outputs]
    (seconds,) = _time_rounds([lambda: session.invoke(names, feeds)], rounds, threads, lambda stage: None)
    return Spread.of(seconds)


def _describe_inputs(names: Sequence[str], arrays: Sequence[Array]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return tuple((name, str(array.dtype), array.shape) for name, array in zip(names, arrays, strict=True))


def _time_rounds(runs: Sequence[Callable[[], Any]], rounds: int, threads: int, progress: Progress) -> list[list[float]]:
    """Return the seconds per run of each runtime in each round.

    Each runtime has one turn per round; the first turn alternates. With one thread, the seconds are processor time.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    counts = [_runs_per_turn(run) for run in runs]
    seconds: list[list[float]] = [[] for _ in runs]
    for round_index in range(rounds):
        progress(f"round {round_index + 1} of {rounds}")
        for k in range(len(runs)) if round_index % 2 else reversed(range(len(runs))):
            start = clock()
            for _ in range(counts[k]):
                runs[k]()
            seconds[k].append((clock() - start) / counts[k])
    return seconds


def _runs_per_turn(run: Callable[[], Any]) -> int:
    """Return the number of runs that fill a turn, measured after warm-up runs."""
    for _ in range(WARM_UP_RUNS):
        run()
    start = time.perf_counter()
    run()
    return max(1, round(TURN_SECONDS / max(time.perf_counter() - start, 1e-7)))
