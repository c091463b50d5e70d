"""Explain numerical differences: the largest error, or a table in the wrong order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from conformance.case import Case
from conformance.declared import declarations_of, find_operators, has_quantized_activations, is_looked_up
from conformance.variants import Variant
from onnx_tflite_plugin.api import Operator
from onnx_tflite_plugin.binding.declared import OperatorInstance
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import BUILTIN, Host
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify import Comparison
from onnx_tflite_plugin.verify.comparison.trial import KERNELS, Run
from onnx_tflite_plugin.verify.runtimes.structure import Entry

Runs = Sequence[Run]

_MIN_ERROR_RATIO = 4
"""Heuristic: a table is in the wrong order if exchanging its halves divides the mean error by more than this number."""
_MAX_DIFFERING_SHARE = 0.5
"""Heuristic: if more elements differ, kernel and handler probably interpret the operands differently."""


class ComparableCase(Protocol):
    """A case with its inputs and expected outputs."""

    @property
    def case(self) -> Case: ...
    @property
    def host(self) -> Host: ...
    @property
    def source(self) -> Model: ...
    @property
    def entry(self) -> Entry: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def reference_outputs(self) -> Mapping[str, Runs]: ...

    def compare(self, actual: Runs, expected: Mapping[str, Runs], /) -> tuple[Comparison, ...]: ...
    def passes(self, variant: Variant, /) -> bool: ...
    def replaced(self, case: Case, host: Host, /) -> ComparableCase: ...


def explain_wrong_table(trial: ComparableCase) -> str:
    """Return a message if a lookup table begins with the lowest value; else ""."""
    if not any(has_rotated_table(op, trial) for op in find_operators(trial.source, trial.case.op)):
        return ""
    return (
        "the table of Lookup is in the wrong order: results of 0 and positive values come first, then those of "
        "negative values; if the table begins with the lowest value, use np.roll(table, len(table) // 2)"
    )


def explain_values(trial: ComparableCase, actual: Runs) -> Iterator[str]:
    """Yield a text on the element with the largest error, and a hint on its cause."""
    expected = trial.reference_outputs
    for k, comparison in enumerate(trial.compare(actual, expected)):
        if comparison.ok or comparison.nearest not in expected:
            continue
        yield from _describe_largest_error(comparison, k, actual, expected[comparison.nearest], trial)
        if comparison.unit == "step" and comparison.differing > _MAX_DIFFERING_SHARE:
            yield from _hint_on_quantized_kernel(trial)
        return


def _hint_on_quantized_kernel(trial: ComparableCase) -> Iterator[str]:
    """Yield a hint if a pack's reference kernel gets quantized values.

    A kernel that treats them as real numbers is a likely mistake.
    """
    for op in find_operators(trial.source, trial.case.op):
        handlers = trial.host.registered_handlers(op.code)
        declared = declarations_of(op, trial.host)
        if declared is None or declared.quantization.takes_floats:
            continue
        if any(pack != BUILTIN and handler.kernel is not None for pack, handler in handlers):
            behavior = type(declared.quantization).__name__
            yield f"with {behavior}() the reference kernel gets quantized values, such as int8, not real numbers"
            return


def _describe_largest_error(
    comparison: Comparison, output: int, actual: Runs, expected: Runs, trial: ComparableCase
) -> Iterator[str]:
    """Yield a text with both values of the element with the largest error in any run.

    ``output``: index of the compared output.
    """
    largest_error, text = 0.0, ""
    output_pairs = ((np.asarray(a[output]), np.asarray(e[output])) for a, e in zip(actual, expected, strict=True))
    for ours, theirs in output_pairs:
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype or ours.dtype.kind not in "iuf" or not ours.size:
            continue
        errors = np.nan_to_num(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), nan=0.0, posinf=0.0)
        index = np.unravel_index(int(errors.argmax()), errors.shape)
        if errors[index] > largest_error:
            element = ", ".join(map(str, index))
            largest_error = float(errors[index])
            text = (
                f"{comparison.name}[{element}] is {ours[index]:.6g} in the ONNX model and {theirs[index]:.6g} in "
                f"{reference_name(comparison.nearest)}"
            )
    if text:
        yield f"{text}; {_join(_possibly_wrong_functions(trial))} may be wrong"


def describe_sides(trial: ComparableCase) -> str:
    """Return the parts that may be wrong: lowering or table, kernel, and behavior."""
    declared = [
        declarations_of(op, trial.host)
        for op in find_operators(trial.source, trial.case.op)
        if has_quantized_activations(op) and not is_looked_up(op, trial.host)
    ]
    behaviors = [f"the declared quantization={type(d.quantization).__name__}" for d in declared if d is not None]
    return _join([*_possibly_wrong_functions(trial), *dict.fromkeys(behaviors)])


def _possibly_wrong_functions(trial: ComparableCase) -> list[str]:
    """Return the functions that may be wrong.

    A table of Lookup replaces the lowering. The kernel is one of them if it is the reference.
    """
    fusions = trial.case.fusions
    looked_up = [is_looked_up(op, trial.host) for op in find_operators(trial.source, trial.case.op)]
    functions = []
    if fusions or not looked_up or not all(looked_up):
        functions.append(f"the lowering of fusion {' or '.join(fusions)}" if fusions else "the lowering")
    if any(looked_up):
        functions.append("the table of Lookup")
    if any(name.startswith(("the reference kernel", "reference function")) for name in trial.reference_outputs):
        functions.append("the reference kernel")
    return functions


def _join(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def reference_name(kernels: str) -> str:
    """Return the name of the side that computes the expected outputs, for a message.

    ``kernels``: the reference kernel or function, or one of LiteRT's kernel sets.
    """
    return f"LiteRT ({kernels} kernels)" if kernels in KERNELS else kernels


def has_rotated_table(op: Operator, trial: ComparableCase) -> bool:
    """True if the table would give the expected outputs with its halves exchanged."""
    declared = declarations_of(op, trial.host)
    function = None if declared is None else declared.quantization.lookup_table
    x, y = op.tensor(0), op.tensor(~0)
    if function is None or x is None or y is None or not x.dtype.startswith("int") or x.quantization is None:
        return False
    input_indices, output_indices = (
        [t.index for t in tensors] for tensors in (trial.entry.inputs, trial.entry.outputs)
    )
    if x.index not in input_indices or y.index not in output_indices:
        return False
    target = target_named("onnxruntime")
    try:
        table = np.asarray(function(OperatorInstance(op, target, target.opsets[2])))
    except (Failed, Exception):  # reported by the conversion
        return False
    x_index, y_index = input_indices.index(x.index), output_indices.index(y.index)
    outputs = next(iter(trial.reference_outputs.values()))
    pairs = [(np.asarray(i[x_index]), np.asarray(o[y_index])) for i, o in zip(trial.runs, outputs, strict=True)]
    exchanged = np.roll(table, len(table) // 2)
    return _mean_table_error(table, pairs) > _MIN_ERROR_RATIO * _mean_table_error(exchanged, pairs)


def _mean_table_error(table: Array, pairs: Sequence[tuple[Array, Array]]) -> float:
    """Return the mean error of a lookup table on pairs (input, expected output)."""
    errors = [
        np.abs(table[x.reshape(-1).astype(np.int64) % len(table)].astype(np.float64) - y.reshape(-1)) for x, y in pairs
    ]
    return float(np.concatenate(errors).mean()) + 1e-9


_MISSING_KERNEL = re.compile(r"NOT_IMPLEMENTED.*implementation for ([\w.]+?)\(\d+\) node with name '([^']+)'", re.S)


def explain_missing_kernel(model: ir.Model, error: str) -> str:
    """Return a message if an error of ONNX Runtime is a missing kernel, else "".

    The message names the node and the dtypes of its operands.
    """
    if (match := _MISSING_KERNEL.search(error)) is None:
        return ""
    node = next((node for node in model.graph.all_nodes() if node.name == match[2]), None)
    values = () if node is None else node.inputs
    dtypes = dict.fromkeys(
        value.dtype.name.lower() for value in values if value is not None and value.dtype is not None
    )
    dtypes_text = f" of {', '.join(dtypes)}" if dtypes else ""
    return (
        f"ONNX Runtime has no kernel for {match[1]}{dtypes_text} (node {match[2]!r}), although ONNX defines it; cast its "
        "operands in the lowering with ctx.ops.Cast, or declare quantization=Dequantized() to compute on floats"
    )
