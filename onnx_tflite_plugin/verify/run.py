"""Comparison of one model in LiteRT and ONNX Runtime: ``verify``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.graph.metadata import props, read_lengths
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.graph.randomness import random_nodes
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.alignment import Misaligned
from onnx_tflite_plugin.normalize.joining import SharedItems, join_signatures
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import Section, Source, check_source, read, read_bytes
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import PATIENCE, Run
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs.causal import causal_inputs
from onnx_tflite_plugin.verify.inputs.user_data import Given, describe_rounding
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes.child import record_crashes
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.processor import depends
from onnx_tflite_plugin.verify.submodels.decision import FUSION, RANDOM_NUMBERS, conclude, decide, save_submodels
from onnx_tflite_plugin.verify.submodels.judge import Decision
from onnx_tflite_plugin.verify.verification import Verification, merge_verifications

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.verify.runtimes.structure import Entry

_DEPENDENT = "results with its int8 weights are exact only on processors that add uint8 x int8 products exactly"
MAX_ELEMENTS = 2**27
"""Limit for elements of the inputs and outputs of all runs: three runs with 173 million take 69 s, mostly to copy between processes."""
_NAN = "every output is NaN in both runtimes on these inputs; give others with --inputs or --range"


def verify(
    tflite: str | os.PathLike[str] | bytes | Section,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    inputs: Given = None,
    seed: int = VerifyOptions.seed,
    runs: int = VerifyOptions.runs,
    tolerance: Tolerance | float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    signature: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bisect: str | os.PathLike[str] | None = None,
    partial: bool = False,
    host: Host | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Run a TFLite model in LiteRT and its conversion in ONNX Runtime on the same inputs, and compare every output.

    Every submodel runs on the same operands in both runtimes, which determines the verdict; output errors are reported too.

    Args:
        tflite: path or content of the TFLite model.
        onnx: the converted model: a path, its content, a ModelProto or a Conversion.
        inputs: arrays by name, a list of such mappings (one per run), an .npz, .npy or image file, or a folder of these (one
            per run). An array that stacks several inputs along its first axis is as many runs. Other inputs are random.
        seed: seed of random inputs.
        runs: successive invocations in one session per runtime, so that states are carried. A model with large inputs and
            outputs runs fewer times. One more run has other sizes if the ONNX model has dynamic dimensions, LiteRT takes
            them, and neither ``inputs`` nor ``shapes`` sets them.
        tolerance: a share of the range for float outputs, or a whole ``Tolerance``; outputs beyond it differ even if every
            operator agrees. By default only operators decide.
        ranges: minimum and maximum of random values, by input name.
        signature: by default the one that was converted; each of them for a model of several, unless ``inputs`` or
            ``shapes`` are given.
        shapes: sizes of inputs with dynamic dimensions, by input name.
        bisect: a folder for the submodels that differ, for a bug report.
        partial: accept a comparison that leaves out operators without a kernel; otherwise its verdict is inconclusive.
        host: the installed packs to use. The kernels of their handlers compute operators that LiteRT lacks.
        progress: called with the name of each stage as it begins.

    Raises:
        InvalidInputs: inputs do not match the model.
        VerificationError: a model does not run.
        InvalidModel: the file is not a TFLite model.
        InvalidOnnx: the file is not an ONNX model.
        MissingExtra: LiteRT or ONNX Runtime is not installed.
        OSError: a file cannot be read.
        TypeError: an argument has the wrong type.
    """
    if isinstance(runs, int) and runs < 1:
        raise ValueError(f"runs is {runs}; it must be at least 1")
    share = None if isinstance(tolerance, Tolerance) else tolerance
    VerifyOptions(ranges=ranges or {}, seed=seed, runs=runs, tolerance=share, partial=partial)  # checks types
    report = progress or (lambda stage: None)
    report("loading both models")
    data = content(tflite)
    pair = ModelPair(data, model_of(onnx), signature, tolerance, report)
    lengths = read_lengths(props(pair.session.proto.metadata_props))
    common = _Asked(inputs, seed, runs, shapes, ranges or {}, tolerance is None, bisect, host)
    if not lengths or signature is not None or inputs is not None or shapes is not None:
        return _verify_entry(pair, common, lengths.get(pair.trial.signature or ""), partial, report)
    found, equal = {}, _equal_places(data, host)
    for key, length in lengths.items():
        of_key = pair.other(key, tolerance, report, equal.get(key))
        found[key] = _verify_entry(of_key, common, length, partial, report)
    return merge_verifications(found)


def _equal_places(data: bytes, host: Host | None) -> Mapping[str, SharedItems]:
    """Return the tensors and operators that a joined model shares with each signature; empty if the signatures cannot be joined."""
    used = host or Host()
    try:
        return join_signatures(read(data), used, used.targets.named("onnxruntime")).shared
    except (Misaligned, ConversionError):
        return {}


