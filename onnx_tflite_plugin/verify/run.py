"""Function ``verify``: comparison of a TFLite model with its ONNX conversion."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_lengths
from onnx_tflite_plugin.graph.names import resolve_keys
from onnx_tflite_plugin.graph.randomness import random_nodes
from onnx_tflite_plugin.graph.serialized import Converted
from onnx_tflite_plugin.host import Host, check_host
from onnx_tflite_plugin.keywords import adapt_texts, name_keywords
from onnx_tflite_plugin.normalize.alignment import Misaligned
from onnx_tflite_plugin.normalize.joining import SharedItems, join_signatures
from onnx_tflite_plugin.options import ByInput, VerifyOptions, positions_as_text
from onnx_tflite_plugin.progress import Progress, check_progress
from onnx_tflite_plugin.source import Member, Section, read
from onnx_tflite_plugin.verify.arguments import (
    affordable_runs,
    check_arguments,
    check_fit,
    check_order,
    check_shapes,
    onnx_source,
    read_tflite,
)
from onnx_tflite_plugin.verify.causes import (
    describe_pack_fusions,
    explain_requantization,
    is_caused_by_fusion,
    processor_hints,
)
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import TIME_LIMIT, Run
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.end_to_end import describe_error, explain_errors
from onnx_tflite_plugin.verify.inputs.causal import causal_inputs
from onnx_tflite_plugin.verify.inputs.user_data import InputData, describe_rounding
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.origin import check_origin, mismatch_without_digest, name_source
from onnx_tflite_plugin.verify.runtimes.child import record_crashes
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import WrongShape
from onnx_tflite_plugin.verify.runtimes.processor import depends_on_processor, describe_processor
from onnx_tflite_plugin.verify.submodels.decision import (
    FUSION_NOTE,
    RANDOM_NUMBERS_REASON,
    compared_tensors,
    conclude,
    decide,
    save_submodels,
)
from onnx_tflite_plugin.verify.submodels.segment_comparer import Decision
from onnx_tflite_plugin.verify.verification import Verification, merge_verifications

if TYPE_CHECKING:
    from onnx import ModelProto


_PROCESSOR_NOTE = (
    "the model has int8 weights, so its results are exact only on processors that add uint8 x int8 products exactly"
)
_NAN_REASON = "every output is NaN in both runtimes on these inputs; give other inputs with --inputs or --range"


@name_keywords()
def verify(
    tflite: str | os.PathLike[str] | bytes | Section | Member,
    onnx: ModelProto | Converted | str | os.PathLike[str] | bytes,
    *,
    inputs: InputData = None,
    seed: int = VerifyOptions.seed,
    runs: int = VerifyOptions.runs,
    tolerance: Tolerance | float | None = None,
    ranges: ByInput[tuple[float, float]] | None = None,
    signature: str | None = None,
    shapes: ByInput[Sequence[int]] | None = None,
    bisect: str | os.PathLike[str] | None = None,
    partial: bool = False,
    host: Host | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Compare a TFLite model in LiteRT with its conversion in ONNX Runtime.

    The verdict depends on the submodels: each runs on the same inputs in both runtimes. End-to-end errors of the
    outputs are reported too.

    Args:
        tflite: path or content of the TFLite model, or a model of a bundle, as for ``convert``.
        onnx: the converted model: a path, its content, a ModelProto or a Conversion.
        inputs: the array of the only input, arrays by name, a list of such mappings (one per run), an .npz, .npy or image
            file, or a folder of these (one per run). An array that stacks several inputs along its first axis gives one
            run per input. Other inputs are random.
        seed: seed of random inputs.
        runs: successive invocations in one session per runtime, so that states are carried. A model with large inputs and
            outputs runs fewer times. An extra run uses different sizes if the ONNX model has dynamic dimensions, LiteRT accepts
            these sizes, and neither ``inputs`` nor ``shapes`` is given.
        tolerance: maximum error of float outputs as a fraction of their range, or a complete ``Tolerance``. If an
            output exceeds it, the verdict is ``differs`` even if every operator agrees. By default only operators determine the verdict.
        ranges: input name or position -> minimum and maximum of random values.
        signature: key of the signature to run. By default the converted one. If several were converted, each of them, unless
            ``inputs`` or ``shapes`` is given.
        shapes: input name or position -> shape of an input with dynamic dimensions.
        bisect: a folder for the submodels that differ, for a bug report. If a submodel cannot be written, a note gives the reason.
        partial: accept a comparison that leaves out operators without a kernel; otherwise its verdict is inconclusive.
        host: the installed packs to use. The kernels of their handlers compute operators that LiteRT lacks.
        progress: called with the name of each stage as it begins.

    Raises:
        InvalidInputs: inputs do not match the model.
        VerificationError: a model does not run.
        MismatchedModels: the ONNX model is not the conversion of the TFLite model.
        InvalidModel: the file is not a TFLite model.
        InvalidOnnx: the file is not an ONNX model.
        MissingExtra: LiteRT or ONNX Runtime is not installed.
        OSError: a file cannot be read.
        TypeError: an argument has the wrong type.
    """
    check_host(host)
    check_progress(progress)
    check_arguments(signature, bisect, seed, runs)
    range_fraction = None if isinstance(tolerance, Tolerance) else tolerance
    options = VerifyOptions(
        ranges=positions_as_text(ranges or {}), seed=seed, runs=runs, tolerance=range_fraction, partial=partial
    )
    requested_shapes = check_shapes(shapes)
    start_stage = progress or (lambda stage: None)
    start_stage("loading both models")
    check_order(tflite, onnx)
    data = read_tflite(tflite)
    model = onnx_source(onnx)
    origin_note = check_origin(data, name_source(tflite), model)
    pair = ModelPair(data, model, signature, tolerance, start_stage)
    lengths = read_lengths(props(pair.session.proto.metadata_props))
    request = _Request(inputs, seed, runs, requested_shapes, options.ranges, tolerance is None, bisect, host)
    if not lengths or signature is not None or inputs is not None or shapes is not None:
        verification = _verify_entry(pair, request, lengths.get(pair.trial.signature or ""), partial, start_stage)
        return _adapt_texts(_add_note(verification, origin_note))
    verifications, shared_by_signature = {}, _find_shared_items(data, host)
    for key, length in lengths.items():
        signature_pair = pair.for_signature(key, tolerance, start_stage, shared_by_signature.get(key))
        verifications[key] = _verify_entry(signature_pair, request, length, partial, start_stage)
    return _adapt_texts(_add_note(merge_verifications(verifications), origin_note))


