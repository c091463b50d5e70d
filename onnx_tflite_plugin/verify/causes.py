"""Causes of an end-to-end error that submodels do not show: ONNX Runtime's fusions, or the processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly

if TYPE_CHECKING:
    from onnx_tflite_plugin.verify.model_pair import ModelPair

_PRECISE = {"session.x64quantprecision": "1"}  # exact on x86 before VNNI, too


def is_caused_by_fusion(
    pair: ModelPair, outputs: Sequence[Comparison], runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]
) -> bool:
    """True if failing outputs agree without ONNX Runtime's graph optimizations.

    Submodels do not show such errors.
    """
    if not any(not output.ok and output.unit != "value" for output in outputs):
        return False
    return _agrees(pair, runs, expected, optimizes=False)


def hints(pair: ModelPair, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]]) -> tuple[str, ...]:
    """Return a hint if the processor is the cause of an error.

    Causes are a fault of ONNX Runtime on this processor, or saturating 16-bit sums of 8-bit products.
    """
    if fault := describe_int8_fault(import_optional("onnxruntime")):
        return (fault,)
    if multiplies_exactly():
        return ()
    if not _agrees(pair, runs, expected, config=_PRECISE):
        return ()
    reason = "this processor saturates int8 products of the model (with session.x64quantprecision=1 the outputs agree)"
    return (f"{reason}; convert with --weights-dtype auto or uint8",)


def _agrees(pair: ModelPair, runs: Sequence[Run], expected: Mapping[str, Sequence[Run]], **options: Any) -> bool:
    """True if ONNX Runtime computes outputs within their tolerance with these options of its session."""
    try:
        session = OnnxRuntime(pair.onnx, **options, folder=pair.session.folder)
        actual = pair.trial.onnx_outputs(session, runs)
    except OrtError:
        return False
    return all(output.ok for output in pair.trial.compare_outputs(actual, expected))
