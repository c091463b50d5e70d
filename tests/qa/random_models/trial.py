"""Trials of random models in a subprocess, which is restarted after a crash."""

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
from tests.qa.random_models.draw import CASE_GENERATORS, Draw, case
from tests.qa.random_models.networks import input_shape, kind, network

Kind = Literal["equal", "different", "refused", "not run", "crash"]
SECONDS = 30  # maximum processor time of one model
HOST = Host(packs="builtin")
CRASH: Kind = "crash"
PROPAGATED_ERROR = 16  # maximum error of a network, as a multiple of the tolerance
MAX_DIFFERING = 0.1  # maximum share of elements that differ
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
ROUNDING_OPTIONS = ("quantization", "target", "optimize")
"""Options with which activations are not rounded as in LiteRT's dynamic range quantization."""


class Trial(Protocol):
    """A model to convert and compare."""

    @property
    def seed(self) -> int: ...
    @property
    def number(self) -> int: ...

    def label(self) -> tuple[str, str, str]:
        """Return operator, dtype and conversion options."""

    def try_model(self, stage: Stage) -> Outcome:
        """Return the outcome; ``stage`` is called when the converter begins."""


class Outcome(NamedTuple):
    """Outcome of a trial.

    ``not run``: LiteRT refused or crashed. ``crash``: the process crashed after LiteRT ran.
    """

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
        random_case = case(draw, draw.pick(*self.ops))
        plan = "channels-first" if draw.chance(0.2) else "least"
        return random_case, Variant(draw.pick("onnxruntime", "onnxruntime", "onnxruntime", "generic"), None, plan)

    def label(self) -> tuple[str, str, str]:
        random_case, variant = self.case()
        return random_case.op, random_case.dtype, variant.text

    def try_model(self, stage: Stage) -> Outcome:
        random_case, variant = self.case()
        try:
            trial = CaseTrial(random_case, HOST)
            try:
                expected = trial.reference_outputs
            except LiteRTError:  # LiteRT may refuse the further sizes
                trial = CaseTrial(replace(random_case, dynamic_sizes=()), HOST)
                expected = trial.reference_outputs
        except LiteRTError as error:
            return Outcome("not run", str(error))
        stage.converting()
        try:
            layout_options = trial.layout_options() if variant.plan == "channels-first" else {}
            actual = trial.run(trial.convert(variant, layout_options))
        except (OrtError, ConversionError) as error:
            return failure_outcome(error)
        mismatches = list(trial.mismatches(actual, expected))
        return Outcome("different", "; ".join(mismatches)) if mismatches else Outcome("equal")


@dataclass(frozen=True)
class NetworkModel:
    """Random network ``number`` of a seed."""

    seed: int
    number: int

    def options(self) -> Mapping[str, Any]:
        draw = Draw(self.number, self.seed)  # swapped, so that the options do not depend on the network
        options: Mapping[str, Any] = draw.pick(*[{}] * 5, *OPTIONS)
        network_kind = kind(self.seed, self.number)
        if "input_shape" in options:
            shape = list(input_shape(self.seed, self.number))
            shape[draw.between(0, len(shape) - 2)] += draw.between(1, 3)
            return {"input_shape": {"x0": shape}}
        if network_kind == "dynamic" and not options.keys().isdisjoint(ROUNDING_OPTIONS):
            return {}
        return {} if network_kind == "int16" and options in ({"opset": 18}, {"target": "openvino"}) else options

    def label(self) -> tuple[str, str, str]:
        return "NETWORK", kind(self.seed, self.number), str(self.options())

    def try_model(self, stage: Stage) -> Outcome:
        try:
            data = network(self.seed, self.number)
        except RuntimeError as error:
            return Outcome("not run", str(error))
        stage.converting()
        try:
            conversion = convert(data, host=HOST, **self.options())
            stage.comparing()
            verification = verify(data, conversion, host=HOST, runs=2)
        except LiteRTError as error:
            return Outcome("not run", str(error))
        except (OrtError, ConversionError) as error:
            return failure_outcome(error)
        if verification.ok or _is_small_difference(verification.comparisons):
            return Outcome("equal")
        return Outcome("different", verification.text)


def _is_small_difference(comparisons: Iterable[Comparison]) -> bool:
    """True if integers differ by a few steps, or in few elements.

    An error of one step upstream has this effect if later scales are finer.
    """
    return all(
        comparison.ok
        or (
            comparison.unit == "step"
            and (
                comparison.max_error <= PROPAGATED_ERROR * comparison.tolerance or comparison.differing <= MAX_DIFFERING
            )
        )
        for comparison in comparisons
    )


def failure_outcome(error: ConversionError) -> Outcome:
    if isinstance(error, OrtError):
        return Outcome("different", f"ONNX Runtime: {error}")
    return Outcome("different" if "please report" in str(error) else "refused", str(error))


def operators() -> tuple[str, ...]:
    return tuple(sorted(CASE_GENERATORS))


class Stage:
    """Writes the progress of a trial as JSON lines from its process to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w")

    def converting(self) -> None:
        print(json.dumps("converting"), file=self._pipe, flush=True)

    def comparing(self) -> None:
        """Report that the conversion is finished and LiteRT runs again for the comparison."""
        print(json.dumps("comparing"), file=self._pipe, flush=True)

    def finish(self, outcome: Outcome) -> None:
        print(json.dumps(outcome), file=self._pipe, flush=True)


def outcomes(models: Sequence[Trial]) -> Iterator[Outcome]:
    """Yield the outcome of each model."""
    model_count = 0
    while model_count < len(models):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _serve(models[model_count:], Stage(writer))
        os.close(writer)
        converting = False
        with os.fdopen(reader) as pipe:
            for line in pipe:
                reported = json.loads(line)
                converting = reported == "converting"
                if isinstance(reported, str):
                    continue
                model_count += 1
                yield Outcome(*reported)
        _, status = os.waitpid(child, 0)
        if model_count < len(models):
            model_count += 1
            text = f"ended with {os.waitstatus_to_exitcode(status)}"
            yield Outcome(CRASH, text) if converting else Outcome("not run", f"LiteRT {text}")


def _serve(models: Sequence[Trial], stage: Stage) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    for model in models:
        # Processor time, because wall-clock time depends on other processes.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(10 * SECONDS)
        try:
            stage.finish(model.try_model(stage))
        except Exception as error:
            stage.finish(Outcome(CRASH, f"{type(error).__name__}: {error}"))
    os._exit(0)


class Tally:
    """Counts per outcome and operator, and the models of each class of differences."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.operators: Counter[tuple[str, str]] = Counter()
        self.classes: dict[tuple[str, str, str, str], list[int]] = {}

    def add(self, model: Trial, outcome: Outcome) -> bool:
        """Count an outcome; return True if it is the first of its class of differences."""
        op, dtype, _ = model.label()
        self.kinds[outcome.kind] += 1
        self.operators[op, outcome.kind] += 1
        if outcome.kind == "equal":
            return False
        key = (outcome.kind, op, dtype, message_class(outcome.text))
        numbers = self.classes.setdefault(key, [])
        numbers.append(model.number)
        return len(numbers) == 1


def message_class(text: str) -> str:
    """Return a message without its numbers and names."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.e+-]*|\[[^]]*\]|\([^)]*\)", "…", " ".join(text.split()))[:90]
