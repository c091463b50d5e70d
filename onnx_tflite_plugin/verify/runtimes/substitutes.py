"""Search for operators that LiteRT has no kernel for, and for the replacement of each (see ``substitution``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.codes import CUSTOM
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.contents import complete_lists
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

_MOST_REFUSALS = 2  # operators without a kernel whose reason is reported


def find_substitutes(
    data: bytes, model: Model, entry: Entry, onnx: ModelProto | bytes | Path, session: OnnxRuntime, host: Host
) -> tuple[Substitutes, tuple[str, ...], tuple[str, ...]]:
    """Return the substitutes of a model, notes for the user, and the reasons why not all operators can be compared.

    Raises VerificationError if a pack fails.
    """
    index, operators = entry.subgraph.index, entry.subgraph.operators
    nested = any(
        op.code.startswith(CUSTOM) for graph in model.subgraphs if graph.index != index for op in graph.operators
    )
    lacked = find_missing_kernels(data, entry, nested=nested)
    if not lacked and not find_overridden_codes(operators, host):
        return Substitutes(), (), ()
    source = complete_lists(read(data), host, target_named("onnxruntime"))
    missing = list(dict.fromkeys([*lacked, *(operators[k] for k in find_overridden_operators(source, index, host))]))
    if not missing:
        return Substitutes(), (), ()
    own, refusals = find_pack_kernels(source, index, [op.index for op in missing], host)
    notes = (
        [
            f"{_codes(one.op for one in own.values())}: computed by the reference kernels of their packs; LiteRT runs the rest"
        ]
        if own
        else []
    )
    without = {op.index: op for op in missing if op.index not in own}
    if not without:
        return Substitutes(own), tuple(notes), ()
    reason = f"LiteRT has no kernel for {_codes(without.values())}, and no op pack declares one"
    notes += [f"op {k} {without[k].code}: {why}" for k, why in refusals.items() if k in without][:_MOST_REFUSALS]
    held = {value.tensor for value in session.tensor_values if value.subgraph == index}
    borrowed = _with_dependents(operators, without, held)
    substitutes = Substitutes(own, borrowed, OnnxResults(onnx, entry, session, borrowed.values()))
    return substitutes, tuple(notes), (reason,)


def find_missing_kernels(data: bytes, entry: Entry, *, nested: bool = False) -> list[Operator]:
    """Return the operators of the entry's subgraph that LiteRT has no kernel for, in execution order.

    One operator of each custom code is tried in isolation. ``nested``: every operator is tried, because it may call a subgraph
    with a custom operator.
    """

    def trial_key(op: Operator) -> str:
        custom = op.code.startswith(CUSTOM)
        return op.code if custom else str(op.index) if nested else ""

    resolves: dict[str, bool] = {}
    for op in entry.subgraph.operators:
        key = trial_key(op)
        if key and key not in resolves:
            ends = [[t.index for t in side if t is not None and not t.is_constant] for side in (op.inputs, op.outputs)]
            try:
                LiteRT(cut_file(data, entry.subgraph, *ends), "builtin").allocate()
            except LiteRTError as error:
                resolves[key] = not isinstance(error, NoKernel)
            else:
                resolves[key] = True
    return [op for op in entry.subgraph.operators if not resolves.get(trial_key(op), True)]


def _with_dependents(
    operators: Iterable[Operator], chosen: Mapping[int, Operator], held: Collection[int]
) -> dict[int, Operator]:
    """Return the chosen operators, and those downstream that need a tensor which the ONNX model does not hold."""
    missing: set[int] = set()
    result: dict[int, Operator] = {}
    for op in operators:
        if op.index in chosen or any(t is not None and t.index in missing for t in op.inputs):
            result[op.index] = op
            missing |= {t.index for t in op.outputs if t is not None and t.index not in held}
    return result


def _codes(ops: Iterable[Operator]) -> str:
    """Return operators by code with their number: ``CUSTOM.X (2)``."""
    return ", ".join(f"{code} ({count})" for code, count in Counter(op.code for op in ops).items())
