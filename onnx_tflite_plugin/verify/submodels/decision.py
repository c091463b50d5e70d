"""Verdict on a conversion from its submodels, and notes on the end-to-end errors of the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from onnx_tflite_plugin.errors import ConversionError, InconclusiveError
from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.graph.randomness import random_operators
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tensors import Divergence, output_values, values_by_tensor
from onnx_tflite_plugin.verify.comparison.trial import Run, time_limit_after
from onnx_tflite_plugin.verify.model_pair import ModelPair
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.submodels.constants import compare_constants
from onnx_tflite_plugin.verify.submodels.engine import Engine
from onnx_tflite_plugin.verify.submodels.judge import Decision, Finding
from onnx_tflite_plugin.verify.submodels.saving import SUBMODEL_NAMES, SavedSubmodel
from onnx_tflite_plugin.verify.verification import NOT_COMPARED, Verification

RANDOM_NUMBERS = "the model draws random numbers, which differ between runtimes"
FUSION = "without graph optimizations ONNX Runtime agrees: one of its fusions causes the difference"
_LISTED = 3  # outputs whose error is a note
_OPERANDS = "on LiteRT's own operands"


def decide(pair: ModelPair, runs: Sequence[Run], *, random: bool, exact: bool) -> Decision:
    """Compare every submodel. ``random``: the model draws random numbers; ``exact``: no tolerance was given.

    Raises ConversionError if the submodels do not run, InconclusiveError for random numbers of unknown operators.
    """
    skipped = set(pair.trial.substitutes.tensors)
    if random:
        drawing = random_operators(pair.session.proto.graph)
        if not drawing:
            raise InconclusiveError(RANDOM_NUMBERS)
        pair.reasons = (*pair.reasons, f"{RANDOM_NUMBERS}; its other operators were compared {_OPERANDS}")
        operators = pair.entry.subgraph.operators
        skipped |= {t.index for k in drawing for t in operators[k].outputs if t is not None}
    constants = list(compare_constants(pair.entry, pair.session))
    if pair.reason_without_submodels:
        return Decision(error=pair.reason_without_submodels, constants=constants)
    allowed = None if exact else pair.trial.tolerance
    engine = Engine(
        pair.trial,
        pair.session,
        skipped=skipped,
        allowed=allowed,
        stateful=pair.stateful,
        fresh=pair.fresh,
        time_limit=time_limit_after(pair.seconds),
    )
    decision = engine.decide(runs)
    decision.constants = constants
    return decision


def conclude(
    pair: ModelPair, outputs: Sequence[Comparison], decision: Decision, *, accept_errors: bool, exact: bool
) -> Verification:
    """Return the verdict: the models differ if a submodel differs.

    ``settles``: outputs beyond their tolerance are accepted if all submodels agree; of floats only if ``exact``, without a tolerance
    of the user.
    """
    values = output_values(pair.entry, pair.session)
    agreed = {
        name: decision.agreed[value] for name, value in values.items() if value in decision.agreed and accept_errors
    }
    if decision.differing:
        first = decision.differing[0]
        submodel = first.submodel
        diverging = Divergence(submodel.tensor, submodel.operators[-1], submodel.value.name, first.comparison)
        return Verification((*outputs, first.comparison), (), 0, diverging=diverging)
    if decision.constants:
        operator, wrong = decision.constants[0]
        (tensor,) = [t for t in operator.outputs if t is not None][:1]
        return Verification((*outputs, wrong), (), 0, diverging=Divergence(tensor, operator, tensor.name, wrong))
    if not outputs:
        outputs = tuple(replace(one, name=name) for name, one in agreed.items())
    if decision.undecided:
        pair.reasons = (*pair.reasons, *decision.undecided[:2])
    if decision.error and pair.has_rounding and not all(one.ok for one in outputs):
        reason = f"{NOT_COMPARED}: {decision.error}; rounding may add up to the error of the outputs"
        pair.reasons = (*pair.reasons, reason)
        failed = [one for one in outputs if not one.ok]
        errors = tuple(f"{one.name!r} end to end: {one.text}" for one in failed[:_LISTED])
        return Verification(tuple(one for one in outputs if one.ok), (), 0, notes=errors)
    settled = tuple(
        one
        if one.ok or one.name not in agreed or (one.unit == "range" and not exact)
        else replace(agreed[one.name], name=one.name, end_to_end=one.error)
        for one in outputs
    )
    notes = (f"{NOT_COMPARED}: {decision.error}",) if decision.error else ()
    return Verification(settled, (), 0, notes=notes, operators=decision.operators)


def save_submodels(pair: ModelPair, decision: Decision, folder: Path) -> str:
    """Write the submodels that differ, each once, and return a note that names their operators and files."""
    findings = {one.submodel.value.name: one for one in reversed(decision.differing)}
    found = [saved for one in [*findings.values()][::-1] if (saved := _save(pair, one)) is not None]
    if not found:
        return "the submodels that differ cannot be taken out of the ONNX model"
    files = [file for names, saved in zip(SUBMODEL_NAMES, found, strict=False) for file in saved.save(folder, names)]
    codes = list(dict.fromkeys(op.code for saved in found[: len(SUBMODEL_NAMES)] for op in saved.operators))
    more = f" and {len(codes) - 3} more" if len(codes) > 3 else ""
    return f"the submodels that differ, {', '.join(codes[:3])}{more}: {', '.join(map(str, files))}"


def _save(pair: ModelPair, finding: Finding) -> SavedSubmodel | None:
    """Return a submodel as a pair of files; None if the ONNX model has none between these tensors."""
    submodel, one = finding.submodel, finding.operands
    held, leaves = values_by_tensor(pair.entry, pair.session), sorted(submodel.leaves)
    stored = [next((x.name for x in held.get(index, ()) if x.form == "stored"), "") for index in leaves]
    part = extract_submodel(pair.session.proto, stored, [submodel.value.name])
    part = None if part is None else pair.session.load_constants(part)
    if part is None:
        return None
    try:
        data = cut_file(pair.trial.data, pair.entry.subgraph, leaves, [submodel.tensor.index])
    except ConversionError:  # of more than 2 GB
        return None
    return SavedSubmodel(data, part, [one.operands[index] for index in leaves], submodel.operators)
