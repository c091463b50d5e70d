"""Runs cases: converts each under every layout plan, target and opset it asks for, and compares with LiteRT."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import Terminated, debug, raised
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array, Model
from onnx_tflite_plugin.verify import Comparison, LiteRT, LiteRTError, OnnxRuntime, Tolerance, compare, draw
from onnx_tflite_plugin.verify.compare import as_pairs, inherited_step
from onnx_tflite_plugin.verify.ort import Place
from onnx_tflite_plugin.verify.real import as_real, as_stored, is_real
from onnx_tflite_plugin.verify.structure import Entry, entry, producers, read

from .bounds import tolerance
from .case import Case

Status = Literal["passed", "failed", "skipped", "known"]
Steps = Sequence[Sequence[Array]]

EXACT = 1e-5  # of the range: the models around an operator add no rounding of their own


class Session(Protocol):
    """What ``Trial.stepped`` asks of a session: ``OnnxRuntime``, or what stands in for one."""

    @property
    def inputs(self) -> Sequence[Any]: ...

    @property
    def outputs(self) -> Sequence[Any]: ...

    @property
    def places(self) -> Sequence[Place]: ...

    def step(self, inputs: Mapping[str, Array], /) -> Sequence[Array]: ...


class Variant(NamedTuple):
    """One conversion of a case. ``plan`` is "least", "local", or "turned": graph inputs and outputs channels first."""

    target: str
    opset: int | None
    plan: str

    @property
    def text(self) -> str:
        return f"{self.target}{f' opset {self.opset}' if self.opset else ''} {self.plan}"


@dataclass(frozen=True)
class CaseResult:
    """How a case went; ``reasons`` has one line a failed variant, or why it was skipped."""

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


def run_case(case: Case, host: Host | None = None) -> CaseResult:
    """The outcome of one case; nothing is raised that the case itself causes."""
    start = time.perf_counter()
    host = host or Host()
    variants = list(_variants(case))
    try:
        trial = Trial(case, host)
        if case.kernel_refuses:
            status, reasons = trial.kernels_refuse()
        elif case.refused:
            status, reasons = trial.refusals(variants)
        else:
            status, reasons = trial.failures(variants)
    except (KeyboardInterrupt, Terminated):
        raise
    except BaseException as error:  # whatever a case or its reference raises
        debug(error)
        status, reasons = "failed", [f"the case cannot be run: {raised(error)}"]
    if case.known:
        status, reasons = _known(case, status, reasons)
    return CaseResult(case, status, tuple(reasons), len(variants), time.perf_counter() - start)


def complaints(case: Case, host: Host, **options: Any) -> list[str]:
    """What is wrong with one conversion of a case under other options than its own; ConversionError where it is refused."""
    trial = Trial(replace(case, options={**case.options, **options}), host)
    target = options.get("target", "onnxruntime")
    return list(trial.complaints(trial.run(trial.converted(Variant(target, None, "least"))), trial.expected))


def _known(case: Case, status: Status, reasons: Sequence[str]) -> tuple[Status, list[str]]:
    if status == "passed":
        return "failed", ["it passes although it is marked as known to fail"]
    return "known", [case.known, *reasons]


def _variants(case: Case) -> Iterator[Variant]:
    for target in case.targets:
        for opset in case.opsets:
            yield Variant(target, opset, "least")
            yield Variant(target, opset, "local")
        yield Variant(target, case.opsets[0], "turned")


class _Complaints:
    """What is wrong, each with the variants that say so."""

    def __init__(self) -> None:
        self._by_text: dict[str, list[str]] = {}

    def add(self, variant: Variant, *texts: str) -> None:
        for text in texts:
            self._by_text.setdefault(text, []).append(variant.text)

    @property
    def status(self) -> Status:
        return "failed" if self._by_text else "passed"

    @property
    def lines(self) -> list[str]:
        return [f"{', '.join(variants)}: {text}" for text, variants in self._by_text.items()]


class Trial:
    """One case with what its variants share: the file, the inputs, what LiteRT computes."""

    def __init__(self, case: Case, host: Host) -> None:
        self.case = case
        self.host = host
        self.data = case.build()
        self.model: Model = read(self.data)
        self.entry: Entry = entry(self.model)

    # --- what is expected ---------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[list[Array]]:
        given = self._given()
        return [
            *draw(self.entry, given=given, steps=self.case.runs),
            *(arrays for other in self._resized(given[0]) for arrays in draw(self.entry, **other)),
        ]

    def _resized(self, given: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
        """What is drawn at each of the case's other sizes: axes differ, and are alike where they meet in a broadcast."""
        opened = {
            name: tensor.dims
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
            if not tensor.static
        }
        remembers = any(tensor.is_variable for tensor in self.entry.subgraph.tensors)  # LiteRT forgets where it resizes
        for size in self.case.sizes if opened and not remembers else ():
            shapes = {
                name: tuple(size + axis if n is None else n for axis, n in enumerate(dims))
                for name, dims in opened.items()
            }
            repeated = {name: np.resize(given[name], shape) for name, shape in shapes.items() if name in given}
            yield {"given": {**given, **repeated}, "shapes": shapes}

    def _given(self) -> Any:
        """The case's inputs, and real numbers drawn from its span."""
        given, span = self.case.given, self.case.span
        steps = [given or {}] * self.case.runs if given is None or isinstance(given, Mapping) else given
        return [{**(self._spanned(step, *span) if span else {}), **known} for step, known in enumerate(steps)]

    def _spanned(self, step: int, low: float, high: float) -> dict[str, Array]:
        generator = np.random.default_rng(step)
        return {
            name: generator.uniform(low, high, tensor.shape).astype(tensor.dtype)
            for tensor, name in zip(self.entry.inputs, self.entry.input_names, strict=True)
            if tensor.dtype.startswith("float")
        }

    @cached_property
    def expected(self) -> dict[str, Steps]:
        """Outputs of each run by kernel set; the reference kernels' only where nothing else runs."""
        if self.case.reference is not None:
            reference = self.case.reference
            return {"reference function": [[np.asarray(a) for a in reference(arrays)] for arrays in self.steps]}
        found: dict[str, Steps] = {}
        failures = []
        for kernels in ("xnnpack", "builtin", "reference"):
            if kernels == "reference" and found:
                break
            try:
                found[kernels] = self.litert(kernels)
            except LiteRTError as error:
                failures.append(str(error))
        if not found:
            raise LiteRTError("; ".join(dict.fromkeys(failures)))
        return found

    def litert(self, kernels: str) -> Steps:
        """The outputs of each run; a session of its own where states are reset."""
        fresh = self.case.options.get("state") == "reset"
        sessions = [LiteRT(self.data, kernels, known=self.model) for _ in (self.steps if fresh else [None])]
        return [sessions[k if fresh else 0].step(arrays) for k, arrays in enumerate(self.steps)]

    @cached_property
    def tolerance(self) -> Tolerance:
        rounded = self.case.options.get("quantization") != "float"
        asked = self.case.tolerance or tolerance(self.case.op, self.case.dtype, rounded=rounded)
        if asked is not None:
            return asked
        usual = Tolerance.of(self.model)
        return usual if usual.real > Tolerance().real else Tolerance(real=EXACT)

    # --- the three kinds of case --------------------------------------------------------------

    def kernels_refuse(self) -> tuple[Status, list[str]]:
        try:
            _ = self.expected
        except LiteRTError as error:
            if self.case.kernel_refuses in str(error):
                return "skipped", [f"LiteRT refuses it: {self.case.kernel_refuses}"]
            return "failed", [f"LiteRT refuses it for another reason: {error}"]
        return "failed", [f"LiteRT runs it; it was to refuse with {self.case.kernel_refuses!r}"]

    def refusals(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        said = _Complaints()
        for variant in variants:
            if variant.plan == "turned":
                continue
            try:
                self.converted(variant)
                said.add(variant, f"it was converted, not refused with {self.case.refused!r}")
            except ConversionError as error:
                if self.case.refused not in str(error):
                    said.add(variant, f"refused for another reason: {_line(error)}")
        return said.status, said.lines

    def failures(self, variants: Sequence[Variant]) -> tuple[Status, list[str]]:
        expected = self.expected
        said = _Complaints()
        outputs: dict[Variant, Steps] = {}
        for variant in variants:
            try:
                turned = self.turned() if variant.plan == "turned" else {}
                if variant.plan == "turned" and not turned:
                    continue
                conversion = self.converted(variant, turned)
                outputs[variant] = self.run(conversion)
            except ConversionError as error:
                said.add(variant, _line(error))
                continue
            said.add(variant, *self.complaints(outputs[variant], expected))
            if variant.plan == "least":
                said.add(variant, *self._layout(conversion))
            other = outputs.get(variant._replace(plan="least"))
            if variant.plan == "local" and other is not None:
                said.add(variant, *self.complaints(outputs[variant], {"the least plan": other}))
        return said.status, said.lines

    # --- one variant --------------------------------------------------------------------------

    def converted(self, variant: Variant, turned: Mapping[str, str] | None = None) -> Conversion:
        options = {**self.case.options, "target": variant.target, "opset": variant.opset}
        if variant.plan == "local":
            options["layout_plan"] = "local"
        if turned:
            options["layout"] = {**turned, **options.get("layout", {})}
        return convert(self.data, host=self.host, **options)

    def turned(self) -> dict[str, str]:
        return channels_first(self.entry)

    def run(self, conversion: Conversion) -> Steps:
        """The outputs of each run, in the TFLite model's orders."""
        return self.stepped(OnnxRuntime(conversion.proto))

    def stepped(self, session: Session) -> Steps:
        """The outputs of each run in a session of the converted model, wherever it computes."""
        places = {place.value: place for place in session.places}
        results = []
        for arrays in self.steps:
            feeds = {}
            for array, info, tensor in zip(arrays, session.inputs, self.entry.inputs, strict=True):
                value = as_pairs(array) if array.dtype.kind == "c" else array
                if is_real(info):
                    value = as_real(tensor, value)
                feeds[info.name] = places[info.name].apply(value) if info.name in places else value
            found = []
            for array, info, tensor in zip(session.step(feeds), session.outputs, self.entry.outputs, strict=True):
                restored = places[info.name].restore(array, array.dtype) if info.name in places else array
                found.append(as_stored(tensor, array if restored is None else restored))
            results.append(found)
        return results

    def complaints(self, actual: Steps, expected: Mapping[str, Steps]) -> Iterator[str]:
        return (f"{one.name}: {one.text}" for one in self.compared(actual, expected) if not one.ok)

    def compared(self, actual: Steps, expected: Mapping[str, Steps]) -> Iterator[Comparison]:
        made = producers(self.entry.subgraph)
        for k, (tensor, name) in enumerate(zip(self.entry.outputs, self.entry.output_names, strict=True)):
            yield compare(
                name,
                [arrays[k] for arrays in actual],
                {kernels: [arrays[k] for arrays in steps] for kernels, steps in expected.items()},
                self.tolerance,
                step=inherited_step(tensor, made, self.tolerance),
            )

    def _layout(self, conversion: Conversion) -> Iterator[str]:
        most, report = self.case.transposes, conversion.report
        if most is not None and report.transposes > most and not report.bought:
            yield f"the least plan has {report.transposes} Transposes, it may have {most}"


def channels_first(face: Entry) -> dict[str, str]:
    """``--layout`` for every graph input and output of rank 3 and up: the last axis goes second.

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


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
