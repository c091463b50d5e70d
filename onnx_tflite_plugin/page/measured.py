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

_LISTED = 4  # names of outputs with equal results
_ROUNDS = 5  # of a benchmark of both runtimes


@dataclass(frozen=True)
class Measured:
    """Result of comparing and timing both models.

    ``errors``: a row for each tensor, in execution order. ``verdict``: in one line. ``wrong``: the models differ.
    ``seconds``: per run, by operator. ``unowned_seconds``: per run, of nodes that belong to no operator. ``outputs``: a row
    for each compared output. ``notes``: the verification's. ``operators``: how many were compared. ``runtimes``: seconds
    per run of each runtime in one thread; empty if they were not measured.
    """

    errors: Sequence[Mapping[str, Any]]
    verdict: str
    wrong: bool
    seconds: Mapping[int, float] = field(default_factory=dict)
    unowned_seconds: float = 0.0
    outputs: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    operators: int = 0
    runtimes: Mapping[str, float] = field(default_factory=dict)


def measure_errors(tflite: bytes, onnx: ModelProto, runs: int, options: VerifyOptions | None = None) -> Measured:
    """Compare and time both models.

    ``options``: data and tolerance. The verdict and the errors of tensors are on all of the data, the times on the first
    inputs. Raises ConversionError if a model does not run, InvalidInputs for data that do not fit, and MissingExtra if a
    runtime is not installed.
    """
    options = options or VerifyOptions()
    verification = verify(tflite, onnx, host=Host(), **vars(options))
    verdict, wrong = verification.text.splitlines()[0], verification.verdict == "differs"
    outputs, notes = _outputs(verification, [info.name for info in onnx.graph.output]), list(_notes(verification))
    pair = ModelPair(tflite, onnx, None, options.tolerance, lambda stage: None)
    entry = pair.entry
    ranges = resolve_keys(options.ranges, entry.input_names, [tensor.name for tensor in entry.inputs], "--range")
    try:
        pair.assign_substitutes(Host)
        samples, _ = pair.reference_outputs(options.inputs, options.seed, 1, None, ranges)
        samples = samples[:1]
    except InconclusiveError:
        return Measured([], verdict, wrong, outputs=outputs, notes=notes, operators=verification.operators)
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
    runtimes = _runtimes(tflite, onnx, options)
    seconds, rest = _by_operator(onnx, pair.interface.feeds(samples[0]), runs, runtimes.get("onnxruntime"))
    return Measured(errors, verdict, wrong, seconds, rest, outputs, notes, verification.operators, runtimes)


def _outputs(verification: Verification, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for all comparisons with equal results.

    ``names``: the model's outputs. If an output has no separate end-to-end error, its error is measured end to end.
    """
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    diverging = verification.diverging.comparison if verification.diverging else None  # a note of its own
    for comparison in verification.comparisons:
        if comparison is diverging:
            continue
        error = comparison.problem or ("equal" if not comparison.max_error else comparison.error)
        end_to_end = comparison.end_to_end or (error if comparison.name in names else "")
        tolerance = "" if comparison.problem else comparison.in_unit(comparison.tolerance)
        row = {"ok": comparison.ok, "error": error, "tolerance": tolerance, "end_to_end": end_to_end}
        rows.setdefault(tuple(row.values()), {"names": [], **row})["names"].append(comparison.name)
    return [{"name": list_first(row.pop("names"), _LISTED), **row} for row in rows.values()]


def _notes(verification: Verification) -> Iterator[str]:
    """Yield the lines of a verification that are about no single output."""
    if verification.diverging:
        yield f"first difference on LiteRT's own operands: {verification.diverging.text}"
    yield from (*verification.end_to_end, *verification.reasons[1:], *verification.notes)


def _runtimes(tflite: bytes, onnx: ModelProto, options: VerifyOptions) -> dict[str, float]:
    """Return seconds per run in each runtime, in one thread, and their ratio.

    Return an empty mapping if a benchmark cannot run with the data.
    """
    try:
        benchmark = bench(tflite, onnx, threads=1, rounds=_ROUNDS, inputs=options.inputs, seed=options.seed)
    except ConversionError:
        return {}
    return {
        "litert": benchmark.litert.median,
        "onnxruntime": benchmark.onnxruntime.median,
        "ratio": benchmark.ratio.median,
    }


def _by_operator(
    onnx: ModelProto, feeds: dict[str, Any], runs: int, run_seconds: float | None
) -> tuple[dict[int, float], float]:
    """Return seconds per run of each TFLite operator, and of nodes that belong to none.

    ``run_seconds``: time of a run, if it was measured.
    """
    seconds: dict[int, float] = defaultdict(float)
    rest = 0.0
    for node in node_times(onnx, feeds, runs, run_seconds):
        if node.operator is None:
            rest += node.seconds
        else:
            seconds[node.operator] += node.seconds
    return dict(seconds), rest
