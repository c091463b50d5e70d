"""Test ``bench``: alternating runs of both runtimes, and the report."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import InconclusiveError, InvalidInputs, UnsupportedOption
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime
from onnx_tflite_plugin.verify.times.bench import Spread, bench
from tests.helpers.command import Run

DIGITS = Path(__file__).parents[3] / "examples" / "digits_int8.tflite"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the turns of the benchmark to a millisecond."""
    monkeypatch.setattr("onnx_tflite_plugin.verify.times.bench.TURN_SECONDS", 1e-3)


def test_slower_model_has_a_larger_ratio(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion = otp.convert(DIGITS)
    unchanged = bench(DIGITS, conversion, rounds=5)
    prepare: Callable[..., Any] = LiteRT.prepare

    def prepare_slow(self: LiteRT, inputs: Any) -> Callable[[], Any]:
        invoke = prepare(self, inputs)

        def slow() -> Any:
            end = time.process_time() + 0.005
            while time.process_time() < end:
                pass
            return invoke()

        return slow

    monkeypatch.setattr(LiteRT, "prepare", prepare_slow)
    slowed = bench(DIGITS, conversion, rounds=5)
    assert slowed.litert.median > 0.005 > unchanged.litert.median
    assert slowed.ratio.median < unchanged.ratio.median / 5
    assert unchanged.ratio.low <= unchanged.ratio.median <= unchanged.ratio.high


def test_litert_timing_excludes_input_checks(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a model of a few microseconds appears three times slower in LiteRT."""
    model = LiteRT(DIGITS.read_bytes(), isolated=False)
    array = np.zeros(model.entry.inputs[0].shape, np.int8)
    (expected,) = model.run([array])
    (element,) = np.asarray(model.prepare([array])())
    np.testing.assert_array_equal(element, expected)
    with pytest.raises(AttributeError, match="another process"):
        LiteRT(DIGITS.read_bytes(), isolated=True).prepare([array])


@pytest.mark.parametrize(("threads", "name"), [(1, "process_time"), (2, "perf_counter")])
def test_one_thread_is_timed_by_processor_time(
    quick: None, monkeypatch: pytest.MonkeyPatch, threads: int, name: str
) -> None:
    calls: list[str] = []

    def clock(name: str) -> Callable[[], float]:
        def read_clock() -> float:
            calls.append(name)
            return float(getattr(time, name)())

        return read_clock

    clocks = SimpleNamespace(**{name: clock(name) for name in ("process_time", "perf_counter")})
    monkeypatch.setattr("onnx_tflite_plugin.verify.times.bench.time", clocks)
    bench(DIGITS, otp.convert(DIGITS), rounds=5, threads=threads)
    assert calls.count(name) >= 5 * 2 * 2


def test_round_starts_with_the_previous_rounds_last_runtime(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(LiteRT, "prepare", lambda self, arrays: lambda: calls.append("LiteRT"))
    original: Callable[..., Any] = OnnxRuntime.invoke

    def record_call(self: Any, *arguments: Any) -> Any:
        calls.append("OnnxRuntime")
        return original(self, *arguments)

    monkeypatch.setattr(OnnxRuntime, "invoke", record_call)
    monkeypatch.setattr("onnx_tflite_plugin.verify.times.bench._runs_per_turn", lambda run: 1)
    bench(DIGITS, otp.convert(DIGITS), rounds=4)
    litert, onnxruntime = "LiteRT", "OnnxRuntime"
    assert calls[-8:] == [onnxruntime, litert, litert, onnxruntime] * 2


def test_threads_reach_both_runtimes(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for runtime in (LiteRT, OnnxRuntime):
        original_init = runtime.__init__

        def record_threads(self: Any, *arguments: Any, original_init: Any = original_init, **options: Any) -> None:
            calls.append((type(self).__name__, options.get("threads", 1)))
            original_init(self, *arguments, **options)

        monkeypatch.setattr(runtime, "__init__", record_threads)
    benchmark = bench(DIGITS, otp.convert(DIGITS), rounds=3, threads=2)
    assert ("LiteRT", 2) in calls
    assert ("OnnxRuntime", 2) in calls
    assert (benchmark.threads, benchmark.clock) == (2, "wall-clock time")


def test_command_converts_the_model_if_no_onnx_is_given(
    quick: None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        import_module("onnx_tflite_plugin.cli.bench"), "NOISY", math.inf
    )  # a busy machine adds a warning
    code, out, _ = run("bench", DIGITS, "--rounds", 3)
    assert not code
    labels = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert [label for label in labels if label != "reason"] == ["LiteRT", "ONNX", "ratio", "inputs", "measured"]
    (path,) = otp.convert(DIGITS).save(tmp_path / "digits.onnx")
    reported = json.loads(run("bench", DIGITS, path, "--rounds", 3, "--json").out)
    assert reported["rounds"] == 3
    assert reported["ratio"]["low"] <= reported["ratio"]["median"] <= reported["ratio"]["high"]


def test_command_times_onnx_runtime_if_litert_cannot_run(
    quick: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> LiteRT:
        raise InconclusiveError("LiteRT cannot run this file")

    monkeypatch.setattr("onnx_tflite_plugin.verify.times.bench.start_litert", refuse)
    code, out, err = run("bench", DIGITS, "--rounds", 3)
    assert code == InconclusiveError.exit_code
    assert out.startswith("ONNX Runtime")
    assert "LiteRT cannot run this file" in err


def test_rejects_data_that_does_not_fit() -> None:
    with pytest.raises(InvalidInputs, match="the given array"):
        bench(DIGITS, otp.convert(DIGITS), inputs={"image": np.zeros((1, 2), np.int8)})


@pytest.mark.parametrize(("keywords", "error"), [({"seed": -1}, ValueError), ({"threads": 257}, UnsupportedOption)])
def test_number_out_of_range_is_refused_before_any_work(keywords: dict[str, int], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"^{next(iter(keywords))} is .*; give "):
        bench("missing.tflite", "missing.onnx", **keywords)


def test_spread_is_median_and_quartiles() -> None:
    assert Spread.of([1, 2, 3, 4, 100]) == Spread(3, 2, 4)
