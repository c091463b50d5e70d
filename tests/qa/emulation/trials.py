"""Trials of models on other processors.

LiteRT's results are computed here, and compared with those of the worker.
"""

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
        # the worker carries states from run to run; only the first feeds have initial states
        self.feeds.append(dict(inputs) if self.feeds else self.session.feeds(inputs))
        return self.session.run(inputs)


class _Replayed:
    """A session that returns recorded outputs of another session, run by run."""

    def __init__(self, recorded: _Recorded, outputs: Iterable[Sequence[Array]]) -> None:
        self.inputs, self.outputs, self.tensor_values = recorded.inputs, recorded.outputs, recorded.tensor_values
        self._outputs_per_run = iter(outputs)

    def run(self, inputs: Mapping[str, Array], /) -> Sequence[Array]:
        return next(self._outputs_per_run)


class Converted:
    """One conversion of an entry.

    ``planted``: the weights of all products are int8, even if they overflow.
    """

    def __init__(self, entry: Entry, host: Host, *, planted: bool = False) -> None:
        self.entry = entry
        self.planted = planted
        self.name = f"{entry.name}{' (int8)' if planted else ''}"
        options = {**entry.case.options, **(STATIC if planted else {})}
        self._trial = CaseTrial(replace(entry.case, options=options), host)
        self.session = _Recorded(OnnxRuntime(self._trial.convert(DEFAULT).proto))
        self.local_results = self._trial.run_in(self.session)
        # computed before threads start, because it redirects the output of the whole process
        self.expected = self._trial.reference_outputs

    @property
    def varies(self) -> bool:
        """True if LiteRT's results vary, so that errors can be detected."""
        steps = next(iter(self.expected.values()))
        return len({value for arrays in steps for array in arrays for value in array.ravel().tolist()}) > 4

    def job(self, folder: Path, file: str) -> dict[str, Any]:
        """Write model and feeds into the folder and return the worker's job."""
        recorded, session = self.session, self.session.session
        (folder / f"{file}.onnx").write_bytes(session.proto.SerializeToString())
        arrays = {f"{k}.{p}": a for k, feeds in enumerate(recorded.feeds) for p, a in enumerate(feeds.values())}
        np.savez(folder / f"{file}.feeds.npz", **arrays)  # type: ignore[arg-type]
        return {
            "name": file,
            "model": f"{file}.onnx",
            "feeds": f"{file}.feeds.npz",
            "runs": [[*feeds] for feeds in recorded.feeds],
            "outputs": [info.name for info in recorded.outputs],
            "states": [{"input": state.input, "output": state.output} for state in session.states],
        }

    def compare(self, outputs: Path) -> tuple[Comparison, ...]:
        """Compare the worker's results with LiteRT's on this processor."""
        with np.load(outputs) as arrays:
            actual = [
                [arrays[f"{k}.{position}"] for position in range(len(self.session.outputs))]
                for k in range(len(self.session.feeds))
            ]
        return self.compare_results(self._trial.run_in(_Replayed(self.session, actual)))

    def compare_results(self, actual: Runs) -> tuple[Comparison, ...]:
        return tuple(self._trial.compare(actual, self.expected))


@dataclass(frozen=True)
class Models:
    """Converted models, and the problems found during conversion."""

    converted: tuple[Converted, ...]
    problems: tuple[str, ...] = ()

    @property
    def entries(self) -> list[Entry]:
        return [model.entry for model in self.converted if not model.planted]

    def on(self, processor: Processor) -> list[Converted]:
        """Return the models for a processor; planted ones only if they overflow there."""
        return [model for model in self.converted if not model.planted or processor.overflow in model.entry.overflows]


def convert_entries(entries: Iterable[Entry], part: str = "") -> Models:
    """Convert the entries with ``part`` in their names.

    Each entry is converted with default options, and once more with int8 weights if its products may overflow. At least
    one model of each kind of overflow is converted, whatever ``part`` is.
    """
    host, models, problems = Host(packs="builtin"), [], []
    planted: set[str] = set()
    for entry in entries:
        selected = part in entry.name
        try:
            if selected:
                models.append(Converted(entry, host))
                if not models[-1].varies:
                    problems.append(f"{entry.name}: its results hardly vary, so the trial proves nothing")
            if (selected and entry.overflows) or not planted.issuperset(entry.overflows):
                models.append(Converted(entry, host, planted=True))
                planted.update(entry.overflows)
        except (ConversionError, VerificationError) as error:
            problems.append(f"{entry.name}: {' '.join(str(error).split())}")
    return Models(tuple(models), tuple(problems))