def _verify_entry(
    pair: ModelPair, given: _Asked, length: int | None, partial: bool, progress: Progress
) -> Verification:
    """Compare one signature. ``length``: its number of tokens, for a model made of several signatures."""
    entry = pair.entry
    stored = [tensor.name for tensor in entry.inputs]
    ranges = resolve_keys(given.ranges, entry.input_names, stored, "--range")
    shapes = None if given.shapes is None else resolve_keys(given.shapes, entry.input_names, stored, "--input-shape")
    inputs = causal_inputs(pair.session, given.runs, length) if given.inputs is None else given.inputs
    asked = given._replace(inputs=inputs, shapes=shapes, ranges=ranges)
    with record_crashes() as crashes:
        try:
            verification = _run_and_compare(pair, asked, progress)
        except InconclusiveError as error:
            verification = Verification((), (), 0, reasons=(error.message,))
    reasons = (*pair.reasons, *(one for one in verification.reasons if one not in pair.reasons))
    notes = (*verification.notes, *dict.fromkeys(crashes))
    return replace(verification, notes=notes, reasons=reasons, partial=partial)


class _Asked(NamedTuple):
    """Arguments of ``verify``. ``exact``: the caller gave no tolerance."""

    inputs: Given
    seed: int
    runs: int
    shapes: Mapping[str, Sequence[int]] | None
    ranges: Mapping[str, tuple[float, float]]
    exact: bool
    bisect: str | os.PathLike[str] | None
    host: Host | None


def affordable_runs(entry: Entry, runs: int) -> int:
    """Return the number of runs, reduced until their inputs and outputs have at most MAX_ELEMENTS elements."""
    size = sum(prod(n or 1 for n in tensor.dims) for tensor in (*entry.inputs, *entry.outputs))
    return max(1, min(runs, MAX_ELEMENTS // max(size, 1)))


def _run_and_compare(pair: ModelPair, asked: _Asked, progress: Progress) -> Verification:
    """Run both models, compare the outputs end to end, and determine the verdict from the submodels."""
    notes = pair.fill(asked.host or Host)
    random = any(True for _ in random_nodes(pair.session.proto.graph))
    runs = affordable_runs(pair.entry, asked.runs)
    drawn, expected = pair.reference_outputs(asked.inputs, asked.seed, runs, asked.shapes, asked.ranges)
    notes = (*notes, *describe_rounding(pair.entry, asked.inputs))
    if not random and asked.inputs is None and not asked.shapes:
        resized = pair.extend(drawn, expected, asked.seed)
        notes = (resized, *notes) if resized else notes
    progress("submodels on the same operands")
    try:
        decision = decide(pair, drawn, random=random, exact=asked.exact)
    except ConversionError as error:
        if random:
            raise InconclusiveError(f"{RANDOM_NUMBERS}, and {error.message}") from error
        decision = Decision(error=error.message)
    _add_builtin_outputs(pair, decision, drawn, expected)
    outputs = () if random else _compare_outputs(pair, drawn, expected)
    fused = pair.differs_by_fusion(outputs, drawn, expected)
    notes = (FUSION, *notes) if fused else notes
    verification = conclude(pair, outputs, decision, settles=not fused, exact=asked.exact)
    wrong = tuple(one for one in pair.compare_batch() if not one.ok)
    verification = replace(verification, comparisons=(*verification.comparisons, *wrong))
    if depends(pair.session.proto):
        notes = (*notes, _DEPENDENT)
    if verification.verdict == "differs":
        if asked.bisect is not None and decision.differing:
            notes = (save_submodels(pair, decision, Path(asked.bisect)), *notes)
        notes = (*pair.hints(drawn, expected), *notes)
    return replace(
        verification,
        kernels=tuple(dict.fromkeys([*expected, *(["builtin"] if verification.operators else [])])),
        runs=len(drawn) + (pair.batch is not None),
        by_packs=len(pair.trial.substitutes.pack_kernels),
        notes=(*verification.notes, *notes),
    )


def _add_builtin_outputs(
    pair: ModelPair, decision: Decision, drawn: Sequence[Run], expected: dict[str, list[Run]]
) -> None:
    """Add the outputs of the builtin kernels, which may round differently; reuse those of the submodels' runs."""
    if len(decision.outputs) == len(drawn):
        expected["builtin"] = decision.outputs
    elif decision.error and "builtin" not in expected:
        with suppress(LiteRTError):
            outputs = pair.trial.litert("builtin", drawn, fresh=pair.fresh, patience=PATIENCE)
            expected["builtin"] = [*outputs]


def _compare_outputs(
    pair: ModelPair, drawn: Sequence[Run], expected: Mapping[str, Sequence[Run]]
) -> tuple[Comparison, ...]:
    """Compare the outputs end to end."""
    actual = pair.trial.actual(pair.session, drawn)
    if _all_nan(actual) and any(array.size for arrays in drawn for array in arrays):
        pair.reasons = (*pair.reasons, _NAN)
    return pair.trial.compare_outputs(actual, expected)


def _all_nan(actual: Sequence[Run]) -> bool:
    arrays = [array for run in actual for array in run if array.size]
    return bool(arrays) and all(array.dtype.kind == "f" and bool(np.isnan(array).all()) for array in arrays)


def content(tflite: Source) -> bytes:
    check_source(tflite)
    return read_bytes(tflite)


def model_of(onnx: Any) -> ModelProto | bytes | Path:
    if isinstance(onnx, str | os.PathLike):
        return Path(onnx)
    proto = getattr(onnx, "proto", onnx)
    if not isinstance(proto, bytes) and not hasattr(proto, "SerializeToString"):
        raise TypeError(f"onnx is {type(onnx).__name__}; pass a path, bytes, a ModelProto or a Conversion")
    return proto  # type: ignore[no-any-return]
