"""Trials of models on other processors: LiteRT's results here, jobs for the worker, and comparison of its results."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.runner import CaseTrial, Runs
from conformance.variants import Variant
from onnx_tflite_plugin.errors import ConversionError, VerificationError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, OnnxRuntime
from tests.qa.emulation.catalogue import Entry
from tests.qa.emulation.emulation import Command
from tests.qa.emulation.machines import Processor

WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 900  # seconds for all models on one processor
STATIC: Mapping[str, Any] = {"weights_dtype": "int8"}
DEFAULT = Variant("onnxruntime", None, "least")


class _Recorded:
    """A local session that records its feeds."""

    def __init__(self, session: OnnxRuntime) -> None:
        self.session = session
        self.inputs, self.outputs, self.tensor_values = session.inputs, session.outputs, session.tensor_values
        self.feeds: list[dict[str, Array]] = []

    def run(self, inputs: Mapping[str, Array], /) -> Sequence[Array]:
        # what is carried from run to run is the worker's business, but for what it begins with
        self.feeds.append(dict(inputs) if self.feeds else self.session.feeds(inputs))
        return self.session.run(inputs)


class _Replayed:
    """A session that returns recorded outputs of another session, run by run."""

    def __init__(self, recorded: _Recorded, given: Iterable[Sequence[Array]]) -> None:
        self.inputs, self.outputs, self.tensor_values = recorded.inputs, recorded.outputs, recorded.tensor_values
        self._given = iter(given)

    def run(self, inputs: Mapping[str, Array], /) -> Sequence[Array]:
        return next(self._given)


class Converted:
    """One conversion of an entry. ``planted``: the weights of all products are int8, even if they overflow."""

    def __init__(self, entry: Entry, host: Host, *, planted: bool = False) -> None:
        self.entry = entry
        self.planted = planted
        self.name = f"{entry.name}{' (int8)' if planted else ''}"
        options = {**entry.case.options, **(STATIC if planted else {})}
        self._trial = CaseTrial(replace(entry.case, options=options), host)
        self.session = _Recorded(OnnxRuntime(self._trial.convert(DEFAULT).proto))
        self.here = self._trial.run_in(self.session)
        self.expected = (
            self._trial.reference_outputs
        )  # now: it silences the whole process, so that no thread may ask for it

    @property
    def varies(self) -> bool:
        """True if LiteRT's results vary between elements; otherwise hardly any fault could show."""
        steps = next(iter(self.expected.values()))
        return len({value for arrays in steps for array in arrays for value in array.ravel().tolist()}) > 4

    def job(self, folder: Path, file: str) -> dict[str, Any]:
        """Write model and feeds into the folder and return the worker's job."""
        recorded, session = self.session, self.session.session
        (folder / f"{file}.onnx").write_bytes(session.proto.SerializeToString())
        arrays = {f"{k}.{p}": a for k, fed in enumerate(recorded.feeds) for p, a in enumerate(fed.values())}
        np.savez(folder / f"{file}.feeds.npz", **arrays)  # type: ignore[arg-type]
        return {
            "name": file,
            "model": f"{file}.onnx",
            "feeds": f"{file}.feeds.npz",
            "runs": [[*fed] for fed in recorded.feeds],
            "outputs": [info.name for info in recorded.outputs],
            "states": [{"input": state.input, "output": state.output} for state in session.states],
        }

    def compare(self, outputs: Path) -> tuple[Comparison, ...]:
        """Compare the worker's results with LiteRT's on this processor."""
        with np.load(outputs) as stored:
            given = [
                [stored[f"{k}.{place}"] for place in range(len(self.session.outputs))]
                for k in range(len(self.session.feeds))
            ]
        return self.judge(self._trial.run_in(_Replayed(self.session, given)))

    def judge(self, actual: Runs) -> tuple[Comparison, ...]:
        return tuple(self._trial.compare(actual, self.expected))


