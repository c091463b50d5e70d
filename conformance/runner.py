"""Run cases: convert each in its variants, and compare with LiteRT.

Variants with equivalent models run once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np

from conformance.attribution import find_causes
from conformance.bounds import tolerance_of
from conformance.case import Case
from conformance.equivalence import equivalence_key
from conformance.explanation import explain_missing_kernel
from conformance.failures import Failures, describe_case_error, describe_wrong_refusal, format_on_one_line
from conformance.inputs import inputs_of_runs
from conformance.layout_errors import messages_on_axis_sizes
from conformance.requirements import describe_unmet_requirements, tested_packs
from conformance.variants import Variant, channels_first, select_variants, variants_of
from onnx_tflite_plugin import source
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.conversion import Conversion, convert_model
from onnx_tflite_plugin.diagnosis.litert import check_with_litert
from onnx_tflite_plugin.errors import ConversionError, MissingExtra, OnnxTooOld, TargetRefusal
from onnx_tflite_plugin.graph.kernels import describe_old_runtime
from onnx_tflite_plugin.guard import Failed, Terminated, debug
from onnx_tflite_plugin.host import BUILTIN, Host
from onnx_tflite_plugin.host.missing_operators import NO_HANDLER_REASON
from onnx_tflite_plugin.host.offers import canonical_name
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.verify import Comparison, LiteRTError, OnnxRuntime, Tolerance, Trial
from onnx_tflite_plugin.verify.comparison.trial import Run, Session
from onnx_tflite_plugin.verify.runtimes.structure import Entry, entry, read
from onnx_tflite_plugin.verify.runtimes.substitutes import find_missing_kernels
from onnx_tflite_plugin.verify.runtimes.substitution import Substitutes, find_overridden_operators, find_pack_kernels

Status = Literal["passed", "failed", "skipped", "known"]
Runs = Sequence[Run]

_INSTALL = (
    "; add an entry point {name} = package.module:function to the group onnx_tflite_plugin.handlers in setup.cfg, "
    "then run pip install -e again"
)
NO_KERNEL = "; LiteRT has no kernel for "
_REFERENCE = "the reference kernel"


@dataclass(frozen=True)
class CaseResult:
    """Outcome of a case.

    ``reasons``: a line for each failure, with the variants that have it, or the reason why the case was skipped.
    ``variants``: number of conversions.
    """

    case: Case
    status: Status
    reasons: tuple[str, ...] = ()
    variants: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status != "failed"

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """Return the case's id and status, and a line for each reason."""
        return f"{self.case.id} {self.status}" + "".join(f"\n  {reason}" for reason in self.reasons)


def run_case(
    case: Case, host: Host | None = None, variants: Sequence[Variant] | None = None, *, position: int | None = None
) -> CaseResult:
    """Run one case and return the outcome.

    An exception in the case's code is not raised; the case fails. The case runs in ``variants``, by default in all.
    ``position``: number of the case among the cases of its kind. It selects a sample of the variants; with None, the case
    runs in all of them.
    """
    start = time.perf_counter()
    host = host or Host()
    trial = None
    try:
        trial = CaseTrial(case, host)
        variants = [*variants_of(case, can_transpose=bool(trial.layout_options()))] if variants is None else variants
        variants = variants if position is None else select_variants(case, position, variants)
        if case.kernel_refusal:
            status, reasons = trial.check_kernel_refusal()
            if case.refusal and status == "skipped":
                status, reasons = trial.check_refusal(variants)
        elif case.refusal:
            status, reasons = trial.check_refusal(variants)
        else:
            status, reasons = trial.check_conversion(variants)
    except (KeyboardInterrupt, Terminated, MissingExtra):
        raise
    except BaseException as error:  # a case or its reference may raise anything
        debug(error)
        causes = trial.contradictory_axes() if trial else []
        status, reasons = "failed", [*causes, f"the case cannot be run: {describe_case_error(error)}"]
    if case.known_failure:
        status, reasons = _as_known_failure(case, status, reasons)
    return CaseResult(case, status, tuple(reasons), trial.conversions if trial else 0, time.perf_counter() - start)


