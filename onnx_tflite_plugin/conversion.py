"""From a .tflite file to an ONNX model: the stages in their order."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnx_tflite_plugin import files
from onnx_tflite_plugin.api.budget import budget
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.consistency import doubtful, lacks_rank, shapeless, stale, with_unknown_inputs
from onnx_tflite_plugin.errors import (
    Blamed,
    ConversionError,
    InternalError,
    InvalidModel,
    Problem,
    StaleDtype,
    TooLarge,
    UnsupportedOperator,
)
from onnx_tflite_plugin.graph.opening import check_opens
from onnx_tflite_plugin.graph.serialized import to_proto
from onnx_tflite_plugin.graph.validity import LARGEST_PROTO, check_valid, weight_bytes
from onnx_tflite_plugin.guard import BUILTIN, Failed, debug, raised_at
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import ConvertKeywords, ConvertOptions, VerifyOptions, document_keywords, merge
from onnx_tflite_plugin.progress import LOG, Progress, Stages
from onnx_tflite_plugin.report import Report
from onnx_tflite_plugin.shapes.contents import complete_lists
from onnx_tflite_plugin.source import Section, check_source, read
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.target_options import target_of
from onnx_tflite_plugin.targets import Target

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.verify import Verification


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted model and how it came about."""

    model: ir.Model
    report: Report
    source: Model = field(repr=False)
    verification: Verification | None = None

    def __repr__(self) -> str:
        return f"<Conversion: {self.report.line}>"

    def _repr_html_(self) -> str:
        from onnx_tflite_plugin.telling.notebook import as_html

        report = self.report
        return as_html(report.line, report.inputs, report.outputs, self.snippet("model.onnx"), report.warnings)

    def snippet(self, path: str) -> str:
        """The lines of Python that run the model, once it is saved at ``path``."""
        from onnx_tflite_plugin.telling.snippet import snippet

        report = self.report
        return snippet(path, report.inputs, states=bool(report.states), domains=report.domains)

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as protobuf. Raises EncodeError above 2 GiB: use :meth:`save`."""
        return to_proto(self.model)

    def save(self, path: str | Path) -> list[Path]:
        """Write the model, whole or not at all; weights beyond 2 GB go to ``<path>.<digest>.data``. Returns the files written.

        Raises OSError where the folder is missing or cannot be written to.
        """
        path = files.place_of(path)
        if weight_bytes(self.model) > LARGEST_PROTO:
            return files.write_external(self.model, path)
        files.write_model(path, self.proto.SerializeToString())
        return [path]


@document_keywords
def convert(
    source: str | os.PathLike[str] | bytes | Section,
    options: ConvertOptions | None = None,
    *,
    host: Host | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[ConvertKeywords],
) -> Conversion:
    """Convert a TFLite model, given by path or content, to ONNX.

    Args:
        source: a path, or the bytes of a .tflite file.
        options: the options of the conversion; each may be given by keyword instead, which takes precedence.
        host: the op packs themselves, where they are not those that are installed.
        progress: called with the name of each stage as it begins.

    Raises:
        ConversionError: with everything that stands in the way (``error.problems``).
        TypeError: an argument of another type than it takes.
        OSError: the file cannot be read.
    """
    chosen = merge(options, keywords)
    check_source(source)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is called with the name of each stage; {type(progress).__name__} cannot be called")
    early_host = host or _host(chosen)
    runtime = target_of(chosen, early_host)
    stages = Stages(progress)
    stages("reading")
    content = _owned(source)
    try:
        conversion = _convert(read(content), host, early_host, chosen, runtime, stages)
    except ConversionError as error:
        from onnx_tflite_plugin.verify.diagnosis import diagnosed

        diagnosis = diagnosed(error, content)
        try:
            if diagnosis is error:
                raise
            raise diagnosis from error
        finally:
            del diagnosis  # its traceback refers to this frame, which holds the content
    if chosen.verify:
        conversion = _verified(conversion, content, host, chosen, stages)
    stages.done()
    for text in conversion.report.warnings:
        LOG.warning("%s", text)
    return conversion


def _owned(source: str | os.PathLike[str] | bytes | Section) -> str | bytes | Section:
    """Return the source by path or as bytes that nobody changes."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return source if isinstance(source, Section) else bytes(source)


def convert_model(
    model: Model, host: Host | None = None, options: ConvertOptions | None = None, stages: Progress | None = None
) -> Conversion:
    """Convert a model that has been read; as :func:`convert`."""
    options, stages = options or ConvertOptions(), stages or Stages()
    early_host = host or _host(options)
    return _convert(model, host, early_host, options, target_of(options, early_host), stages)


def _convert(
    model: Model, host: Host | None, early_host: Host, options: ConvertOptions, target: Target, stages: Progress
) -> Conversion:
    """Convert a model. ``early_host``: the one that is asked before the pipeline, which makes its own unless ``host`` is given."""
    with _told_as_conversion_errors(), budget():
        model = complete_lists(model, early_host, target)
        if any(map(lacks_rank, model.main.outputs)):
            model = _completed(model, early_host)
        if doubtful(model):
            model = _rederived(model, host, options, target, insist=True) or model
        retyped: set[tuple[int, int]] = set()
        while True:
            try:
                return _converted(model, host, options, target, stages)
            except StaleDtype as error:
                if retyped.issuperset(error.dtypes):
                    raise
                retyped |= error.dtypes.keys()
                model = _retyped(model, error)
            except (ConversionError, Failed) as error:
                current = _rederived(model, host, options, target) if stale(error, model) else None
                if current is not None:
                    return _converted(current, host, options, target, stages)
                if (each := unfused(model, host, options, target, stages, error)) is not None:
                    return each
                fault: ConversionError | None = shapeless(error, model)
                fault = fault or asked_for(error, model, host, options, target)
                if fault is None and isinstance(error, ConversionError) and not options.input_shape:
                    fault = with_unknown_inputs(error, model)
                if fault is None:
                    raise
                raise fault from error


