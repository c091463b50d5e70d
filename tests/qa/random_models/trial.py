"""Trials of random models, each in a separate process that may crash."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

from conformance.case import Case
from conformance.runner import CaseTrial
from conformance.variants import Variant
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import LiteRTError, OrtError, verify
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from tests.qa.random_models.draw import DRAWERS, Draw, case
from tests.qa.random_models.networks import input_shape, kind, network

Kind = Literal["equal", "different", "refused", "not run", "crash"]
SECONDS = 30  # for one model, before its process is ended
HOST = Host(packs="builtin")
CRASH: Kind = "crash"
PROPAGATED_ERROR = 16  # times the tolerance
FEW = 0.1  # of the elements
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"target": "generic"},
    {"io_layout": "onnx"},
    {"layout_plan": "local"},
    {"quantization": "float"},
    {"optimize": "none"},
    {"optimize": "speed"},
    {"opset": 18},
    {"opset": 23},
    {"weights_dtype": "uint8"},
    {"weights_dtype": "keep"},
    {"input_shape": {}},
    {"target": "openvino"},
)
UNROUNDED = ("quantization", "target", "optimize")  # what such options make of dynamic quantization, LiteRT rounds


class Trial(Protocol):
    """A model to try."""

    @property
    def seed(self) -> int: ...
    @property
    def number(self) -> int: ...

    def label(self) -> tuple[str, str, str]:
        """Operator, dtype and conversion options."""

    def try_model(self, reported: Stage) -> Outcome:
        """Return the outcome; ``reported`` is called when the converter begins."""


class Outcome(NamedTuple):
    """Outcome of a trial. ``not run``: LiteRT refused or crashed. ``crash``: the process crashed after LiteRT ran."""

    kind: Kind
    text: str = ""


@dataclass(frozen=True)
class Model:
    """Random model ``number`` of a seed, of one of the operators."""

    seed: int
    number: int
    ops: Sequence[str]

    def case(self) -> tuple[Case, Variant]:
        draw = Draw(self.seed, self.number)
        drawn = case(draw, draw.pick(*self.ops))
        plan = "channels-first" if draw.chance(0.2) else "least"
        return drawn, Variant(draw.pick("onnxruntime", "onnxruntime", "onnxruntime", "generic"), None, plan)

    def label(self) -> tuple[str, str, str]:
        drawn, variant = self.case()
        return drawn.op, drawn.dtype, variant.text

    def try_model(self, reported: Stage) -> Outcome:
        drawn, variant = self.case()
        try:
            trial = CaseTrial(drawn, HOST)
            try:
                expected = trial.reference_outputs
            except LiteRTError:  # at the other sizes, perhaps
                trial = CaseTrial(replace(drawn, sizes=()), HOST)
                expected = trial.reference_outputs
        except LiteRTError as error:
            return Outcome("not run", str(error))
        reported.converting()
        try:
            turned = trial.layout_options() if variant.plan == "channels-first" else {}
            actual = trial.run(trial.convert(variant, turned))
        except (OrtError, ConversionError) as error:
            return failure_outcome(error)
        wrong = list(trial.mismatches(actual, expected))
        return Outcome("different", "; ".join(wrong)) if wrong else Outcome("equal")


@dataclass(frozen=True)
class NetworkModel:
    """Random network ``number`` of a seed."""

    seed: int
    number: int

    def options(self) -> Mapping[str, Any]:
        draw = Draw(self.number, self.seed)  # not the numbers that the network is drawn with, nor its kind
        chosen: Mapping[str, Any] = draw.pick(*[{}] * 5, *OPTIONS)
        made = kind(self.seed, self.number)
        if "input_shape" in chosen:
            shape = list(input_shape(self.seed, self.number))
            shape[draw.between(0, len(shape) - 2)] += draw.between(1, 3)
            return {"input_shape": {"x0": shape}}
        if made == "dynamic" and not chosen.keys().isdisjoint(UNROUNDED):
            return {}
        return {} if made == "int16" and chosen in ({"opset": 18}, {"target": "openvino"}) else chosen

    def label(self) -> tuple[str, str, str]:
        return "NETWORK", kind(self.seed, self.number), str(self.options())

    def try_model(self, reported: Stage) -> Outcome:
        try:
            data = network(self.seed, self.number)
        except RuntimeError as error:
            return Outcome("not run", str(error))
        reported.converting()
        try:
            conversion = convert(data, host=HOST, **self.options())
            reported.comparing()
            verification = verify(data, conversion, host=HOST, runs=2)
        except LiteRTError as error:
            return Outcome("not run", str(error))
        except (OrtError, ConversionError) as error:
            return failure_outcome(error)
        if verification.ok or _small(verification.comparisons):
            return Outcome("equal")
        return Outcome("different", verification.text)


def _small(comparisons: Iterable[Comparison]) -> bool:
    """True if integers differ by a few steps, as finer scales cause, or in few elements."""
    return all(
        one.ok or (one.unit == "step" and (one.distance <= PROPAGATED_ERROR * one.tolerance or one.differing <= FEW))
        for one in comparisons
    )


def failure_outcome(error: ConversionError) -> Outcome:
    if isinstance(error, OrtError):
        return Outcome("different", f"ONNX Runtime: {error}")
    return Outcome("different" if "please report" in str(error) else "refused", str(error))


def operators() -> tuple[str, ...]:
    return tuple(sorted(DRAWERS))


class Stage:
    """Writer of JSON lines from the trial process to its parent."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w")

    def converting(self) -> None:
        print(json.dumps("converting"), file=self._pipe, flush=True)

    def comparing(self) -> None:
        """Report that LiteRT runs again, for the comparison."""
        print(json.dumps("comparing"), file=self._pipe, flush=True)

    def finish(self, outcome: Outcome) -> None:
        print(json.dumps(outcome), file=self._pipe, flush=True)