# --- results ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Outcome of one model on one processor.

    ``text``: its error, or the reason why it did not run.
    """

    name: str
    planted: bool
    within_tolerance: bool
    text: str
    seconds: float = 0.0

    @property
    def problem(self) -> str:
        """Return a problem of the model or of the trial itself; "" if there is none."""
        if not self.planted:
            return "" if self.within_tolerance else f"{self.name}: {self.text}"
        return (
            f"{self.name}: its overflow is not detected, so the trial proves nothing" if self.within_tolerance else ""
        )


@dataclass(frozen=True)
class Report:
    """Outcomes on one processor.

    ``failure``: wrong features of the processor, or the reason why the trial stopped.
    """

    processor: Processor
    outcomes: tuple[Outcome, ...]
    failure: str = ""
    seconds: float = 0.0

    @property
    def problems(self) -> list[str]:
        problems = [self.failure] if self.failure else []
        if self.processor.overflow and not any(outcome.planted for outcome in self.outcomes):
            problems.append("no model was run that overflows here, so the trial proves nothing")
        return [*problems, *(outcome.problem for outcome in self.outcomes if outcome.problem)]

    @property
    def text(self) -> str:
        models = sum(not outcome.planted for outcome in self.outcomes)
        planted = len(self.outcomes) - models
        head = f"{self.processor.name}: {models} models, {planted} planted overflows, {self.seconds:.0f} s"
        return "\n".join([head, *(f"  FAILED {problem}" for problem in self.problems)])


def run_on(processor: Processor, command: Command, models: Models, folder: Path) -> Report:
    """Run the models with a command; ``folder`` is for files of the worker."""
    folder.mkdir(parents=True)
    selected = {str(k): model for k, model in enumerate(models.on(processor))}
    jobs = folder / "jobs.json"
    jobs.write_text(json.dumps([model.job(folder, name) for name, model in selected.items()]))
    start = time.perf_counter()
    arguments = [*command.start, str(WORKER), str(jobs), str(folder)]
    try:
        completed = subprocess.run(arguments, env=command.environment, capture_output=True, text=True, timeout=TIMEOUT)
        output, errors, status = completed.stdout, completed.stderr, completed.returncode
    except subprocess.TimeoutExpired as error:
        output, errors, status = _text(error.stdout), f"not finished after {TIMEOUT} s", 1
    seconds = time.perf_counter() - start
    lines = [json.loads(line) for line in output.splitlines()]
    features = next((line["features"] for line in lines if "features" in line), None)
    records = {line["job"]: line for line in lines if "job" in line}
    started = [line["started"] for line in lines if "started" in line]
    failure = processor.feature_mismatch(features) if features is not None else "the worker did not start"
    if failure and features is not None:
        failure = f"emulated as a processor {failure}"
    if status:
        position = f" at {selected[started[-1]].name}" if started and started[-1] not in records else ""
        failure = f"ended with status {status}{position}: {_last_line(errors)}"
    outcomes = tuple(_outcome(model, records.get(name), folder / f"{name}.npz") for name, model in selected.items())
    return Report(processor, outcomes, failure, seconds)


def _outcome(model: Converted, record: Mapping[str, Any] | None, outputs: Path) -> Outcome:
    if record is None or "error" in record:
        text = "not run" if record is None else f"ONNX Runtime: {record['error']}"
        return Outcome(model.name, model.planted, within_tolerance=model.planted, text=text)
    comparisons = model.compare(outputs)
    worst = max(comparisons, key=lambda comparison: (not comparison.ok, comparison.max_error))
    return Outcome(
        model.name, model.planted, all(comparison.ok for comparison in comparisons), worst.text, record["seconds"]
    )


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _last_line(errors: str) -> str:
    lines = [line for line in errors.splitlines() if "TCG doesn't support" not in line]
    return lines[-1] if lines else "no error output"