@contextmanager
def _told_as_conversion_errors() -> Iterator[None]:
    """Whatever ends a conversion names what stood in the way."""
    try:
        yield
    except ConversionError:
        raise
    except Refused as refusal:
        raise TooLarge(str(refusal)) from refusal
    except RecursionError as error:
        raise TooLarge("the model is nested too deeply: one thing in another more often than Python allows") from error
    except MemoryError as error:
        raise TooLarge("out of memory: the model needs more than this machine or its limits allow") from error
    except Exception as error:
        debug(error)
        place = raised_at(error)
        problem = Blamed("the model", place, Failed(BUILTIN, place).hint, ours=True)
        raise InternalError("the conversion failed:", [problem]) from error


def _retyped(model: Model, error: StaleDtype) -> Model:
    from onnx_tflite_plugin.shapes.changes import retyped

    return retyped(model, error.dtypes)


def _completed(model: Model, host: Host) -> Model:
    from onnx_tflite_plugin.shapes.ranks import completed

    return completed(model, host)


def _rederived(
    model: Model, host: Host | None, options: ConvertOptions, target: Target, *, insist: bool = False
) -> Model | None:
    """The model in the sizes that follow from its inputs, ``None`` where they are those that are stored."""
    from onnx_tflite_plugin.shapes.resizing import rederived

    return rederived(model, host or _host(options), target, insist=insist)


def asked_for(
    error: ConversionError | Failed, model: Model, host: Host | None, options: ConvertOptions, target: Target
) -> UnsupportedOperator | None:
    """What to say of a file that contradicts itself in the sizes that are asked for, and not in its own; else ``None``."""
    if not isinstance(error, InvalidModel) or not (options.input_shape or options.dynamic_batch):
        return None
    try:
        _converted(
            model, host, replace(options, input_shape={}, dynamic_batch=False, check="standard"), target, Stages()
        )
    except (ConversionError, Failed):
        return None
    flag = "--input-shape" if options.input_shape else "--dynamic-batch"
    problems = [Problem(problem.where, problem.reason) for problem in error.problems]
    return UnsupportedOperator(f"sizes that do not go together under {flag}:", problems)


def unfused(
    model: Model,
    host: Host | None,
    options: ConvertOptions,
    target: Target,
    stages: Progress,
    error: ConversionError | Failed,
) -> Conversion | None:
    """Every operator on its own, where that converts and fusions do not, which must end no conversion; ``None`` where nothing does."""
    fusions = error.fusions if isinstance(error, ConversionError) else ()
    if not fusions:
        return None
    try:
        conversion = _converted(model, host, options, target, stages, fuses=False)
    except (ConversionError, Failed):
        return None
    reason = "; ".join(map(str, error.problems)) if isinstance(error, ConversionError) else str(error)
    warning = f"no operators are fused, for with {', '.join(fusions)} the conversion fails: {reason}; please report it"
    report = replace(conversion.report, warnings=(*conversion.report.warnings, warning))
    return replace(conversion, report=report)


def _converted(
    model: Model, host: Host | None, options: ConvertOptions, target: Target, stages: Progress, *, fuses: bool = True
) -> Conversion:
    from onnx_tflite_plugin.pipeline import Pipeline

    pipeline = Pipeline(host or _host(options), options, target, stages, fuses=fuses)
    try:
        with _uncollected():
            conversion = Conversion(*pipeline.run(model))
        stages("checking")
        if weight_bytes(conversion.model) <= LARGEST_PROTO:
            check_valid(conversion.model, conversion.proto)
            if target.opens:
                check_opens(conversion.model, conversion.proto, options.check, (target.opsets[0], target.opsets[2]))
    except ConversionError as error:
        error.fusions = pipeline.applied
        raise
    return conversion


@contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing that a conversion makes is free before it ends; looking through all of it again and again took a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _host(options: ConvertOptions) -> Host:
    return Host(
        prefer=options.prefer, block=options.block, packs=options.packs, options=asdict(options),
        keep_unknown=options.keep_unknown,
    )  # fmt: skip


# --- the end: verification --------------------------------------------------------------------


def _verified(
    conversion: Conversion, source: str | bytes | Section, host: Host | None, options: ConvertOptions, stages: Progress
) -> Conversion:
    from onnx_tflite_plugin.errors import VerificationError
    from onnx_tflite_plugin.verify import verify

    chosen = options.verify if isinstance(options.verify, VerifyOptions) else VerifyOptions()
    data = Path(source) if isinstance(source, str) else source
    host = host or Host(prefer=options.prefer, block=options.block, packs=options.packs)
    given = {"signature": options.signature, "progress": stages, "host": host, **vars(chosen)}
    large = weight_bytes(conversion.model) > LARGEST_PROTO
    if large:  # runs from a file only
        with tempfile.TemporaryDirectory() as folder:
            verification = verify(data, conversion.save(Path(folder) / "model.onnx")[0], **given)
    else:
        verification = verify(data, conversion.proto, **given)
    if not verification.ok:
        raise VerificationError(f"the converted model does not agree with LiteRT:\n{verification.text}")
    verified = replace(conversion, verification=verification)
    if not large:
        vars(verified)["proto"] = conversion.proto  # the same model: what was verified is what is saved
    return verified
