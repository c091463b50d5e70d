"""What becomes of drawn models, each tried in a process that may die of it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from conformance.case import Case
from conformance.runner import CaseTrial, Variant
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import LiteRTError, OrtError

from .draw import DRAWERS, Draw, case

Kind = Literal["equal", "different", "refused", "not run", "crash"]
SECONDS = 30  # for one model, before its process is ended
HOST = Host(packs="builtin")
CRASH: Kind = "crash"


class Outcome(NamedTuple):
    """``not run``: LiteRT refuses the model, or dies of it. ``crash``: the process died after LiteRT had run it."""

    kind: Kind
    text: str = ""


@dataclass(frozen=True)
class Model:
    """Model ``number`` of a seed, of one of the operators."""

    seed: int
    number: int
    ops: Sequence[str]

    def case(self) -> tuple[Case, Variant]:
        draw = Draw(self.seed, self.number)
        drawn = case(draw, draw.pick(*self.ops))
        plan = "turned" if draw.chance(0.2) else "least"
        return drawn, Variant(draw.pick("onnxruntime", "onnxruntime", "onnxruntime", "generic"), None, plan)


def operators() -> tuple[str, ...]:
    return tuple(sorted(DRAWERS))


def tried(model: Model, told: Stage) -> Outcome:
    """What becomes of one model; ``told`` is called as the converter's turn comes."""
    drawn, variant = model.case()
    try:
        trial = CaseTrial(drawn, HOST)
        try:
            expected = trial.expected
        except LiteRTError:  # at the other sizes, perhaps
            trial = CaseTrial(replace(drawn, sizes=()), HOST)
            expected = trial.expected
    except LiteRTError as error:
        return Outcome("not run", str(error))
    told.converting()
    try:
        turned = trial.turned() if variant.plan == "turned" else {}
        actual = trial.run(trial.converted(variant, turned))
    except OrtError as error:
        return Outcome("different", f"ONNX Runtime: {error}")
    except ConversionError as error:
        return Outcome("different" if "please report" in str(error) else "refused", str(error))
    wrong = list(trial.mismatches(actual, expected))
    return Outcome("different", "; ".join(wrong)) if wrong else Outcome("equal")


class Stage:
    """Lines of JSON from the process that tries to the one that asked."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w")

    def converting(self) -> None:
        print(json.dumps("converting"), file=self._pipe, flush=True)

    def done(self, outcome: Outcome) -> None:
        print(json.dumps(outcome), file=self._pipe, flush=True)


def outcomes(models: Sequence[Model]) -> Iterator[Outcome]:
    """One for each model."""
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
                told = json.loads(line)
                if converting := told == "converting":
                    continue
                done += 1
                yield Outcome(*told)
        _, status = os.waitpid(child, 0)
        if done < len(models):
            done += 1
            text = f"died of {os.waitstatus_to_exitcode(status)}"
            yield Outcome(CRASH, text) if converting else Outcome("not run", f"LiteRT {text}")


def _serve(models: Sequence[Model], told: Stage) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    for model in models:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processors: on a busy machine time passes as well
        signal.alarm(10 * SECONDS)
        try:
            told.done(tried(model, told))
        except Exception as error:
            told.done(Outcome(CRASH, f"{type(error).__name__}: {error}"))
    os._exit(0)


class Tally:
    """How many came to what, by operator; and each class of what is not equal, with the first models of it."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.operators: Counter[tuple[str, str]] = Counter()
        self.classes: dict[tuple[str, str, str, str], list[int]] = {}

    def add(self, model: Model, outcome: Outcome) -> bool:
        """Whether it is the first of its class."""
        drawn, _ = model.case()
        self.kinds[outcome.kind] += 1
        self.operators[drawn.op, outcome.kind] += 1
        if outcome.kind == "equal":
            return False
        key = (outcome.kind, drawn.op, drawn.dtype, general(outcome.text))
        numbers = self.classes.setdefault(key, [])
        numbers.append(model.number)
        return len(numbers) == 1


def general(text: str) -> str:
    """A message without its numbers and names."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.e+-]*|\[[^]]*\]|\([^)]*\)", "…", " ".join(text.split()))[:90]