def _add_note(verification: Verification, note: str) -> Verification:
    """Return the verification with one more note, unless the note is empty."""
    return replace(verification, notes=(*verification.notes, note)) if note else verification


def _adapt_texts(verification: Verification) -> Verification:
    """Return the verification with command options replaced by Python keywords."""
    return replace(
        verification,
        notes=adapt_texts(verification.notes),
        reasons=adapt_texts(verification.reasons),
        end_to_end=adapt_texts(verification.end_to_end),
    )


def _find_shared_items(data: bytes, host: Host | None) -> Mapping[str, SharedItems]:
    """Return signature key -> tensors and operators shared with the joined model.

    Return an empty mapping if the signatures cannot be joined.
    """
    host = host or Host()
    try:
        return join_signatures(read(data), host, host.targets.get("onnxruntime")).shared
    except (Misaligned, ConversionError):
        return {}


def _verify_entry(
    pair: ModelPair, request: _Request, length: int | None, partial: bool, progress: Progress
) -> Verification:
    """Compare one signature.

    ``length``: its number of tokens, for a model that joins several signatures.
    """
    entry = pair.entry
    tensor_names = [tensor.name for tensor in entry.inputs]
    ranges = resolve_keys(request.ranges, entry.input_names, tensor_names, "--range")
    shapes = None if request.shapes is None else resolve_keys(request.shapes, entry.input_names, tensor_names, "shapes")
    check_fit(shapes or {}, pair)
    inputs = causal_inputs(pair.session, request.runs, length) if request.inputs is None else request.inputs
    request = request._replace(inputs=inputs, shapes=shapes, ranges=ranges)
    with record_crashes() as crashes:
        try:
            verification = _run_and_compare(pair, request, progress)
        except InconclusiveError as error:
            verification = Verification((), (), 0, reasons=(error.message,))
    reasons = (*pair.reasons, *(reason for reason in verification.reasons if reason not in pair.reasons))
    notes = (*verification.notes, *dict.fromkeys(crashes))
    return replace(verification, notes=notes, reasons=reasons, partial=partial)


class _Request(NamedTuple):
    """Arguments of ``verify``.

    ``has_default_tolerance``: the caller gave no tolerance, so that operators alone determine the verdict.
    """

    inputs: InputData
    seed: int
    runs: int
    shapes: Mapping[str, Sequence[int]] | None
    ranges: Mapping[str, tuple[float, float]]
    has_default_tolerance: bool
    bisect: str | os.PathLike[str] | None
    host: Host | None


