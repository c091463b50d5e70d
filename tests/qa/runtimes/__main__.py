"""Run converted models in other runtimes: ``python -m tests.qa.runtimes``.

Arguments: ``MODELS --runtime tract=PYTHON --target portable``. MODELS are .tflite files or folders of them. Each
runtime has a separate Python interpreter with its packages; ONNX Runtime and the reference evaluator run in the current
one. Results are printed, and written as JSON with ``--results``. ``python -m tests.qa.runtimes.table --write`` writes
the table of the documentation from them.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from onnx_tflite_plugin.source.model import Array
from tests.qa.runtimes.models import Converted, convert_for, find_error, find_sources
from tests.qa.runtimes.worker import RUNTIMES

WORKER = Path(__file__).with_name("worker.py")
LOCAL_RUNTIMES = ("onnxruntime", "reference")
TARGETS = ("onnxruntime", "generic", "portable")
SECONDS = 60
"""Maximum time for one model in one runtime."""


class Worker:
    """The process of a runtime, restarted after a crash."""

    def __init__(self, runtime: str, python: str) -> None:
        self.runtime, self.python, self.version = runtime, python, ""
        self._process: subprocess.Popen[str] | None = None

    def run(self, model: Path, inputs: Path, outputs: Path) -> str:
        """Run a model and store its results in ``outputs``; return the error.

        The error is empty if there is none.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        job = {"model": str(model), "inputs": str(inputs), "outputs": str(outputs)}
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            return str(self._read_message(process)["error"])
        except TimeoutError:
            self.stop()
            return f"no result after {SECONDS} s"
        except (OSError, ValueError):
            code = process.wait()
            self.stop()
            return f"crash, exit code {code}"

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [self.python, str(WORKER), self.runtime],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.version = str(self._read_message(self._process)["version"])
        return self._process

    def _read_message(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return the next message.

        Raises TimeoutError, or ValueError if the process ended.
        """
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            raise TimeoutError
        message: dict[str, Any] = json.loads(process.stdout.readline())
        return message


def run_matrix(
    files: Sequence[Path], targets: Sequence[str], pythons: Sequence[tuple[str, str]], folder: Path
) -> dict[str, Any]:
    """Return the outcome per file, target and runtime: "right", or the problem."""
    workers = [
        Worker(runtime, python) for runtime, python in (*((name, sys.executable) for name in LOCAL_RUNTIMES), *pythons)
    ]
    rows = []
    try:
        for number, source in enumerate(find_sources(files)):
            for target in targets:
                converted = convert_for(source, target, folder / f"{number}-{target}")
                outcomes = {} if converted.refusal else _outcomes(converted, workers)
                row = {
                    "model": "/".join(source.path.parts[-2:]),
                    "kind": source.kind,
                    "target": target,
                    "refused": converted.refusal,
                }
                rows.append({**row, "outcomes": outcomes})
                failing = {name: text for name, text in outcomes.items() if text != "right"}
                print(source.path.name, target, converted.refusal or failing or "right in all", flush=True)
    finally:
        for worker in workers:
            worker.stop()
    return {"date": date.today().isoformat(), "runtimes": sorted({_label(w) for w in workers}), "rows": rows}


def format_results(results: Mapping[str, Any]) -> str:
    """Return results as JSON with one line per model and target."""
    rows = ",\n".join(json.dumps(row) for row in results["rows"])
    head = json.dumps({name: value for name, value in results.items() if name != "rows"})
    return f'{head[:-1]}, "rows": [\n{rows}\n]}}\n'


def _label(worker: Worker) -> str:
    return f"{worker.runtime} {worker.version}"


def _outcomes(converted: Converted, workers: Sequence[Worker]) -> Mapping[str, str]:
    """Return the outcome per runtime.

    Without quantization, the reference is the first runtime, and the second for the first.
    """
    results: dict[str, Sequence[Array]] = {}
    outcomes: dict[str, str] = {}
    for worker in workers:
        outputs = converted.path.with_name("outputs.npz")
        outputs.unlink(missing_ok=True)
        error = worker.run(converted.path, converted.inputs, outputs)
        if error:
            outcomes[_label(worker)] = f"fails: {' '.join(error.split())[:100]}"
        else:
            results[_label(worker)] = _load(outputs)
    first, second, *_ = map(_label, workers)
    for label, arrays in results.items():
        problem = find_error(converted, arrays, results.get(second if label == first else first))
        outcomes[label] = f"wrong: {problem}" if problem else "right"
    return {_label(worker): outcomes[_label(worker)] for worker in workers}


def _load(path: Path) -> list[Array]:
    with np.load(path) as arrays:
        return [arrays[name] for name in sorted(arrays.files)]


def _parse_runtime(text: str) -> tuple[str, str]:
    name, _, python = text.partition("=")
    if name not in RUNTIMES or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON with a name of {', '.join(RUNTIMES)}")
    return name, python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--runtime", action="append", default=[], type=_parse_runtime, metavar="NAME=PYTHON")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = run_matrix(arguments.models, arguments.target or TARGETS, arguments.runtime, Path(scratch))
    if arguments.results:
        arguments.results.write_text(format_results(results))


if __name__ == "__main__":
    main()
