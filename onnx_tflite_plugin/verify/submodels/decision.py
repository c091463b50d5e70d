"""Verdict on a conversion from its submodels, and notes on end-to-end errors."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from onnx_tflite_plugin.checked import list_first, plural
from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.graph.model_metadata import write_digest
from onnx_tflite_plugin.graph.randomness import random_operators
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.model import Operator, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.error import AT_DIFFERENT_POSITIONS
from onnx_tflite_plugin.verify.comparison.tensors import Divergence, output_values, values_by_tensor
from onnx_tflite_plugin.verify.comparison.trial import Run, time_limit_after
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes.dequantized import is_float, onnx_operand
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import producers
from onnx_tflite_plugin.verify.submodels.comparer import SubmodelComparer
from onnx_tflite_plugin.verify.submodels.constants import compare_constants
from onnx_tflite_plugin.verify.submodels.saving import SUBMODEL_NAMES, SavedSubmodel, save_all
from onnx_tflite_plugin.verify.submodels.segment_comparer import Decision, Finding
from onnx_tflite_plugin.verify.verification import CAUSE, NOT_COMPARED, Verification

RANDOM_NUMBERS_REASON = "the model draws random numbers, which differ between runtimes"
FUSION_NOTE = "without graph optimizations ONNX Runtime agrees: one of its fusions causes the difference"
_NO_VALUE = "no value of the ONNX model holds an operator's result in the shape that LiteRT returns"
_USER_TOLERANCE = (
    f"{CAUSE}the given --tolerance; every operator agrees within the default tolerance, so set --tolerance {{}} or more, "
    "or leave it out"
)
_MAX_NOTES = 3  # outputs whose error is reported in a note
_INPUTS_HINT = "give other inputs with --inputs or --range"
_UNOPTIMIZED_HINT = "convert with --optimize none and verify that model, which has more values"
_WITH_LITERT_INPUTS = "with LiteRT's values as inputs"


def decide(pair: ModelPair, runs: Sequence[Run], *, is_random: bool, has_default_tolerance: bool) -> Decision:
    """Compare every submodel.

    ``is_random``: the model draws random numbers. ``has_default_tolerance``: the user gave no tolerance. Raises
    ConversionError if the submodels do not run, and InconclusiveError if it is unknown which operators draw random numbers.
    """
    skipped = set(pair.trial.substitutes.tensors)
    if is_random:
        random_indices = random_operators(pair.session.proto.graph)
        if not random_indices:
            raise InconclusiveError(RANDOM_NUMBERS_REASON)
        pair.reasons = (
            *pair.reasons,
            f"{RANDOM_NUMBERS_REASON}; its other operators were compared {_WITH_LITERT_INPUTS}",
        )
        operators = pair.entry.subgraph.operators
        skipped |= {t.index for k in random_indices for t in operators[k].outputs if t is not None}
    constants = list(compare_constants(pair.entry, pair.session))
    if pair.reason_without_submodels:
        return Decision(error=pair.reason_without_submodels, constants=constants)
    user_tolerance = None if has_default_tolerance else pair.trial.tolerance
    comparer = SubmodelComparer(
        pair.trial,
        pair.session,
        skipped=skipped,
        user_tolerance=user_tolerance,
        stateful=pair.stateful,
        resets_states=pair.resets_states,
        time_limit=time_limit_after(pair.seconds),
    )
    decision = comparer.compare_runs(runs)
    # first those on LiteRT's operands, then those on random operands; each in execution order
    decision.differing.sort(key=lambda finding: (finding.operands.kind != "observed", finding.submodel.last_operator))
    decision.constants = constants
    return decision


def conclude(
    pair: ModelPair,
    outputs: Sequence[Comparison],
    decision: Decision,
    *,
    accept_errors: bool,
    has_default_tolerance: bool,
) -> Verification:
    """Return the verdict: the models differ if a submodel or a weight differs.

    ``accept_errors``: accept outputs beyond their tolerance if all submodels agree. ``has_default_tolerance``: the user
    gave no tolerance; float outputs beyond a given tolerance are never accepted.
    """
    values = output_values(pair.entry, pair.session)
    agreeing_outputs = {
        name: decision.agreeing[value] for name, value in values.items() if value in decision.agreeing and accept_errors
    }
    only_tolerance = not has_default_tolerance and _exceeds_only_tolerance(
        decision, outputs, values if accept_errors else ()
    )
    if (divergence := _first_divergence(decision)) is not None:
        return Verification(
            (*outputs, divergence.comparison),
            kernels=(),
            runs=0,
            diverging=divergence,
            notes=_explain_tolerance(decision, outputs) if only_tolerance else (),
            only_tolerance=only_tolerance,
        )
    if not outputs:  # the model draws random numbers
        outputs = tuple(replace(comparison, name=name) for name, comparison in agreeing_outputs.items())
    pair.reasons += tuple(decision.undecided[:2])
    if decision.error and pair.has_rounding and not all(output.ok for output in outputs):
        return _conclude_without_submodels(pair, outputs, decision.error)
    pair.reasons += tuple(
        f"output {output.name!r} end to end: {output.problem}, although every operator agrees; {_INPUTS_HINT}"
        for output in outputs
        if AT_DIFFERENT_POSITIONS in output.problem and output.name in agreeing_outputs
    )
    comparisons = tuple(
        replace(agreeing_outputs[output.name], name=output.name, end_to_end=output.error)
        if not output.ok and output.name in agreeing_outputs and (has_default_tolerance or output.unit != "range")
        else output
        for output in outputs
    )
    has_no_comparison = (
        not decision.operators and not pair.trial.substitutes.tensors and bool(pair.entry.subgraph.operators)
    )
    reason = decision.error or (_NO_VALUE if has_no_comparison and not pair.reasons else "")
    notes = (f"{NOT_COMPARED}: {reason}",) if reason else ()
    if only_tolerance:
        notes = (*notes, *_explain_tolerance(decision, outputs))
    return Verification(
        comparisons, kernels=(), runs=0, notes=notes, operators=decision.operators, only_tolerance=only_tolerance
    )


def _exceeds_only_tolerance(
    decision: Decision, outputs: Sequence[Comparison], compared_outputs: Collection[str]
) -> bool:
    """True if the models differ only because of the user's tolerance.

    Every submodel agrees within its default tolerance.

    ``compared_outputs``: names of the outputs that a submodel computes.
    """
    failed_outputs = [output for output in outputs if not output.ok]
    return (
        not decision.error
        and not decision.constants
        and bool(failed_outputs or decision.differing)
        and all(output.unit == "range" and not output.problem for output in failed_outputs)
        and all(output.name in compared_outputs for output in failed_outputs)
        and all(finding.only_tolerance for finding in decision.differing)
    )


def _explain_tolerance(decision: Decision, outputs: Sequence[Comparison]) -> tuple[str, ...]:
    """Return a note with the smallest tolerance that accepts all errors.

    The tolerance is rounded up to two digits.
    """
    comparisons = (*outputs, *(finding.comparison for finding in decision.differing))
    largest_error = max(comparison.max_error for comparison in comparisons if comparison.unit == "range")
    unit = 10.0 ** (math.floor(math.log10(largest_error)) - 1)
    return (_USER_TOLERANCE.format(f"{math.ceil(largest_error / unit) * unit:.2g}"),)


def _first_divergence(decision: Decision) -> Divergence | None:
    """Return the first submodel or weight that differs; None if none differs.

    Submodels come first.
    """
    if decision.differing:
        finding = decision.differing[0]
        submodel = finding.submodel
        *other_operators, last_operator = submodel.operators
        codes = tuple(dict.fromkeys(op.code for op in other_operators))
        return Divergence(
            submodel.tensor, last_operator, submodel.value.name, finding.comparison, codes, finding.weight_variant
        )
    if decision.constants:
        operator, comparison = decision.constants[0]
        tensor = next(t for t in operator.outputs if t is not None)
        return Divergence(tensor, operator, tensor.name, comparison)
    return None


def _conclude_without_submodels(pair: ModelPair, outputs: Sequence[Comparison], error: str) -> Verification:
    """Return the verdict if outputs differ and no submodel was compared.

    The errors may be accumulated rounding, so the verdict is inconclusive. ``error``: the reason why no submodel was
    compared.
    """
    pair.reasons += (f"{NOT_COMPARED}: {error}; the error of the outputs may be accumulated rounding",)
    failed_outputs = [output for output in outputs if not output.ok]
    errors = tuple(f"output {output.name!r} end to end: {output.text}" for output in failed_outputs[:_MAX_NOTES])
    return Verification(tuple(output for output in outputs if output.ok), kernels=(), runs=0, notes=errors)


def compared_tensors(pair: ModelPair, decision: Decision) -> tuple[tuple[TensorValue, Comparison], ...]:
    """Return the comparison of each tensor, in execution order.

    A tensor that differs has the comparison on the first operands that show the difference.
    """
    values = {value.name: value for values in values_by_tensor(pair.entry, pair.session).values() for value in values}
    differing = {finding.submodel.value.name: finding.comparison for finding in reversed(decision.differing)}
    producer = producers(pair.entry.subgraph)
    tensors = [(values[name], comparison) for name, comparison in {**decision.agreeing, **differing}.items()]
    return tuple(sorted(tensors, key=lambda compared: producer[compared[0].tensor].index))


def save_submodels(pair: ModelPair, decision: Decision, folder: Path, *, has_known_cause: bool) -> tuple[str, ...]:
    """Write the submodels that differ, and return notes on their files and errors.

    The submodel of the first difference comes first. ``has_known_cause``: the difference needs no bug report.
    """
    findings: dict[str, Finding] = {}
    for finding in decision.differing:
        findings.setdefault(finding.submodel.value.name, finding)
    extracted_submodels = (
        (submodel, finding) for finding in findings.values() if (submodel := _extract(pair, finding)) is not None
    )
    first_finding = decision.differing[0]
    operator_list = _describe_operators(first_finding.submodel.operators)
    missing_text = f"the ONNX model has no value for an operand of {operator_list}"
    saved = [
        (name, submodel, finding)
        for name, (submodel, finding) in zip(SUBMODEL_NAMES, extracted_submodels, strict=False)  # the first few
    ]
    if not saved:
        return (f"no submodel was written: {missing_text}; {_UNOPTIMIZED_HINT}",)
    try:
        save_all(folder, {name: submodel for name, submodel, _ in saved})
    except OSError as error:  # the verdict is still reported
        return (f"the submodels were not written: {error.filename or folder}: {error.strerror or error}",)
    is_first_missing = saved[0][2] is not first_finding
    return (
        f"{plural(len(saved), 'submodel')} in {folder}, each as .tflite, .onnx, .npz (operands) and .onnx.npz (operands in "
        f"ONNX layout){'' if has_known_cause else '; attach the folder to a bug report'}",
        *(
            f"  {name:5}  {_describe_operators(submodel.operators)}: {finding.comparison.text}"
            for name, submodel, finding in saved
        ),
        *([f"  the first difference is missing: {missing_text}"] if is_first_missing else []),
    )


def _describe_operators(operators: Sequence[Operator]) -> str:
    """Return the operators of a submodel, such as ``op 14 CONV_2D``."""
    return list_first([f"op {op.index} {op.code}" for op in operators], 3)


def _extract(pair: ModelPair, finding: Finding) -> SavedSubmodel | None:
    """Return a submodel in both formats; None if it cannot be extracted.

    The submodel begins at the operands of the compared operators. If that fails, it begins at the tensors that the ONNX
    model reads.
    """
    submodel = finding.submodel
    for leaves in dict.fromkeys((submodel.leaves, submodel.onnx_leaves)):
        if leaves <= finding.operands.operands.keys():
            extracted = _extract_from(pair, finding, sorted(leaves))
            if extracted is not None:
                return extracted
    return None


def _extract_from(pair: ModelPair, finding: Finding, leaves: Sequence[int]) -> SavedSubmodel | None:
    """Return the submodel that computes a finding's tensor from ``leaves``, by index.

    Return None if the ONNX model has no value for a leaf, or if a file is too large.
    """
    submodel = finding.submodel
    values = values_by_tensor(pair.entry, pair.session)
    leaf_values = [
        next((value for value in values.get(index, ()) if value.encoding == "stored"), None) for index in leaves
    ]
    inputs = [value for value in leaf_values if value is not None]
    if len(inputs) < len(leaves):
        return None
    onnx = extract_submodel(pair.session.proto, [value.name for value in inputs], [submodel.value.name])
    onnx = None if onnx is None else pair.session.load_constants(onnx)
    if onnx is None:
        return None
    try:
        data = cut_file(pair.trial.data, pair.entry.subgraph, leaves, [submodel.tensor.index])
    except ConversionError:  # more than 2 GB
        return None
    metadata: dict[str, str] = {}
    write_digest(metadata, Content(data).digest())
    for key, value in metadata.items():
        onnx.metadata_props.add(key=key, value=value)
    operands = [finding.operands.operands[index] for index in leaves]
    float_inputs = {info.name for info in onnx.graph.input if is_float(info)}
    tensors = pair.entry.subgraph.tensors
    feeds = {
        value.name: value.apply(onnx_operand(tensors[value.tensor], array, is_float=value.name in float_inputs))
        for value, array in zip(inputs, operands, strict=True)
    }
    operators = (
        submodel.operators if {*leaves} == submodel.leaves else _operators_between(pair, leaves, submodel.tensor)
    )
    return SavedSubmodel(data, onnx, operands, feeds, operators)


def _operators_between(pair: ModelPair, leaves: Sequence[int], tensor: Tensor) -> tuple[Operator, ...]:
    """Return the operators that compute a tensor from ``leaves``, in execution order."""
    producer_of = producers(pair.entry.subgraph)
    visited: dict[int, Operator] = {}
    pending = [tensor.index]
    while pending:
        index = pending.pop()
        operator = None if index in leaves else producer_of.get(index)
        if operator is not None and operator.index not in visited:
            visited[operator.index] = operator
            pending += [operand.index for operand in operator.inputs if operand is not None]
    return tuple(visited[index] for index in sorted(visited))
