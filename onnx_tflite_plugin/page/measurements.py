"""Measurements in both runtimes: errors of tensors, and times of operators."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.run import verify
from onnx_tflite_plugin.verify.times.bench import bench
from onnx_tflite_plugin.verify.times.nodes import node_times
from onnx_tflite_plugin.verify.verification import Verification

if TYPE_CHECKING:
    from onnx import ModelProto

_MAX_NAMES = 4  # maximum number of names in a row of outputs with equal results
_BENCHMARK_ROUNDS = 5


@dataclass(frozen=True)
class Measurements:
    """Result of comparing and timing both models.

    ``errors``: a row for each tensor, in execution order. ``verdict``: the verdict in one line. ``differs``: the models
    differ. ``seconds``: operator index -> seconds per run. ``unowned_seconds``: seconds per run in nodes without
    a TFLite operator. ``outputs``: a row for each compared output. ``notes``: notes of the verification. ``operators``: the
    number of compared operators. ``runtimes``: runtime -> seconds per run in one thread; empty if not measured.
    """

    errors: Sequence[Mapping[str, Any]]
    verdict: str
    differs: bool
    seconds: Mapping[int, float] = field(default_factory=dict)
    unowned_seconds: float = 0.0
    outputs: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    operators: int = 0
    runtimes: Mapping[str, float] = field(default_factory=dict)


def measure_conversion(
    tflite: bytes, onnx: ModelProto, runs: int, options: VerifyOptions | None = None
) -> Measurements:
    """Compare and time both models.

    ``options``: data and tolerance. Verdict and errors are computed on all of the data; the models are timed on the first
    sample. Raises ConversionError if a model does not run, InvalidInputs for data that do not fit the model, and
    MissingExtra if a runtime is not installed.
    """
    options = options or VerifyOptions()
    verification = verify(tflite, onnx, host=Host(), **vars(options))
    verdict, differs = verification.text.splitlines()[0], verification.verdict == "differs"
    outputs, notes = _output_rows(verification, [info.name for info in onnx.graph.output]), list(_notes(verification))
    pair = ModelPair(tflite, onnx, None, options.tolerance, lambda stage: None)
    entry = pair.entry
    ranges = resolve_keys(options.ranges, entry.input_names, [tensor.name for tensor in entry.inputs], "--range")
    try:
        pair.assign_substitutes(Host)
        samples, _ = pair.reference_outputs(options.inputs, options.seed, 1, None, ranges)
        samples = samples[:1]
    except InconclusiveError:
        return Measurements([], verdict, differs, outputs=outputs, notes=notes, operators=verification.operators)
    tensors = entry.subgraph.tensors
    errors = [
        {
            "tensor": value.tensor,
            "name": tensors[value.tensor].name,
            "max_error": comparison.max_error if math.isfinite(comparison.max_error) else None,
            "tolerance": comparison.tolerance,
            "unit": comparison.unit,
            "ok": comparison.ok,
            "text": comparison.text,
        }
        for value, comparison in verification.tensors
        if value.subgraph == entry.subgraph.index
    ]
    runtimes = _runtime_seconds(tflite, onnx, options)
    seconds, unowned_seconds = _operator_seconds(
        onnx, pair.interface.feeds(samples[0]), runs, runtimes.get("onnxruntime")
    )
    return Measurements(
        errors, verdict, differs, seconds, unowned_seconds, outputs, notes, verification.operators, runtimes
    )


def _output_rows(verification: Verification, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of compared outputs; outputs with equal results share a row.

    ``names``: the names of the model's outputs. The error of an output without a separate end-to-end error is itself an
    end-to-end error.
    """
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    diverging = verification.diverging.comparison if verification.diverging else None  # described in a note
    for comparison in verification.comparisons:
        if comparison is diverging:
            continue
        error = comparison.problem or ("equal" if not comparison.max_error else comparison.error)
        end_to_end = comparison.end_to_end or (error if comparison.name in names else "")
        tolerance = "" if comparison.problem else comparison.in_unit(comparison.tolerance)
        row = {"ok": comparison.ok, "error": error, "tolerance": tolerance, "end_to_end": end_to_end}
        rows.setdefault(tuple(row.values()), {"names": [], **row})["names"].append(comparison.name)
    return [{"name": list_first(row.pop("names"), _MAX_NAMES), **row} for row in rows.values()]


def _notes(verification: Verification) -> Iterator[str]:
    """Yield the lines of a verification that do not describe a single output."""
    if verification.diverging:
        yield f"first tensor that differs when each operator gets LiteRT's values: {verification.diverging.text}"
    yield from (*verification.end_to_end, *verification.reasons[1:], *verification.notes)


def _runtime_seconds(tflite: bytes, onnx: ModelProto, options: VerifyOptions) -> dict[str, float]:
    """Return seconds per run of each runtime in one thread, and the ratio of both.

    Return an empty mapping if the models cannot be timed with the data.
    """
    try:
        benchmark = bench(tflite, onnx, threads=1, rounds=_BENCHMARK_ROUNDS, inputs=options.inputs, seed=options.seed)
    except ConversionError:
        return {}
    return {
        "litert": benchmark.litert.median,
        "onnxruntime": benchmark.onnxruntime.median,
        "ratio": benchmark.ratio.median,
    }


def _operator_seconds(
    onnx: ModelProto, feeds: dict[str, Any], runs: int, run_seconds: float | None
) -> tuple[dict[int, float], float]:
    """Return seconds per run of each TFLite operator, and of nodes of no operator.

    ``run_seconds``: duration of a run, if it was measured.
    """
    seconds: dict[int, float] = defaultdict(float)
    unowned_seconds = 0.0
    for node in node_times(onnx, feeds, runs, run_seconds):
        if node.operator is None:
            unowned_seconds += node.seconds
        else:
            seconds[node.operator] += node.seconds
    return dict(seconds), unowned_seconds