@dataclass(frozen=True)
class Models:
    """Converted models, and their problems before any processor has run them."""

    converted: tuple[Converted, ...]
    problems: tuple[str, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        return [one.entry for one in self.converted if not one.planted]

    def on(self, processor: Processor) -> list[Converted]:
        """Yield the trials of a processor: every model, and the static forms only if they overflow there."""
        return [one for one in self.converted if not one.planted or processor.overflow in one.entry.overflows]


def convert_entries(entries: Iterable[Entry], part: str = "") -> Models:
    """Convert the entries whose names contain a text, with default options and, if that may overflow, with static int8.

    Of each kind of overflow one is planted whatever the part is.
    """
    host, models, problems = Host(packs="builtin"), [], []
    planted: set[str] = set()
    for entry in entries:
        chosen = part in entry.name
        try:
            if chosen:
                models.append(Converted(entry, host))
                if not models[-1].varies:
                    problems.append(f"{entry.name}: its results hardly vary: the trial proves nothing")
            if (chosen and entry.overflows) or not planted.issuperset(entry.overflows):
                models.append(Converted(entry, host, planted=True))
                planted.update(entry.overflows)
        except (ConversionError, VerificationError) as error:
            problems.append(f"{entry.name}: {' '.join(str(error).split())}")
    return Models(tuple(models), tuple(problems))


# --- what came of it --------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """One model on one processor. ``text``: its error, or the reason why it did not run."""

    name: str
    planted: bool
    within: bool
    text: str
    seconds: float = 0.0

    @property
    def problem(self) -> str:
        """Return a problem of the model or of the trial itself, or ""."""
        if not self.planted:
            return "" if self.within else f"{self.name}: {self.text}"
        return f"{self.name}: it overflows here, and that is not seen: the trial proves nothing" if self.within else ""


@dataclass(frozen=True)
class Report:
    """All models on one processor; ``mistaken``: wrong features of the processor, or the reason why the trial stopped."""

    processor: Processor
    outcomes: tuple[Outcome, ...]
    mistaken: str = ""
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        problems = [self.mistaken] if self.mistaken else []
        if self.processor.overflow and not any(one.planted for one in self.outcomes):
            problems.append("nothing was tried that overflows here: the trial proves nothing")
        return [*problems, *(one.problem for one in self.outcomes if one.problem)]

    @property
    def text(self) -> str:
        models = sum(not one.planted for one in self.outcomes)
        planted = len(self.outcomes) - models
        head = f"{self.processor.name}: {models} models, {planted} planted overflows, {self.seconds:.0f} s"
        return "\n".join([head, *(f"  FAILED {problem}" for problem in self.problems)])


def try_on(processor: Processor, command: Command, models: Models, folder: Path) -> Report:
    """Run the models with a command; ``folder`` is for files of the worker."""
    folder.mkdir(parents=True)
    chosen = {str(k): one for k, one in enumerate(models.on(processor))}
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps([one.job(folder, name) for name, one in chosen.items()]))
    start = time.perf_counter()
    arguments = [*command.start, str(WORKER), str(jobs), str(folder)]
    try:
        ran = subprocess.run(arguments, env=command.environment, capture_output=True, text=True, timeout=TIMEOUT)
        output, errors, status = ran.stdout, ran.stderr, ran.returncode
    except subprocess.TimeoutExpired as error:
        output, errors, status = _text(error.stdout), f"no end after {TIMEOUT} s", 1
    seconds = time.perf_counter() - start
    lines = [json.loads(line) for line in output.splitlines()]
    features = next((line["features"] for line in lines if "features" in line), None)
    done = {line["job"]: line for line in lines if "job" in line}
    started = [line["started"] for line in lines if "started" in line]
    mistaken = processor.mistaken(features) if features is not None else "it did not come up"
    if mistaken and features is not None:
        mistaken = f"emulated as a processor {mistaken}"
    if status:
        at = f" at {chosen[started[-1]].name}" if started and started[-1] not in done else ""
        mistaken = f"ended with status {status}{at}: {_end(errors)}"
    outcomes = tuple(_outcome(one, done.get(name), folder / f"{name}.npz") for name, one in chosen.items())
    return Report(processor, outcomes, mistaken, seconds)


def _outcome(model: Converted, record: Mapping[str, Any] | None, outputs: Path) -> Outcome:
    if record is None or "error" in record:
        text = "it was not reached" if record is None else f"ONNX Runtime: {record['error']}"
        return Outcome(model.name, model.planted, within=model.planted, text=text)
    compared = model.compare(outputs)
    worst = max(compared, key=lambda one: (not one.ok, one.distance))
    return Outcome(model.name, model.planted, all(one.ok for one in compared), worst.text, record["seconds"])


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _end(errors: str) -> str:
    lines = [line for line in errors.splitlines() if "TCG doesn't support" not in line]
    return lines[-1] if lines else "it printed nothing"
