"""One model in both runtimes, side by side."""

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
from onnx_tflite_plugin.normalize.joining import Places, join_signatures
from onnx_tflite_plugin.options import VerifyOptions
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import Section, Source, check_source, read, read_bytes
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import PATIENCE, Run
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.examined import Examined
from onnx_tflite_plugin.verify.inputs.causal import causal_inputs
from onnx_tflite_plugin.verify.inputs.user_data import Given
from onnx_tflite_plugin.verify.runtimes.child import record_crashes
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.processor import depends
from onnx_tflite_plugin.verify.submodels.decision import FUSION, RANDOM_NUMBERS, conclude, decide, save_submodels
from onnx_tflite_plugin.verify.submodels.engine import Decision
from onnx_tflite_plugin.verify.verification import Verification, merge_verifications

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.verify.runtimes.structure import Entry

_DEPENDENT = (
    "its int8 weights are exact only where the processor adds uint8 x int8 products exactly; another may differ"
)
MAX_ELEMENTS = 2**27
"""Elements of the inputs and outputs of all runs: three runs of 173 million take 69 s, most of it to move them between processes."""
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

    Every submodel runs on the same operands in both runtimes, which decides; the errors of the outputs are reported.

    Args:
        tflite: path or content of the TFLite model.
        onnx: the converted model: a path, its content, a ModelProto or a Conversion.
        inputs: arrays by name, a list of such mappings (one per run), an .npz, .npy or image file, or a folder of these (one
            per run). An array that stacks several inputs along its first axis is as many runs. Other inputs are random.
        seed: seed of random inputs.
        runs: successive invocations in one session per runtime, so that states are carried. A model with large inputs and
            outputs runs fewer times. One more run has other sizes if the ONNX model has dynamic dimensions, LiteRT takes
            them, and neither ``inputs`` nor ``shapes`` sets them.
        tolerance: a share of the range for float outputs, or a whole ``Tolerance``; the default follows from the model.
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
    if runs < 1:
        raise ValueError(f"runs is at least 1, not {runs}")
    told = progress or (lambda stage: None)
    told("loading both models")
    data = content(tflite)
    examined = Examined(data, model_of(onnx), signature, tolerance, told)
    lengths = read_lengths(props(examined.session.proto.metadata_props))
    common = _Asked(inputs, seed, runs, shapes, ranges or {}, tolerance is None, bisect, host)
    if not lengths or signature is not None or inputs is not None or shapes is not None:
        return _verify_entry(examined, common, lengths.get(examined.trial.signature or ""), partial, told)
    found, equal = {}, _equal_places(data, host)
    for key, length in lengths.items():
        of_key = examined.other(key, tolerance, told, equal.get(key))
        found[key] = _verify_entry(of_key, common, length, partial, told)
    return merge_verifications(found)


def _equal_places(data: bytes, host: Host | None) -> Mapping[str, Places]:
    """Return what a model of several signatures has of each; nothing if they cannot be joined again."""
    used = host or Host()
    try:
        return join_signatures(read(data), used, used.targets.named("onnxruntime")).equal
    except (Misaligned, ConversionError):
        return {}


def _verify_entry(examined: Examined, given: _Asked, length: int | None, partial: bool, told: Progress) -> Verification:
    """Compare one signature. ``length``: its number of tokens, if the model is of several."""
    entry = examined.entry
    stored = [tensor.name for tensor in entry.inputs]
    ranges = resolve_keys(given.ranges, entry.input_names, stored, "--range")
    shapes = None if given.shapes is None else resolve_keys(given.shapes, entry.input_names, stored, "--input-shape")
    inputs = causal_inputs(examined.session, given.runs, length) if given.inputs is None else given.inputs
    asked = given._replace(inputs=inputs, shapes=shapes, ranges=ranges)
    with record_crashes() as crashes:
        try:
            verification = _run_and_compare(examined, asked, told)
        except InconclusiveError as error:
            verification = Verification((), (), 0, reasons=(error.message,))
    reasons = (*examined.reasons, *(one for one in verification.reasons if one not in examined.reasons))
    notes = (*verification.notes, *dict.fromkeys(crashes))
    return replace(verification, notes=notes, reasons=reasons, partial=partial)


