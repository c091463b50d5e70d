"""Search for operators without a LiteRT kernel, and for their replacements.

The module ``substitution`` runs models with such operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.codes import CUSTOM
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.tensor_list_elements import complete_lists
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model, Operator
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError, NoKernel
from onnx_tflite_plugin.verify.runtimes.onnx_results import OnnxResults
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry
from onnx_tflite_plugin.verify.runtimes.substitution import (
    Substitutes,
    find_overridden_codes,
    find_overridden_operators,
    find_pack_kernels,
)

if TYPE_CHECKING:
    from onnx import ModelProto

_MAX_REASONS = 2  # maximum number of operators for which a reason is reported


def find_substitutes(
    data: bytes, model: Model, entry: Entry, onnx: ModelProto | bytes | Path, session: OnnxRuntime, host: Host
) -> tuple[Substitutes, tuple[str, ...], tuple[str, ...]]:
    """Return the substitutes of a model, notes for the user, and reasons.

    A reason explains why some operators cannot be compared. Raises VerificationError if a pack fails.
    """
    index, operators = entry.subgraph.index, entry.subgraph.operators
    has_nested_custom = any(
        op.code.startswith(CUSTOM) for graph in model.subgraphs if graph.index != index for op in graph.operators
    )
    without_litert_kernel = find_missing_kernels(data, entry, has_nested_custom=has_nested_custom)
    if not without_litert_kernel and not find_overridden_codes(operators, host):
        return Substitutes(), (), ()
    source = complete_lists(read(data), host, target_named("onnxruntime"))
    missing_operators = list(
        dict.fromkeys([*without_litert_kernel, *(operators[k] for k in find_overridden_operators(source, index, host))])
    )
    if not missing_operators:
        return Substitutes(), (), ()
    pack_kernels, refusals = find_pack_kernels(source, index, [op.index for op in missing_operators], host)
    notes = []
    if pack_kernels:
        codes = _count_codes(kernel.op for kernel in pack_kernels.values())
        notes.append(f"{codes}: run with the reference kernels of their handlers; LiteRT runs all other operators")
    without_kernel = {op.index: op for op in missing_operators if op.index not in pack_kernels}
    if not without_kernel:
        return Substitutes(pack_kernels), tuple(notes), ()
    reason = f"LiteRT has no kernel for {_count_codes(without_kernel.values())}, and no op pack declares one"
    notes += [f"op {k} {without_kernel[k].code}: {refusal}" for k, refusal in refusals.items() if k in without_kernel][
        :_MAX_REASONS
    ]
    onnx_tensors = {value.tensor for value in session.tensor_values if value.subgraph == index}
    from_onnx = _with_dependents(operators, without_kernel, onnx_tensors)
    substitutes = Substitutes(pack_kernels, from_onnx, OnnxResults(onnx, entry, session, from_onnx.values()))
    return substitutes, tuple(notes), (reason,)


def find_missing_kernels(data: bytes, entry: Entry, *, has_nested_custom: bool = False) -> list[Operator]:
    """Return the entry's operators without a LiteRT kernel, in execution order.

    LiteRT loads one operator of each custom code in isolation. ``has_nested_custom``: called subgraphs have custom
    operators, so LiteRT loads every operator.
    """

    def trial_key(op: Operator) -> str:
        """Return a key of the trial that covers an operator; empty if no trial is needed."""
        if op.code.startswith(CUSTOM):
            return op.code
        return str(op.index) if has_nested_custom else ""

    has_kernel: dict[str, bool] = {}
    for op in entry.subgraph.operators:
        key = trial_key(op)
        if key and key not in has_kernel:
            boundary = [
                [t.index for t in side if t is not None and not t.is_constant] for side in (op.inputs, op.outputs)
            ]
            try:
                LiteRT(cut_file(data, entry.subgraph, *boundary), "builtin").allocate()
            except LiteRTError as error:
                has_kernel[key] = not isinstance(error, NoKernel)
            else:
                has_kernel[key] = True
    return [op for op in entry.subgraph.operators if not has_kernel.get(trial_key(op), True)]


def _with_dependents(
    operators: Iterable[Operator], without_kernel: Mapping[int, Operator], onnx_tensors: Collection[int]
) -> dict[int, Operator]:
    """Return operators without a kernel, and operators that depend on them.

    An operator depends on them if it reads one of their results that no ONNX value holds. ``onnx_tensors``: indices of
    the tensors that ONNX values hold.
    """
    unavailable: set[int] = set()
    result: dict[int, Operator] = {}
    for op in operators:
        if op.index in without_kernel or any(t is not None and t.index in unavailable for t in op.inputs):
            result[op.index] = op
            unavailable |= {t.index for t in op.outputs if t is not None and t.index not in onnx_tensors}
    return result


def _count_codes(operators: Iterable[Operator]) -> str:
    """Return the codes of operators with their numbers: ``CUSTOM.X (2)``."""
    return ", ".join(f"{code} ({count})" for code, count in Counter(op.code for op in operators).items())
