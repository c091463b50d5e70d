"""Converters to compare: this project, and others as commands in their own Python."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.results import OURS, Outcome
from onnx_tflite_plugin import files
from onnx_tflite_plugin.options import ConvertOptions, Optimize
from onnx_tflite_plugin.verify.times.bench import Spread

TIMEOUT = 300

# Arguments after "python"; {source} and {target} are the file to read and the file to write.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "tf2onnx": ("-m", "tf2onnx.convert", "--tflite", "{source}", "--output", "{target}", "--opset", "18"),
    "tflite2onnx": ("-c", "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:])", "{source}", "{target}"),
}
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


class NotConverted(Exception):
    """A converter produced no usable model.

    The text is the failed step, a colon, and the reason.
    """


class Converter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def convert(self, source: Path, target: Path) -> None:
        """Convert a .tflite file. Raises NotConverted on failure."""


@dataclass(frozen=True, slots=True)
class Ours:
    """This project."""

    optimize: Optimize = ConvertOptions.optimize
    target: str = ConvertOptions.target
    name: str = OURS

    @property
    def version(self) -> str:
        return f"{version('onnx-tflite-plugin')}, --optimize {self.optimize} --target {self.target}"

    def convert(self, source: Path, target: Path) -> None:
        import onnx_tflite_plugin as otp
        from onnx_tflite_plugin.errors import ConversionError

        try:
            otp.convert(source, optimize=self.optimize, target=self.target).save(target)
        except ConversionError as error:
            first_problem, *remaining = [
                f"{problem.where}: {problem.reason}" for problem in error.problems
            ] or error.message.splitlines()
            raise NotConverted(
                f"refused: {first_problem}" + (f"; and {len(remaining)} more" if remaining else "")
            ) from error
        except Exception as error:
            raise NotConverted(f"fails: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Peer:
    """Another project's converter.

    ``cache``: the folder that stores the result or the failure for each file.
    """

    name: str
    version: str
    python: str
    timeout: float = TIMEOUT
    cache: Path | None = None

    def convert(self, source: Path, target: Path) -> None:
        """Convert with the peer's command; results are cached by file and version.

        Raises NotConverted if the command fails or does not finish within ``timeout`` seconds.
        """
        if self.cache is None:
            self._convert(source, target)
            return
        model_path, failure_path = self._cache_paths(source)
        if not model_path.exists() and not failure_path.exists():
            try:
                self._convert(source, target)
            except NotConverted as failure:
                files.write(failure_path, str(failure).encode())
            else:
                files.write(model_path, target.read_bytes())
        if failure_path.exists():
            raise NotConverted(failure_path.read_text(encoding="utf-8"))
        shutil.copyfile(model_path, target)

    def _cache_paths(self, source: Path) -> tuple[Path, Path]:
        """Return the cache paths of the converted model and of the reason for a failure.

        Failures are cached per time limit, because more time may help.
        """
        assert self.cache is not None
        command_digest = hashlib.sha256(json.dumps(COMMANDS[self.name]).encode()).hexdigest()[:8]
        folder = self.cache / f"{self.name}-{self.version}-{command_digest}"
        folder.mkdir(parents=True, exist_ok=True)
        source_digest = digest(source)
        return folder / f"{source_digest}.onnx", folder / f"{source_digest}.{self.timeout:g}s.txt"

    def _convert(self, source: Path, target: Path) -> None:
        paths = {"source": source.resolve(), "target": target.resolve()}
        command = [self.python, *(part.format(**paths) for part in COMMANDS[self.name])]
        with tempfile.TemporaryDirectory() as folder:  # in the current folder, local packages would shadow the peer's
            try:
                completed = subprocess.run(command, cwd=folder, capture_output=True, timeout=self.timeout, check=False)
            except subprocess.TimeoutExpired:
                raise NotConverted(f"fails: not finished after {self.timeout:g} s") from None
            except OSError as error:
                raise NotConverted(f"fails: {error}") from error
        if completed.returncode or not target.exists():
            lines = (completed.stderr or completed.stdout).decode(errors="replace").strip().splitlines()
            no_output = f"nothing was written, exit status {completed.returncode}"
            raise NotConverted(f"fails: {lines[-1].strip() if lines else no_output}")


@dataclass(frozen=True, slots=True)
class OpenVINO:
    """OpenVINO, which reads .tflite files itself, in a separate process.

    ``python``: an interpreter with OpenVINO.
    """

    python: str
    name: str = "OpenVINO"

    def measure(self, source: Path, rounds: int, reference: Spread) -> Outcome:
        """Return OpenVINO's time and its ratio to LiteRT's median.

        ``reference``: LiteRT's time, measured earlier.
        """
        command = [self.python, str(Path(__file__).with_name("openvino_reader.py")), str(source.resolve()), str(rounds)]
        try:
            completed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Outcome(self.name, problem=f"fails: {error}")
        if completed.returncode:
            lines = completed.stderr.strip().splitlines() or [f"exit status {completed.returncode}"]
            return Outcome(self.name, problem=f"fails: {lines[-1]}")
        seconds = np.array(json.loads(completed.stdout.splitlines()[-1])["seconds"])
        best_ratio = float(seconds.min() / reference.low)
        return Outcome(
            self.name, seconds=Spread.of(seconds), ratio=Spread.of(seconds / reference.median), best_ratio=best_ratio
        )


def digest(path: Path) -> str:
    """Return a hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def find_peers(pythons: Mapping[str, str], timeout: float = TIMEOUT, cache: Path | None = None) -> Iterator[Peer | str]:
    """Yield the available converters, and a message for each missing one.

    ``pythons``: path of the Python interpreter by converter.
    """
    for name in COMMANDS:
        python = pythons.get(name, sys.executable)
        try:
            completed = subprocess.run(
                [python, "-c", _VERSION, name], cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
            )
        except OSError as error:
            yield f"{name} is not compared: {python} cannot be run: {error.strerror}"
            continue
        if completed.returncode:
            yield f"{name} is not compared: it is not installed in {python}; pass its interpreter with --peer-python {name}=PATH"
        else:
            yield Peer(name, completed.stdout.strip(), python, timeout, cache)