class _Asked(NamedTuple):
    """The arguments of ``verify``. ``exact``: no tolerance was given besides the model's own."""

    inputs: Given
    seed: int
    runs: int
    shapes: Mapping[str, Sequence[int]] | None
    ranges: Mapping[str, tuple[float, float]]
    exact: bool
    bisect: str | os.PathLike[str] | None
    host: Host | None


def affordable_runs(entry: Entry, runs: int) -> int:
    """Return the number of runs, or fewer if inputs and outputs of so many have more than MAX_ELEMENTS elements."""
    size = sum(prod(n or 1 for n in tensor.dims) for tensor in (*entry.inputs, *entry.outputs))
    return max(1, min(runs, MAX_ELEMENTS // max(size, 1)))


def _run_and_compare(examined: Examined, asked: _Asked, told: Progress) -> Verification:
    """Run both models, compare the outputs end to end, and decide by the submodels."""
    notes = examined.fill(asked.host or Host)
    random = any(True for _ in random_nodes(examined.session.proto.graph))
    runs = affordable_runs(examined.entry, asked.runs)
    drawn, expected = examined.reference_outputs(asked.inputs, asked.seed, runs, asked.shapes, asked.ranges)
    if not random and asked.inputs is None and not asked.shapes:
        resized = examined.extend(drawn, expected, asked.seed)
        notes = (resized, *notes) if resized else notes
    told("submodels on the same operands")
    try:
        decision = decide(examined, drawn, random=random, exact=asked.exact)
    except ConversionError as error:
        if random:
            raise InconclusiveError(f"{RANDOM_NUMBERS}, and {error.message}") from error
        decision = Decision(error=error.message)
    _add_builtin_outputs(examined, decision, drawn, expected)
    outputs = () if random else _compare_outputs(examined, drawn, expected)
    fused = examined.differs_by_fusion(outputs, drawn, expected)
    notes = (FUSION, *notes) if fused else notes
    verification = conclude(examined, outputs, decision, settles=not fused)
    wrong = tuple(one for one in examined.compare_batch() if not one.ok)
    verification = replace(verification, comparisons=(*verification.comparisons, *wrong))
    if depends(examined.session.proto):
        notes = (*notes, _DEPENDENT)
    if verification.verdict == "differs":
        if asked.bisect is not None and decision.differing:
            notes = (save_submodels(examined, decision, Path(asked.bisect)), *notes)
        notes = (*examined.hints(drawn, expected), *notes)
    return replace(
        verification,
        kernels=tuple(expected),
        runs=len(drawn) + (examined.batch is not None),
        notes=(*verification.notes, *notes),
    )


def _add_builtin_outputs(
    examined: Examined, decision: Decision, drawn: Sequence[Run], expected: dict[str, list[Run]]
) -> None:
    """Add the outputs of the builtin kernels, which may round otherwise: those of the submodels' runs, if there are any."""
    if len(decision.outputs) == len(drawn):
        expected["builtin"] = decision.outputs
    elif decision.error and "builtin" not in expected:
        with suppress(LiteRTError):
            outputs = examined.trial.litert("builtin", drawn, fresh=examined.fresh, patience=PATIENCE)
            expected["builtin"] = [*outputs]


def _compare_outputs(
    examined: Examined, drawn: Sequence[Run], expected: Mapping[str, Sequence[Run]]
) -> tuple[Comparison, ...]:
    """Compare the outputs end to end."""
    actual = examined.trial.actual(examined.session, drawn)
    if _all_nan(actual) and any(array.size for arrays in drawn for array in arrays):
        examined.reasons = (*examined.reasons, _NAN)
    return examined.trial.compare_outputs(actual, expected)


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
    if not isinstance(proto, bytes) and not hasattr(proto, "graph"):
        raise TypeError(
            f"an ONNX model is given by path or content, as ModelProto or Conversion, not as {type(onnx).__name__}"
        )
    return proto  # type: ignore[no-any-return]