def mismatches(case: Case, host: Host, **options: Any) -> list[str]:
    """Convert a case with additional options; return messages on wrong outputs.

    Raises ConversionError if the conversion fails.
    """
    trial = CaseTrial(replace(case, options={**case.options, **options}), host)
    return trial.problems(Variant("onnxruntime", None, "least"))


def _as_known_failure(case: Case, status: Status, reasons: Sequence[str]) -> tuple[Status, list[str]]:
    if status == "passed":
        return "failed", ["the case passes although it is marked as a known failure"]
    return "known", [case.known_failure, *reasons]


class Outcome(NamedTuple):
    """Outputs of a converted model in each run, and messages on wrong outputs."""

    outputs: Runs
    mismatches: tuple[str, ...]


class CaseTrial:
    """One case, with the data that its variants share: file, inputs, expected outputs."""

    def __init__(self, case: Case, host: Host) -> None:
        self.case = case
        self.host = host
        self.data = case.build()
        self.model: Model = read(self.data)
        self.entry: Entry = entry(self.model)
        self.conversions = 0

    @cached_property
    def source(self) -> Model:
        """Return the model as the converter reads it; cached for all variants."""
        return source.read(self.data)

    # --- expected results ---------------------------------------------------------------------

    @cached_property
    def runs(self) -> list[list[Array]]:
        """Return the inputs of each run. Runs with the case's ``dynamic_sizes`` come last."""
        return inputs_of_runs(self.case, self.entry)

    @cached_property
    def litert_trial(self) -> Trial:
        return Trial(self.data, self.model, self.entry, self.tolerance, substitutes=self._substitutes())

    def _substitutes(self) -> Substitutes:
        """Return NumPy kernels for the operators that LiteRT has no kernel for.

        The case or the handlers define them. Raises LiteRTError if an operator has no kernel at all.
        """
        if self.case.reference is not None:
            return Substitutes()
        index = self.entry.subgraph.index
        overridden = find_overridden_operators(self.source, index, self.host)
        missing = [
            *find_missing_kernels(self.data, self.entry),
            *(self.entry.subgraph.operators[k] for k in overridden),
        ]
        case_kernels = {self.case.op: self.case.kernel} if self.case.kernel is not None else {}
        pack_kernels, reasons = find_pack_kernels(
            self.source, index, [op.index for op in missing], self.host, case_kernels
        )
        if unavailable := next((op for op in missing if op.index in reasons), None):
            name = quote(unavailable.code, safe="._-").replace("%", "%%")  # setup.cfg interpolates %
            install_hint = _INSTALL.format(name=name) if reasons[unavailable.index].endswith(NO_HANDLER_REASON) else ""
            pack_operators = {code for code, pack in self.host.handler_names() if pack != BUILTIN}
            if install_hint and (suggestion := did_you_mean(unavailable.code, pack_operators)):
                install_hint = f"{suggestion} otherwise{install_hint.removeprefix(';')}"
            raise LiteRTError(f"{reasons[unavailable.index]}{install_hint}{NO_KERNEL}{unavailable.code} either")
        return Substitutes(pack_kernels)

    @cached_property
    def reference_outputs(self) -> Mapping[str, Runs]:
        """Return {source: expected outputs of each run}.

        A source is a set of LiteRT's kernels, or the reference of the case. States are reset before every run if the case
        has the option ``state="reset"``.
        """
        if self.case.reference is not None:
            reference = self.case.reference
            return {"reference function": [[np.asarray(a) for a in reference(arrays)] for arrays in self.runs]}
        outputs = self.litert_trial.reference_outputs(
            self.runs, resets_states=self.case.options.get("state") == "reset"
        )
        computed_by_packs = {*self.litert_trial.substitutes.pack_kernels}
        if not any(op.index in computed_by_packs and op.code == self.case.op for op in self.entry.subgraph.operators):
            return outputs
        if all(op.index in computed_by_packs for op in self.entry.subgraph.operators):
            return {_REFERENCE: next(iter(outputs.values()))}
        return {f"{_REFERENCE}, with LiteRT's {kernels} for the rest": runs for kernels, runs in outputs.items()}

    @cached_property
    def tolerance(self) -> Tolerance:
        return tolerance_of(self.case, self.model)

    # --- the three kinds of case --------------------------------------------------------------

    def check_kernel_refusal(self) -> tuple[Status, list[str]]:
        """Return status and reasons of a case that LiteRT must refuse."""
        try:
            _ = self.reference_outputs
        except LiteRTError as error:
            if self.case.kernel_refusal in str(error):
                return "skipped", [f"LiteRT refuses the model: {self.case.kernel_refusal}"]
            return "failed", [
                f"LiteRT refuses the model, but without the expected text {self.case.kernel_refusal!r}: {error}"
            ]
        return "failed", [f"LiteRT runs the model, but must refuse it with {self.case.kernel_refusal!r}"]

    def check_refusal(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        """Return status and reasons of a case that the converter must refuse."""
        failures = Failures()
        for variant in variants:
            if variant.plan == "channels-first":
                continue
            try:
                self.convert(variant)
                failures.add(
                    variant, f"the model was converted, but must be refused with the text {self.case.refusal!r}"
                )
            except OnnxTooOld:
                continue
            except ConversionError as error:
                failures.add(variant, *describe_wrong_refusal(error, self.case.refusal))
        return failures.status, failures.lines

    def check_conversion(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        """Return status and reasons of a case that must convert."""
        expected = self.reference_outputs
        failures = Failures()
        outputs: dict[Variant, Runs] = {}
        outcomes: dict[bytes, Outcome] = {}
        plan_differences: dict[Variant, int] = {}
        failed_conversions: dict[Variant, Conversion | None] = {}
        version_reasons: dict[str, None] = {}
        for variant in variants:
            least_cost = variant._replace(plan="least")
            transposed_layouts = self.layout_options() if variant.plan == "channels-first" else {}
            if (variant.plan == "local" and plan_differences.get(least_cost) == 0) or (
                variant.plan == "channels-first" and not transposed_layouts
            ):
                continue
            skipped_before = self.host.skipped_packs()
            try:
                conversion = self.convert(variant, transposed_layouts)
                failures.add(variant, *self._skipped_hooks(skipped_before))
                if version_reason := describe_old_runtime(conversion.model):
                    version_reasons.setdefault(version_reason)
                    continue
                plan_differences[variant] = conversion.report.local_plan_differences
                outputs[variant], mismatches = self._run_once(conversion, expected, outcomes)
            except OnnxTooOld as error:
                version_reasons.setdefault(format_on_one_line(error))
                continue
            except MissingExtra:
                raise
            except ConversionError as error:
                failed_conversions[variant] = None
                failures.add(variant, format_on_one_line(error))
                continue
            if mismatches:
                failed_conversions[variant] = conversion
            failures.add(variant, *mismatches)
            if variant.plan == "least":
                failures.add(variant, *describe_unmet_requirements(self.case, conversion, self.source, self.host))
            least_cost_outputs = outputs.get(least_cost)
            if (
                variant.plan == "local"
                and least_cost_outputs is not None
                and not _equal(outputs[variant], least_cost_outputs)
            ):
                failures.add(variant, *self.mismatches(outputs[variant], {"the least-cost plan": least_cost_outputs}))
        causes = find_causes(self, variants, outputs, failed_conversions, plan_differences)
        failures = causes.followed_by(failures)
        if version_reasons and not outputs and failures.status == "passed":
            return "skipped", [*version_reasons]
        return failures.status, failures.lines

    def _run_once(
        self, conversion: Conversion, expected: Mapping[str, Runs], outcomes: dict[bytes, Outcome]
    ) -> Outcome:
        """Return the outcome of a conversion; equivalent models run only once.

        ``outcomes``: the outcomes so far, by key of their models. A new outcome is added to it.
        """
        key = equivalence_key(conversion.proto)
        if key not in outcomes:
            actual = self.run(conversion)
            equal_outcome = next((outcome for outcome in outcomes.values() if _equal(actual, outcome.outputs)), None)
            mismatches = equal_outcome.mismatches if equal_outcome else tuple(self.mismatches(actual, expected))
            outcomes[key] = Outcome(actual, mismatches)
        return outcomes[key]

    def contradictory_axes(self) -> list[str]:
        """Return messages on declared axes that contradict the shapes in the case."""
        try:
            return [*messages_on_axis_sizes(self.case.op, self.source, self.host)]
        except (Failed, ConversionError):
            return []

    # --- one variant --------------------------------------------------------------------------

    def convert(self, variant: Variant, transposed_layouts: Mapping[str, str] | None = None) -> Conversion:
        options = {**self.case.options, "target": variant.target, "opset": variant.opset}
        if variant.plan == "local":
            options["layout_plan"] = "local"
        if transposed_layouts:
            options["layout"] = {**transposed_layouts, **options.get("layout", {})}
        options.setdefault("check", "standard")  # the comparison opens the model in ONNX Runtime
        options.setdefault("on_fusion_error", "raise")
        self.conversions += 1
        try:
            return convert_model(self.source, self.host, ConvertOptions(**options))
        except ConversionError as error:
            raise check_with_litert(error, self.data) from error.__cause__

    def layout_options(self) -> dict[str, str]:
        return channels_first(self.entry)

    def problems(self, variant: Variant) -> list[str]:
        """Return messages on wrong outputs of one variant.

        Raises ConversionError if the variant does not convert.
        """
        return list(self.mismatches(self.run(self.convert(variant)), self.reference_outputs))

    def passes(self, variant: Variant) -> bool:
        """True if the case, converted in a variant, gives the expected outputs."""
        try:
            return not self.problems(variant)
        except ConversionError:
            return False

    def _skipped_hooks(self, before: Collection[str]) -> Iterator[str]:
        """Yield a message for each hook of a tested pack that the last conversion skipped.

        ``before``: messages on packs that were skipped before this conversion.
        """
        tested = tested_packs(self.host)
        for pack, failures in self.host.hooks.failures.items():
            if canonical_name(pack) in tested:
                yield from (failed.reason for failed in failures if not any(failed.reason in text for text in before))

    def replaced(self, case: Case, host: Host) -> CaseTrial:
        """Return a trial of ``case`` with ``host``."""
        return CaseTrial(case, host)

    def run(self, conversion: Conversion) -> Runs:
        """Return the outputs of each run, in the order and layout of the TFLite model.

        Raises ConversionError if ONNX Runtime does not load or run the model.
        """
        try:
            return self.run_in(OnnxRuntime(conversion.proto))
        except ConversionError as error:
            if message := explain_missing_kernel(conversion.model, str(error)):
                raise TargetRefusal(message) from error
            raise

    def run_in(self, session: Session) -> Runs:
        """Return the outputs of each run in a session of the converted model."""
        return self.litert_trial.onnx_outputs(session, self.runs)

    def mismatches(self, actual: Runs, expected: Mapping[str, Runs]) -> Iterator[str]:
        return (f"{output.name}: {output.text}" for output in self.compare(actual, expected) if not output.ok)

    def compare(self, actual: Runs, expected: Mapping[str, Runs]) -> tuple[Comparison, ...]:
        return self.litert_trial.compare_outputs(actual, expected)


def _equal(first: Runs, second: Runs) -> bool:
    """True if all outputs are equal in dtype, shape and every byte."""
    return all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for first_run, second_run in zip(first, second, strict=True)
        for a, b in zip(first_run, second_run, strict=True)
    )