def outcomes(models: Sequence[Trial]) -> Iterator[Outcome]:
    """Yield the outcome of each model."""
    done = 0
    while done < len(models):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _serve(models[done:], Stage(writer))
        os.close(writer)
        converting = False
        with os.fdopen(reader) as pipe:
            for line in pipe:
                reported = json.loads(line)
                converting = reported == "converting"
                if isinstance(reported, str):
                    continue
                done += 1
                yield Outcome(*reported)
        _, status = os.waitpid(child, 0)
        if done < len(models):
            done += 1
            text = f"died of {os.waitstatus_to_exitcode(status)}"
            yield Outcome(CRASH, text) if converting else Outcome("not run", f"LiteRT {text}")


def _serve(models: Sequence[Trial], reported: Stage) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    for model in models:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processors: on a busy machine time passes as well
        signal.alarm(10 * SECONDS)
        try:
            reported.finish(model.try_model(reported))
        except Exception as error:
            reported.finish(Outcome(CRASH, f"{type(error).__name__}: {error}"))
    os._exit(0)


class Tally:
    """Counts per outcome and operator, and the first models of each class of difference."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.operators: Counter[tuple[str, str]] = Counter()
        self.classes: dict[tuple[str, str, str, str], list[int]] = {}

    def add(self, model: Trial, outcome: Outcome) -> bool:
        """Add a difference; return True if it is the first of its class."""
        op, dtype, _ = model.label()
        self.kinds[outcome.kind] += 1
        self.operators[op, outcome.kind] += 1
        if outcome.kind == "equal":
            return False
        key = (outcome.kind, op, dtype, general(outcome.text))
        numbers = self.classes.setdefault(key, [])
        numbers.append(model.number)
        return len(numbers) == 1


def general(text: str) -> str:
    """Return a message without its numbers and names."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.e+-]*|\[[^]]*\]|\([^)]*\)", "…", " ".join(text.split()))[:90]
