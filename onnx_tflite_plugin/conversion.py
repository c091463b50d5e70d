"""Conversion of a .tflite file to an ONNX model."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Unpack

from onnx_tflite_plugin import files
from onnx_tflite_plugin.api.budget import budget
from onnx_tflite_plugin.checked import describe, with_checked_keywords
from onnx_tflite_plugin.diagnosis.attribution import Records, attribute_failure
from onnx_tflite_plugin.errors import ConversionError, SignaturesDiffer
from onnx_tflite_plugin.garbage import pause_garbage_collection
from onnx_tflite_plugin.graph.load_check import check_opens, should_open
from onnx_tflite_plugin.graph.model_metadata import write_digest
from onnx_tflite_plugin.graph.serialized import to_proto
from onnx_tflite_plugin.graph.streaming import STREAMED_BYTES, proto_to_check, write_streamed
from onnx_tflite_plugin.graph.validity import MAX_PROTO_BYTES, check_valid, weight_bytes
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host, check_host
from onnx_tflite_plugin.keywords import adapt_texts, document_keywords, name_keywords
from onnx_tflite_plugin.normalize.stage import join_all, normalize
from onnx_tflite_plugin.options import (
    ALL,
    ByInput,
    ConvertKeywords,
    ConvertOptions,
    VerifyOptions,
    merge,
    misplaced_keyword_remedies,
)
from onnx_tflite_plugin.progress import LOG, Progress, Stages, check_progress
from onnx_tflite_plugin.report import Report, describe_overrides
from onnx_tflite_plugin.source import Member, Section, check_source, read
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.target_options import apply_target_defaults, target_of
from onnx_tflite_plugin.targets import Target

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.verify import Tolerance, Verification
    from onnx_tflite_plugin.verify.inputs.user_data import InputData


_DIFFERENCE_ADVICE = (
    "to find the cause, convert with --optimize none: if the models then agree, a rewrite rule is the cause",
    "otherwise convert without --verify, and run verify with --bisect DIR: it writes the submodels that differ, for a bug report",
)
WITHOUT_FUSIONS = "operators were converted without fusions"


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted model with its report.

    ``source``: the submodel that was converted. ``file``: the path or content of the TFLite model; None if the model
    was not read from a file. ``verification_seconds``: the duration of the verification. ``verification_stages``: the
    seconds of each of its stages.
    """

    model: ir.Model
    report: Report
    source: Model = field(repr=False)
    verification: Verification | None = None
    file: str | Path | bytes | Section | Member | None = field(default=None, repr=False)
    verification_seconds: float = field(default=0.0, repr=False)
    verification_stages: Mapping[str, float] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        hints = "; see report.hints" if self.report.hints else ""
        return f"<Conversion: {self.report.line}{hints}>"

    def _repr_html_(self) -> str:
        from onnx_tflite_plugin.presentation.notebook import as_html

        report = self.report
        notes = [*(f"warning: {text}" for text in report.warnings), *(f"hint: {text}" for text in report.hints)]
        return as_html(report.line, report.inputs, report.outputs, self.snippet("model.onnx"), notes)

    @with_checked_keywords("verify", (), remedies=misplaced_keyword_remedies("verify", ()))
    def verify(
        self,
        *misplaced: object,
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
        """Compare the model with LiteRT on the file that it was converted from.

        Keywords are as in ``otp.verify``. Raises VerificationError if a model does not run, MissingExtra without LiteRT
        or ONNX Runtime, ValueError if the conversion has no file.
        """
        from onnx_tflite_plugin.verify import verify

        if misplaced:
            raise TypeError(
                f"Conversion.verify takes only keywords, not {describe(misplaced[0])}: it compares this conversion with the "
                "file that it was converted from; onnx_tflite_plugin.verify(TFLITE, ONNX) compares two given models"
            )
        if self.file is None:
            raise ValueError("the model was not read from a file, so LiteRT cannot run it; pass the file to otp.verify")
        return verify(
            self.file, self.proto, inputs=inputs, seed=seed, runs=runs, tolerance=tolerance, ranges=ranges,
            signature=signature, shapes=shapes, bisect=bisect, partial=partial, host=host, progress=progress,
        )  # fmt: skip

    def snippet(self, path: str | os.PathLike[str]) -> str:
        """Return Python code that runs the model saved at ``path``."""
        from onnx_tflite_plugin.presentation.snippet import snippet

        report = self.report
        return snippet(os.fspath(path), report.inputs, states=bool(report.states), domains=report.domains)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """Return the model as protobuf. Raises EncodeError above 2 GiB: use ``save``."""
        return to_proto(self.model)

    def save(self, path: str | Path) -> list[Path]:
        """Write the model atomically, and return the written files.

        A model with more than 2 GB of weights has them in a second file, ``<path>.<digest>.data``. Raises OSError if
        the folder does not exist or is not writable, and ValueError for the suffix of another format.
        """
        path = files.resolve_output_path(path)
        if problem := files.describe_wrong_suffix(path):
            raise ValueError(problem)
        if weight_bytes(self.model) > MAX_PROTO_BYTES:
            return files.write_external(self.model, path)
        files.write_model(path, self.write)
        return [path]

    def write(self, file: BinaryIO) -> None:
        """Write the serialized model to a binary file.

        Large weights are not copied. Raises ValueError above 2 GiB, TypeError for anything but a binary file.
        """
        if not hasattr(file, "write") or isinstance(file, io.TextIOBase):
            raise TypeError(f"file is {describe(file)}; give a file opened in binary mode ('wb'), or call save(path)")
        output = files.CompleteWriter(file)
        if "proto" in vars(self) or weight_bytes(self.model) < STREAMED_BYTES:
            output.write(self.proto.SerializeToString())
        else:
            write_streamed(self.model, output)


@document_keywords
@name_keywords()
def convert(
    source: str | os.PathLike[str] | bytes | Section | Member,
    options: ConvertOptions | None = None,
    *,
    host: Host | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[ConvertKeywords],
) -> Conversion:
    """Convert a TFLite model, given by path or content, to ONNX.

    Args:
        source: a path, the bytes of a .tflite file, or a model of ``bundle_parts``. ``"BUNDLE#PART"`` names a model of a
            bundle that holds several.
        options: the options of the conversion. Each option may also be a keyword, which takes precedence.
        host: the op packs to use instead of the installed ones.
        progress: called with the name of each stage when it begins.

    Raises:
        ConversionError: with all problems found (``error.problems``).
        TypeError: an argument has the wrong type.
        OSError: the file cannot be read.
    """
    merged = merge(options, keywords)
    check_source(source)
    check_host(host)
    check_progress(progress)
    active_host = host or _create_host(merged)
    merged = apply_target_defaults(merged, active_host)
    target = target_of(merged, active_host)
    stages = Stages(progress)
    stages("reading")
    content = _immutable_source(source)
    conversion = _convert(read(content), active_host, merged, target, stages, content)
    report = conversion.report
    for name in ("warnings", "hints"):  # in place, because a copy would lose the cached protobuf
        object.__setattr__(report, name, adapt_texts(getattr(report, name)))
    if merged.verify:
        conversion = _verify_conversion(conversion, content, host, merged, stages)
    stages.finish()
    for text in conversion.report.warnings:
        LOG.warning("%s", text)
    for text in conversion.report.hints:
        LOG.info("%s", text)
    return conversion


def _immutable_source(source: str | os.PathLike[str] | bytes | Section | Member) -> str | bytes | Section | Member:
    """Return the source as a path, a part of a bundle, or a copy of its bytes."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return source if isinstance(source, Section | Member) else bytes(source)


def describe_signature_difference(
    source: str | os.PathLike[str] | bytes | Section | Member,
    options: ConvertOptions | None = None,
    **keywords: Unpack[ConvertKeywords],
) -> str:
    """Return why the signatures cannot share one ONNX model; empty if they can.

    Options are as for ``convert``.
    """
    merged = merge(options, {**keywords, "signature": ALL})
    check_source(source)
    host = _create_host(merged)
    merged = apply_target_defaults(merged, host)
    try:
        with budget(), pause_garbage_collection():
            join_all(read(_immutable_source(source)), merged, host, target_of(merged, host))
    except SignaturesDiffer as error:
        return error.reason
    return ""


def convert_model(
    model: Model, host: Host | None = None, options: ConvertOptions | None = None, stages: Progress | None = None
) -> Conversion:
    """Convert a model that was already read; otherwise like :func:`convert`."""
    options, stages = options or ConvertOptions(), stages or Stages()
    host = host or _create_host(options)
    options = apply_target_defaults(options, host)
    return _convert(model, host, options, target_of(options, host), stages, None)


def _convert(
    model: Model,
    host: Host,
    options: ConvertOptions,
    target: Target,
    stages: Progress,
    source: str | bytes | Section | Member | None,
) -> Conversion:
    """Convert a model. Raises ConversionError with the attributed cause.

    ``source``: the file, which LiteRT may run to find the cause.
    """
    records = Records(options, model, source)
    try:
        with budget(), pause_garbage_collection():
            stages("binding operators to handlers")
            records.normalized = normalize(model, host, options, target)
            return _run_with_fallback(records, host, target, stages)
    except Exception as error:
        failure = attribute_failure(error, records, source)
        try:
            if failure is error:
                raise
            raise failure from error
        finally:
            del failure  # breaks the reference cycle through its traceback, which keeps the content in memory


def _run_with_fallback(records: Records, host: Host, target: Target, stages: Progress) -> Conversion:
    """Run the pipeline, and repeat it without fusions if it fails with fusions.

    A fusion must not end a conversion that succeeds without it. With ``on_fusion_error="raise"``, the pipeline is not repeated.
    """
    options = records.options
    try:
        return _run(records, host, target, stages)
    except ConversionError as error:
        if options.on_fusion_error == "raise" or not error.fusions:
            raise
        try:
            conversion = _run(records, host, target, stages, fuses=False)
        except (ConversionError, Failed):
            raise error from None
        reason = "; ".join(map(str, error.problems)) or error.message
        names = ", ".join(error.fusions)
        warning = f"{WITHOUT_FUSIONS}, because the conversion fails with {names}: {reason}. Please report it."
        report = replace(conversion.report, warnings=(*conversion.report.warnings, warning))
        return replace(conversion, report=report)


def _run(records: Records, host: Host, target: Target, stages: Progress, *, fuses: bool = True) -> Conversion:
    """Run the stages after normalization, and check the result."""
    from onnx_tflite_plugin.pipeline import Pipeline

    assert records.normalized is not None
    options = records.options
    pipeline = Pipeline(host, options, target, stages, fuses=fuses)
    try:
        conversion = Conversion(*pipeline.run(records.normalized), file=records.file)
        if records.file is not None and records.model.content is not None:
            write_digest(conversion.model.metadata_props, records.model.content.digest())
        stages("checking")
        _check(conversion, options, target)
    except ConversionError as error:
        error.fusions = pipeline.applied
        raise
    finally:
        records.bound = pipeline.bound
    return conversion


def _check(conversion: Conversion, options: ConvertOptions, target: Target) -> None:
    """Raise an error if the model is invalid, or if ONNX Runtime does not open it.

    The model is opened only if its target is a version of ONNX Runtime and the option ``check`` requests it.
    """
    model, is_large = conversion.model, weight_bytes(conversion.model) >= STREAMED_BYTES
    check_valid(model, proto_to_check(model) if is_large else conversion.proto)
    if target.opens_in_onnxruntime and should_open(model, options.check):
        opsets = target.opsets[0], target.opsets[2]
        if not is_large:
            check_opens(model, conversion.proto.SerializeToString(), opsets)
            return
        with tempfile.TemporaryDirectory() as folder:  # external weights are mapped, not copied
            check_opens(model, str(files.write_external(model, Path(folder) / "model.onnx")[0]), opsets)


def _create_host(options: ConvertOptions) -> Host:
    return Host(
        prefer=options.prefer, block=options.block, packs=options.packs, options=asdict(options),
        keep_unknown=options.keep_unknown,
    )  # fmt: skip


# --- verification -----------------------------------------------------------------------------


def _verify_conversion(
    conversion: Conversion,
    source: str | bytes | Section | Member,
    host: Host | None,
    options: ConvertOptions,
    stages: Stages,
) -> Conversion:
    """Return the conversion with its verification. Raises VerificationError."""
    from onnx_tflite_plugin.errors import MismatchedModels, VerificationError
    from onnx_tflite_plugin.verify import verify

    verify_options = options.verify if isinstance(options.verify, VerifyOptions) else VerifyOptions()
    model_source = Path(source) if isinstance(source, str) else source
    host = host or Host(prefer=options.prefer, block=options.block, packs=options.packs)
    signature = None if conversion.report.signature_lengths else options.signature
    arguments = {"signature": signature, "progress": stages, "host": host, **vars(verify_options)}
    is_large = weight_bytes(conversion.model) > MAX_PROTO_BYTES
    stages.finish()
    conversion_stages = {*stages.seconds}
    start = time.perf_counter()
    try:
        if is_large:  # ONNX Runtime loads a model of this size only from a file
            with tempfile.TemporaryDirectory() as folder:
                verification = verify(model_source, conversion.save(Path(folder) / "model.onnx")[0], **arguments)
        else:
            verification = verify(model_source, conversion.proto, **arguments)
    except MismatchedModels as error:  # not a mistake of the caller: the conversion is wrong
        raise VerificationError(f"the converted model does not agree with LiteRT: {error.message}") from error
    if verification.verdict == "differs":
        overrides = [f"  {line}" for line in describe_overrides(conversion.report)]
        advice = [] if verification.has_known_cause else [f"  {line}" for line in _DIFFERENCE_ADVICE]
        raise VerificationError(
            "\n".join(["the converted model does not agree with LiteRT:", verification.text, *overrides, *advice])
        )
    seconds = time.perf_counter() - start
    stages.finish()
    verified_conversion = replace(
        conversion,
        verification=verification,
        verification_seconds=seconds,
        verification_stages={name: spent for name, spent in stages.seconds.items() if name not in conversion_stages},
    )
    if not is_large:
        vars(verified_conversion)["proto"] = conversion.proto  # save the same protobuf that was verified
    return verified_conversion
