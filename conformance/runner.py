"""Runs cases: converts each in its variants, and compares with LiteRT. Variants whose graphs are the same run once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np

from conformance.bounds import tolerance
from conformance.case import Case
from conformance.explanation import explain_values
from conformance.layout_errors import contradictory_sizes, false_layout, wrong_in_every_layout
from conformance.meaning import meaning_of
from conformance.unmatched import explain_unloaded, explain_unmatched
from conformance.variants import Variant, select_variants, variants_of
from onnx_tflite_plugin import source
from onnx_tflite_plugin.conversion import Conversion, convert_model
from onnx_tflite_plugin.diagnosis.litert import check_with_litert
from onnx_tflite_plugin.errors import AttributedProblem, ConversionError, MissingExtra, OnnxTooOld
from onnx_tflite_plugin.graph.kernels import describe_old_runtime
from onnx_tflite_plugin.guard import Terminated, debug, format_error
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.host.missing_operators import NOBODY
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.verify import Comparison, LiteRTError, OnnxRuntime, Tolerance, Trial, draw
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
EXACT = 1e-5  # of the range: the models around an operator add no rounding of their own


@dataclass(frozen=True)
class CaseResult:
    """Outcome of a case; ``reasons`` has one line per failed variant, or why it was skipped; ``variants`` were tried."""

    case: Case
    status: Status
    reasons: tuple[str, ...] = ()
    variants: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status != "failed"

    @property
    def text(self) -> str:
        return f"{self.case.id} {self.status}" + "".join(f"\n  {reason}" for reason in self.reasons)


def run_case(
    case: Case, host: Host | None = None, variants: Sequence[Variant] | None = None, *, place: int | None = None
) -> CaseResult:
    """Return the outcome of one case; errors that the case causes are part of it.

    It is tried in all its variants, in these, or in those that its ``place`` among the cases of its operator picks.
    """
    start = time.perf_counter()
    host = host or Host()
    trial = None
    try:
        trial = CaseTrial(case, host)
        variants = [*variants_of(case, turns=bool(trial.layout_options()))] if variants is None else variants
        variants = variants if place is None else select_variants(case, place, variants)
        if case.kernel_refuses:
            status, reasons = trial.kernels_refuse()
            if case.refused and status == "skipped":
                status, reasons = trial.refusals(variants)
        elif case.refused:
            status, reasons = trial.refusals(variants)
        else:
            status, reasons = trial.failures(variants)
    except (KeyboardInterrupt, Terminated, MissingExtra):
        raise
    except BaseException as error:  # whatever a case or its reference raises
        debug(error)
        status, reasons = "failed", [f"the case cannot be run: {format_error(error)}"]
    if case.known:
        status, reasons = _as_known_failure(case, status, reasons)
    return CaseResult(case, status, tuple(reasons), trial.conversions if trial else 0, time.perf_counter() - start)


def mismatches(case: Case, host: Host, **options: Any) -> list[str]:
    """Return the mismatches of one conversion under given options. Raises ConversionError if it is refused."""
    trial = CaseTrial(replace(case, options={**case.options, **options}), host)
    return trial.problems(Variant("onnxruntime", None, "least"))


def _as_known_failure(case: Case, status: Status, reasons: Sequence[str]) -> tuple[Status, list[str]]:
    if status == "passed":
        return "failed", ["the case passes although it is marked as a known failure"]
    return "known", [case.known, *reasons]


class _Mismatches:
    """Mismatches, each with the variants that show it."""

    def __init__(self) -> None:
        self._by_text: dict[str, list[str]] = {}

    def add(self, variant: Variant, *texts: str) -> None:
        for text in texts:
            self._by_text.setdefault(text, []).append(variant.text)

    def followed_by(self, others: _Mismatches) -> _Mismatches:
        """Return these mismatches and then the others."""
        joined = _Mismatches()
        joined._by_text = {**self._by_text, **others._by_text}
        return joined

    @property
    def status(self) -> Status:
        return "failed" if self._by_text else "passed"

    @property
    def lines(self) -> list[str]:
        return [f"{', '.join(variants)}: {text}" for text, variants in self._by_text.items()]


class Outcome(NamedTuple):
    """Results of a converted model in each run, and their difference from the expected ones."""

    outputs: Runs
    differing: tuple[str, ...]


class CaseTrial:
    """One case with what its variants share: the file, the inputs, what LiteRT computes."""

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

    # --- what is expected ---------------------------------------------------------------------

    @cached_property
    def runs(self) -> list[list[Array]]:
        """Return the inputs of each run; runs with other dynamic sizes come last."""
        given = self._inputs_by_run()
        return [
            *draw(self.entry, given=given, runs=self.case.runs, nan=True),
            *(arrays for other in self._inputs_at_other_sizes(given[0]) for arrays in draw(self.entry, **other)),
        ]

    def _inputs_at_other_sizes(self, given: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
        """Return random inputs at each of the case's other sizes; distinct axes differ and broadcast axes agree."""
        opened = {
            name: tensor.dims
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
            if not tensor.is_static
        }
        remembers = any(tensor.is_variable for tensor in self.entry.subgraph.tensors)  # LiteRT forgets where it resizes
        for size in self.case.sizes if opened and not remembers else ():
            shapes = {
                name: tuple(size + axis if n is None else n for axis, n in enumerate(dims))
                for name, dims in opened.items()
            }
            repeated = {name: np.resize(given[name], shape) for name, shape in shapes.items() if name in given}
            yield {"given": {**given, **repeated}, "shapes": shapes}

    def _inputs_by_run(self) -> Any:
        """Return the given inputs by run, with random floats from the case's span."""
        given, span = self.case.given, self.case.span
        runs = [given or {}] * self.case.runs if given is None or isinstance(given, Mapping) else given
        return [{**(self._random_floats(run, *span) if span else {}), **arrays} for run, arrays in enumerate(runs)]

    def _random_floats(self, run: int, low: float, high: float) -> dict[str, Array]:
        generator = np.random.default_rng(run)
        return {
            name: generator.uniform(low, high, tensor.shape).astype(tensor.dtype)
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
            if tensor.dtype.startswith("float")
        }

    @cached_property
    def trial(self) -> Trial:
        return Trial(self.data, self.model, self.entry, self.tolerance, substitutes=self._substitutes())

    def _substitutes(self) -> Substitutes:
        """Return the kernels for operators that LiteRT lacks: the case's, or the handlers'. Raises LiteRTError if there is none."""
        if self.case.reference is not None:
            return Substitutes()
        index = self.entry.subgraph.index
        kept = find_overridden_operators(self.source, index, self.host)
        missing = [*find_missing_kernels(self.data, self.entry), *(self.entry.subgraph.operators[k] for k in kept)]
        given = {self.case.op: self.case.kernel} if self.case.kernel is not None else {}
        own, reasons = find_pack_kernels(self.source, index, [op.index for op in missing], self.host, given)
        if lost := next((op for op in missing if op.index in reasons), None):
            name = quote(lost.code, safe="._-").replace("%", "%%")  # setup.cfg interpolates
            install = _INSTALL.format(name=name) if reasons[lost.index].endswith(NOBODY) else ""
            raise LiteRTError(f"LiteRT has no kernel for {lost.code}, and {reasons[lost.index]}{install}")
        return Substitutes(own)

    @cached_property
    def reference_outputs(self) -> Mapping[str, Runs]:
        """Return the outputs of each run by kernel set, or from the case's reference; states are reset if the option says so."""
        if self.case.reference is not None:
            reference = self.case.reference
            return {"reference function": [[np.asarray(a) for a in reference(arrays)] for arrays in self.runs]}
        outputs = self.trial.reference_outputs(self.runs, fresh=self.case.options.get("state") == "reset")
        own = any(
            op.index in self.trial.substitutes.pack_kernels and op.code == self.case.op
            for op in self.entry.subgraph.operators
        )
        return {f"{kernels} around the reference kernel" if own else kernels: runs for kernels, runs in outputs.items()}

    @cached_property
    def tolerance(self) -> Tolerance:
        rounded = self.case.options.get("quantization") != "float"
        asked = self.case.tolerance or tolerance(self.case.op, self.case.dtype, rounded=rounded)
        if asked is not None:
            return asked
        usual = Tolerance.of(self.model)
        return usual if usual.of_range > Tolerance().of_range else Tolerance(of_range=EXACT)

    # --- the three kinds of case --------------------------------------------------------------

    def kernels_refuse(self) -> tuple[Status, list[str]]:
        try:
            _ = self.reference_outputs
        except LiteRTError as error:
            if self.case.kernel_refuses in str(error):
                return "skipped", [f"LiteRT refuses it: {self.case.kernel_refuses}"]
            return "failed", [f"LiteRT refuses it for another reason: {error}"]
        return "failed", [f"LiteRT runs the model, expected a refusal with {self.case.kernel_refuses!r}"]

    def refusals(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        found = _Mismatches()
        for variant in variants:
            if variant.plan == "channels-first":
                continue
            try:
                self.convert(variant)
                found.add(variant, f"the model was converted, expected a refusal with {self.case.refused!r}")
            except OnnxTooOld:
                continue
            except ConversionError as error:
                if self.case.refused not in str(error):
                    found.add(variant, f"refused for another reason: {_line(error)}")
        return found.status, found.lines

    def failures(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        expected = self.reference_outputs
        found = _Mismatches()
        outputs: dict[Variant, Runs] = {}
        tried: dict[bytes, Outcome] = {}
        moved: dict[Variant, int] = {}
        wrong: dict[Variant, Conversion | None] = {}
        newer: dict[str, None] = {}
        for variant in variants:
            least = variant._replace(plan="least")
            turned = self.layout_options() if variant.plan == "channels-first" else {}
            if (variant.plan == "local" and moved.get(least) == 0) or (variant.plan == "channels-first" and not turned):
                continue
            try:
                conversion = self.convert(variant, turned)
                if old := describe_old_runtime(conversion.model):
                    newer.setdefault(old)
                    continue
                moved[variant] = conversion.report.moved
                meaning = meaning_of(conversion.proto)
                if meaning not in tried:
                    actual = self.run(conversion)
                    known = next((other.differing for other in tried.values() if _equal(actual, other.outputs)), None)
                    differing = tuple(self.mismatches(actual, expected)) if known is None else known
                    tried[meaning] = Outcome(actual, differing)
                outputs[variant], differing = tried[meaning]
            except OnnxTooOld as error:
                newer.setdefault(_line(error))
                continue
            except MissingExtra:
                raise
            except ConversionError as error:
                wrong[variant] = None
                found.add(variant, _line(error))
                continue
            if differing:
                wrong[variant] = conversion
            found.add(variant, *differing)
            if variant.plan == "least":
                found.add(variant, *self._layout(conversion), *self._missing_expectations(conversion))
            other = outputs.get(least)
            if variant.plan == "local" and other is not None and not _equal(outputs[variant], other):
                found.add(variant, *self.mismatches(outputs[variant], {"the least plan": other}))
        explained = _Mismatches()
        if outputs:
            explained.add(next(iter(outputs)), *contradictory_sizes(self.case.op, self.source, self.host))
        if wrong and not outputs.keys() - wrong.keys() and None not in wrong.values():
            explained.add(next(iter(wrong)), *wrong_in_every_layout(self.case.op, self.source, self.host))
        for variant, failed in wrong.items() if explained.status == "passed" else ():
            plain = variant._replace(plan="least" if moved.get(variant._replace(plan="least")) == 0 else "local")
            if plain not in wrong and (plain in outputs or (len(variants) > 1 and self._right(plain))):
                explained.add(variant, *self._attribute_failure(failed))
        compared = next((variant for variant in wrong if variant in outputs), None)
        if compared is not None and explained.status == "passed":
            explained.add(compared, *explain_values(self, outputs[compared]))
        found = explained.followed_by(found)
        if newer and not outputs and found.status == "passed":
            return "skipped", [*newer]
        return found.status, found.lines

    # --- one variant --------------------------------------------------------------------------

    def convert(self, variant: Variant, turned: Mapping[str, str] | None = None) -> Conversion:
        options = {**self.case.options, "target": variant.target, "opset": variant.opset}
        if variant.plan == "local":
            options["layout_plan"] = "local"
        if turned:
            options["layout"] = {**turned, **options.get("layout", {})}
        options.setdefault("check", "standard")  # what follows opens it
        options.setdefault("on_fusion_error", "raise")
        self.conversions += 1
        try:
            return convert_model(self.source, self.host, ConvertOptions(**options))
        except ConversionError as error:
            raise check_with_litert(error, self.data) from error.__cause__

    def layout_options(self) -> dict[str, str]:
        return channels_first(self.entry)

    def problems(self, variant: Variant) -> list[str]:
        """Return the problems of one variant. Raises ConversionError if it is refused."""
        return list(self.mismatches(self.run(self.convert(variant)), self.reference_outputs))

    def _right(self, variant: Variant) -> bool:
        try:
            return not self.problems(variant)
        except ConversionError:
            return False

    def run(self, conversion: Conversion) -> Runs:
        """Return the outputs of each run, in the order and layout of the TFLite model."""
        return self.run_in(OnnxRuntime(conversion.proto))

    def run_in(self, session: Session) -> Runs:
        """Return the outputs of each run of a session of the converted model."""
        return self.trial.onnx_outputs(session, self.runs)

    def mismatches(self, actual: Runs, expected: Mapping[str, Runs]) -> Iterator[str]:
        return (f"{one.name}: {one.text}" for one in self.compare(actual, expected) if not one.ok)

    def compare(self, actual: Runs, expected: Mapping[str, Runs]) -> tuple[Comparison, ...]:
        return self.trial.compare_outputs(actual, expected)

    def _layout(self, conversion: Conversion) -> Iterator[str]:
        most, report = self.case.transposes, conversion.report
        if most is not None and report.transposes > most and not report.transposed_for_speed:
            yield f"the least plan has {report.transposes} Transposes, it may have {most}"

    def _missing_expectations(self, conversion: Conversion) -> Iterator[str]:
        """Yield a message per node and fusion that the case expects and the conversion lacks."""
        report = conversion.report
        nodes = self.case.nodes if isinstance(self.case.nodes, Mapping) else dict.fromkeys(self.case.nodes)
        for name, wanted in nodes.items():
            count = report.nodes.get(name, 0)
            if count != wanted and (wanted is not None or not count):
                listed = ", ".join(f"{one} ({number})" for one, number in report.nodes.items())
                yield f"the model has {count} {name} nodes, it must have {'some' if wanted is None else wanted}; it has {listed}"
        for name in self.case.fuses:
            if name not in report.fused:
                declined = "; ".join(text for text in report.fusions_declined if text.startswith(f"{name} "))
                others = f" (applied: {', '.join(report.fused)})" if report.fused else ""
                if unloaded := explain_unloaded(name, self.source, self.host):
                    yield f"the fusion {name} was not loaded: {unloaded}{others}"
                else:
                    reason = declined or explain_unmatched(name, self.source, self.host)
                    yield f"the fusion {name} did not apply: {reason}{others}"

    def _attribute_failure(self, conversion: Conversion | None) -> Iterator[str]:
        """Return the declaration that is false, if only another layout than the file's fails."""
        yield from filter(None, [false_layout(self.case.op, self.source, self.host, conversion)])


def channels_first(face: Entry) -> dict[str, str]:
    """Return ``--layout`` options that move the last axis to position 1, for every graph input and output of rank 3 and more.

    Complex numbers stay as they are: their pairs are an axis of the ONNX model only.
    """
    turned = {}
    for tensor, name in (
        *zip(face.inputs, face.input_names, strict=True),
        *zip(face.outputs, face.output_names, strict=True),
    ):
        if tensor.rank >= 3 and not tensor.dtype.startswith("complex"):
            before = "nabcdefg"[: tensor.rank - 1] + "z"
            turned[name] = f"{before}:{before[0]}z{before[1:-1]}"
    return turned


def _equal(some: Runs, others: Runs) -> bool:
    """True if both models have the same bytes, so that one result holds for both."""
    return all(
        (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
        for run, again in zip(some, others, strict=True)
        for one, other in zip(run, again, strict=True)
    )


def _line(error: ConversionError) -> str:
    """Return an error on one line, without the remedies against op packs: its reader is an author of the pack."""
    problems = [
        replace(one, hint="") if isinstance(one, AttributedProblem) and not one.to_converter else one
        for one in error.problems
    ]
    return " ".join(" ".join([error.message, *map(str, problems)]).split())
