"""Causes of errors that submodels do not show: dtypes, fusions, the processor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.graph.int8_faults import describe_int8_fault
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import innermost_operators, source_handler, top_level_operators
from onnx_tflite_plugin.guard import BUILTIN, INLINE, of_pack
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import is_dequantized, quantizes_values
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime, OrtError
from onnx_tflite_plugin.verify.runtimes.packages import import_optional
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from onnx_tflite_plugin.verify.verification import CAUSE

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.api.patterns import Fusion
    from onnx_tflite_plugin.verify.model_pair import ModelPair

_REQUANTIZED = (
    f"{CAUSE}the model was converted with --quantization symmetric, which rounds weights and activations to values other than "
    "LiteRT's; the differences add up over operators that are compared together",
    "to keep LiteRT's results, convert without this option; to accept other results, convert without --verify and measure the "
    "accuracy on labeled data",
)
_EXACT_PRODUCTS = {"session.x64quantprecision": "1"}  # exact also on x86 processors without VNNI


def is_caused_by_fusion(
    pair: ModelPair, outputs: Sequence[Comparison], runs: Sequence[Run], litert_outputs: Mapping[str, Sequence[Run]]
) -> bool:
    """True if failing outputs agree without ONNX Runtime's graph optimizations.

    Submodels do not show such errors. ``litert_outputs``: kernel set -> outputs of each run.
    """
    # a fusion changes how values are rounded, so it cannot change integers, booleans or text
    has_rounding_error = any(not output.ok and output.unit != "value" for output in outputs)
    return has_rounding_error and _agrees(pair, runs, litert_outputs, optimizes=False)


def explain_requantization(pair: ModelPair) -> tuple[str, ...]:
    """Return the cause of an error, and remedies, if symmetric int8 is the cause.

    Return an empty tuple for other models.
    """
    is_requantized = quantizes_values(pair.session.proto.graph) and is_dequantized(
        pair.trial.model, pair.entry, pair.session
    )
    return _REQUANTIZED if is_requantized else ()


def describe_pack_fusions(
    proto: ModelProto, differing: Collection[int], fusions: Callable[[], Sequence[tuple[str, Fusion]]]
) -> tuple[str, ...]:
    """Return a note on each pack fusion in differing submodels, with its remedy.

    ``differing``: the operators of these submodels. ``fusions``: function that returns (pack, fusion) of all packs; it is
    called only if a node of a pack replaces several operators.
    """
    replaced_operators: dict[tuple[str, str], set[int]] = {}
    for node in proto.graph.node:
        metadata = props(node.metadata_props)
        handler, pack = source_handler(metadata)
        is_differing = not {*top_level_operators(metadata)}.isdisjoint(differing)
        if pack not in ("", BUILTIN) and is_differing and len(members := innermost_operators(metadata)) > 1:
            replaced_operators.setdefault((handler, pack), set()).update(members)
    handlers = {(fusion.handler.name, pack) for pack, fusion in fusions()} if replaced_operators else set()
    return tuple(
        f"operators {list_first([*map(str, sorted(operators))], _MAX_OPERATORS)} were replaced by the fusion "
        f"{handler}{of_pack(pack)}{'' if pack == INLINE else f'; --block {pack} leaves the pack out'}"
        for (handler, pack), operators in replaced_operators.items()
        if (handler, pack) in handlers
    )


_MAX_OPERATORS = 8


def processor_hints(
    pair: ModelPair, runs: Sequence[Run], litert_outputs: Mapping[str, Sequence[Run]]
) -> tuple[str, ...]:
    """Return a hint if the processor is the cause of an error.

    ONNX Runtime may compute wrongly on this processor, or the processor may saturate 16-bit sums of 8-bit products.
    """
    if fault := describe_int8_fault(import_optional("onnxruntime")):
        return (fault,)
    if multiplies_exactly():
        return ()
    if not _agrees(pair, runs, litert_outputs, config=_EXACT_PRODUCTS):
        return ()
    reason = "this processor saturates int8 products of the model (with session.x64quantprecision=1 the outputs agree)"
    return (f"{reason}; convert with --weights-dtype auto or uint8",)


def _agrees(pair: ModelPair, runs: Sequence[Run], litert_outputs: Mapping[str, Sequence[Run]], **options: Any) -> bool:
    """True if all outputs agree in a session of ONNX Runtime with these options."""
    try:
        session = OnnxRuntime(pair.onnx, **options, folder=pair.session.folder)
        actual = pair.trial.onnx_outputs(session, runs)
    except OrtError:
        return False
    return all(output.ok for output in pair.trial.compare_outputs(actual, litert_outputs))
