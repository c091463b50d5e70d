"""Attribution of a failed conversion, from the error and earlier results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.consistency import lacks_rank
from onnx_tflite_plugin.diagnosis.packs import attribute_to_packs, pack_declarations
from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    AttributedProblem,
    ConversionError,
    InternalError,
    InvalidModel,
    Problem,
    TooLarge,
    UnsupportedOperator,
)
from onnx_tflite_plugin.guard import BUILTIN, Failed, debug, format_error_location
from onnx_tflite_plugin.normalize.stage import Normalized, contradictory_sizes_error
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source import Member, Section
from onnx_tflite_plugin.source.model import Model

_HINT = "convert the original model again"


@dataclass
class Records:
    """Results of a conversion so far.

    ``file``: the path or content of the model; None if the caller passed a model that was already read. ``normalized``
    and ``bound``: results of the stages of that name; None until the stage ends.
    """

    options: ConvertOptions
    model: Model
    file: str | Path | bytes | Section | Member | None = None
    normalized: Normalized | None = None
    bound: BoundModel | None = None


def attribute_failure(
    error: Exception, records: Records, source: str | Path | bytes | Section | Member | None = None
) -> ConversionError:
    """Return the error to raise, which names the cause of the failure.

    The cause is the file, an option, an op pack or the converter. If the cause seems to be the converter,
    ``source`` is run in LiteRT to check the file; None skips this check.
    """
    if not isinstance(error, ConversionError):
        error = _to_conversion_error(error, records)
    failure = _attribute_to_file(error, records) or error
    if source is None:
        return failure
    # Imported here, because it imports verify, which no successful conversion needs.
    from onnx_tflite_plugin.diagnosis.litert import check_with_litert

    return check_with_litert(failure, source)


def _to_conversion_error(error: Exception, records: Records) -> ConversionError:
    """Return the error for an exception that no stage raises deliberately."""
    if isinstance(error, Refusal):
        return TooLarge("; ".join(filter(None, (str(error), error.hint))))
    if isinstance(error, RecursionError):
        return TooLarge("the model is nested too deeply: it exceeds Python's recursion limit")
    if isinstance(error, MemoryError):
        return TooLarge("out of memory: the model needs more than this machine or its limits allow")
    debug(error)
    location = format_error_location(error)
    declarations = pack_declarations(records.bound) if records.bound is not None else {}
    if declarations and not isinstance(error, Failed):
        return attribute_to_packs(location, declarations)
    problem = AttributedProblem("the model", location, Failed(BUILTIN, location).hint, to_converter=True)
    return InternalError("the conversion failed:", [problem])


def _attribute_to_file(error: ConversionError, records: Records) -> ConversionError | None:
    """Return an error if the file or the requested sizes are the cause, else None."""
    model, options = records.model, records.options
    unshaped_tensors = [tensor for tensor in model.main.tensors if lacks_rank(tensor)]
    if unshaped_tensors and any(
        isinstance(problem, AttributedProblem) and problem.to_converter for problem in error.problems
    ):
        reason = "the file stores no shape for the tensor, and the operators do not determine one"
        return InvalidModel(CONTRADICTION, [Problem(f"tensor {tensor}", reason, _HINT) for tensor in unshaped_tensors])
    changes_shapes = bool(options.input_shape or options.dynamic_batch)
    if changes_shapes and isinstance(error, InvalidModel) and records.normalized is not None:
        return contradictory_sizes_error(error, options)
    if unshaped_tensors and not options.input_shape and type(error) in (InvalidModel, UnsupportedOperator):
        return _add_unknown_inputs(error, model)
    return None


def _add_unknown_inputs(error: ConversionError, model: Model) -> ConversionError | None:
    """Add a problem for each graph input with the stored shape ``[]``.

    Return None if there is no such input.
    """
    input_problems = [
        Problem(
            f"graph input {tensor}",
            "the file stores the shape [], which also stands for an unknown shape",
            f"if the input is not a scalar, set its shape with --input-shape {tensor.name or tensor.index}=...",
        )
        for tensor in model.main.inputs
        if not tensor.shape
    ]
    return type(error)(error.message, [*error.problems, *input_problems]) if input_problems else None