def _run_and_compare(pair: ModelPair, request: _Request, progress: Progress) -> Verification:
    """Run both models, compare outputs and submodels, and return the verdict."""
    notes = pair.assign_substitutes(request.host or Host)
    is_random = next(iter(random_nodes(pair.session.proto.graph)), None) is not None
    runs = affordable_runs(pair.entry, request.runs)
    input_runs, expected = pair.reference_outputs(request.inputs, request.seed, runs, request.shapes, request.ranges)
    notes = (*notes, *pair.notes, *describe_rounding(pair.entry, request.inputs))
    if not is_random and request.inputs is None and not request.shapes:
        resized_note = pair.add_resized_run(input_runs, expected, request.seed)
        notes = (resized_note, *notes) if resized_note else notes
    progress("submodels on the same inputs")
    try:
        decision = decide(pair, input_runs, is_random=is_random, has_default_tolerance=request.has_default_tolerance)
    except ConversionError as error:
        if isinstance(error, WrongShape) and not pair.has_digest:
            fact = f"value {error.value!r} of the ONNX model has a different shape from its tensor in the TFLite file"
            raise mismatch_without_digest(fact) from error
        if is_random:
            raise InconclusiveError(f"{RANDOM_NUMBERS_REASON}, and {error.message}") from error
        decision = Decision(error=error.message)
    _add_builtin_outputs(pair, decision, input_runs, expected)
    outputs = () if is_random else _compare_outputs(pair, input_runs, expected)
    is_fusion_error = is_caused_by_fusion(pair, outputs, input_runs, expected)
    notes = (FUSION_NOTE, *notes) if is_fusion_error else notes
    verification = conclude(
        pair,
        outputs,
        decision,
        accept_errors=not is_fusion_error,
        has_default_tolerance=request.has_default_tolerance,
    )
    differing_outputs = tuple(comparison for comparison in pair.compare_batch() if not comparison.ok)
    verification = replace(verification, comparisons=(*verification.comparisons, *differing_outputs))
    if depends_on_processor(pair.session.proto):
        notes = (*notes, _PROCESSOR_NOTE)
    if verification.verdict == "differs":
        causes = _explain_difference(
            pair, request, decision, input_runs, expected, differs_only_by_tolerance=verification.only_tolerance
        )
        notes = (*causes, *notes)
    agrees, verdict_comparisons = verification.verdict == "agrees", verification.comparisons
    error_lines = (
        explain_errors(pair, outputs, verdict_comparisons, expected, has_data=request.inputs is not None)
        if agrees
        else ()
    )
    return replace(
        verification,
        tensors=compared_tensors(pair, decision),
        end_to_end=error_lines,
        end_to_end_error=describe_error(pair, outputs, verdict_comparisons) if agrees else "",
        processor=describe_processor(pair.session.proto.graph),
        kernels=tuple(dict.fromkeys([*expected, *(["builtin"] if verification.operators else [])])),
        runs=len(input_runs) + (pair.batch is not None),
        pack_kernel_operators=len(pair.trial.substitutes.pack_kernels),
        notes=(*verification.notes, *notes),
    )


def _explain_difference(
    pair: ModelPair,
    request: _Request,
    decision: Decision,
    input_runs: Sequence[Run],
    expected: Mapping[str, Sequence[Run]],
    *,
    differs_only_by_tolerance: bool,
) -> tuple[str, ...]:
    """Return notes on the causes of a difference, and on the written submodels.

    ``differs_only_by_tolerance``: the models differ only because of the user's tolerance; another note says so.
    """
    known_causes = () if differs_only_by_tolerance else explain_requantization(pair)
    saved_files: tuple[str, ...] = ()
    if request.bisect is not None and decision.differing:
        saved_files = save_submodels(
            pair, decision, Path(request.bisect), has_known_cause=differs_only_by_tolerance or bool(known_causes)
        )
    causes = () if differs_only_by_tolerance else known_causes or processor_hints(pair, input_runs, expected)
    differing = {index for finding in decision.differing for index in finding.submodel.onnx_operators}
    fusions = describe_pack_fusions(pair.session.proto, differing, lambda: (request.host or Host()).fusions())
    return (*fusions, *causes, *saved_files)


def _add_builtin_outputs(
    pair: ModelPair, decision: Decision, input_runs: Sequence[Run], expected: dict[str, list[Run]]
) -> None:
    """Add the outputs of LiteRT's builtin kernels to ``expected``, in place.

    These kernels may round differently from XNNPACK. The outputs are reused from the comparison of submodels if
    possible.
    """
    if len(decision.outputs) == len(input_runs):
        expected["builtin"] = decision.outputs
    elif decision.error and "builtin" not in expected:
        with suppress(LiteRTError):
            outputs = pair.trial.litert_outputs(
                "builtin", input_runs, resets_states=pair.resets_states, time_limit=TIME_LIMIT
            )
            expected["builtin"] = [*outputs]


def _compare_outputs(
    pair: ModelPair, input_runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]
) -> tuple[Comparison, ...]:
    """Compare the outputs end to end; add a reason to the pair if all of them are NaN."""
    actual = pair.trial.onnx_outputs(pair.session, input_runs)
    if _all_nan(actual) and any(array.size for arrays in input_runs for array in arrays):
        pair.reasons = (*pair.reasons, _NAN_REASON)
    return pair.trial.compare_outputs(actual, expected)


def _all_nan(actual: Sequence[Run]) -> bool:
    """True if there are output elements, and all of them are NaN."""
    arrays = [array for run in actual for array in run if array.size]
    return bool(arrays) and all(array.dtype.kind == "f" and bool(np.isnan(array).all()) for array in arrays)
