"""Converters to compare: ours in this process, others through a separate command and interpreter each."""

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

# What each is run with, behind "python"; the file to read and the file to write are {source} and {target}.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "tf2onnx": ("-m", "tf2onnx.convert", "--tflite", "{source}", "--output", "{target}", "--opset", "18"),
    "tflite2onnx": ("-c", "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:])", "{source}", "{target}"),
}
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


class Unconverted(Exception):
    """A converter gave no model; the text begins with what it did instead."""


class Converter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def convert(self, source: Path, target: Path) -> None:
        """Write the ONNX model of a .tflite file. Raises Unconverted."""


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
            first, *more = [f"{one.where}: {one.reason}" for one in error.problems] or error.message.splitlines()
            raise Unconverted(f"refused: {first}" + (f"; and {len(more)} more" if more else "")) from error
        except Exception as error:
            raise Unconverted(f"fails: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's converter. ``cache``: the folder that stores the result or the failure for each file."""

    name: str
    version: str
    python: str
    timeout: float = TIMEOUT
    cache: Path | None = None

    def convert(self, source: Path, target: Path) -> None:
        """Convert with the peer's command, ended after ``timeout`` seconds; results are cached by file and version."""
        if self.cache is None:
            self._convert(source, target)
            return
        converted, failed = self._places(source)
        if not converted.exists() and not failed.exists():
            try:
                self._convert(source, target)
            except Unconverted as failure:
                files.write(failed, str(failure).encode())
            else:
                files.write(converted, target.read_bytes())
        if failed.exists():
            raise Unconverted(failed.read_text(encoding="utf-8"))
        shutil.copyfile(converted, target)

    def _places(self, source: Path) -> tuple[Path, Path]:
        """Return two cache paths: the converted model, and the reason for a failure, which is valid for one time limit."""
        assert self.cache is not None
        command = hashlib.sha256(json.dumps(COMMANDS[self.name]).encode()).hexdigest()[:8]
        folder = self.cache / f"{self.name}-{self.version}-{command}"
        folder.mkdir(parents=True, exist_ok=True)
        content = digest(source)
        return folder / f"{content}.onnx", folder / f"{content}.{self.timeout:g}s.txt"

    def _convert(self, source: Path, target: Path) -> None:
        places = {"source": source.resolve(), "target": target.resolve()}
        command = [self.python, *(part.format(**places) for part in COMMANDS[self.name])]
        with tempfile.TemporaryDirectory() as folder:  # not this one: packages here would be found before the peer's
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, timeout=self.timeout, check=False)
            except subprocess.TimeoutExpired:
                raise Unconverted(f"fails: not done after {self.timeout:g} s") from None
            except OSError as error:
                raise Unconverted(f"fails: {error}") from error
        if done.returncode or not target.exists():
            lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            nothing = f"nothing was written, exit status {done.returncode}"
            raise Unconverted(f"fails: {lines[-1].strip() if lines else nothing}")


@dataclass(frozen=True, slots=True)
class OpenVINO:
    """OpenVINO, which reads .tflite files itself, in a separate process. ``python``: an interpreter that has it."""

    python: str
    name: str = "OpenVINO"

    def measure(self, source: Path, rounds: int, reference: Spread) -> Outcome:
        """Return its time and the ratio to LiteRT's median, which was measured before."""
        command = [self.python, str(Path(__file__).with_name("openvino_reader.py")), str(source.resolve()), str(rounds)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Outcome(self.name, problem=f"fails: {error}")
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            return Outcome(self.name, problem=f"fails: {lines[-1]}")
        seconds = np.array(json.loads(done.stdout.splitlines()[-1])["seconds"])
        best = float(seconds.min() / reference.low)
        return Outcome(self.name, seconds=Spread.of(seconds), ratio=Spread.of(seconds / reference.median), best=best)


def digest(path: Path) -> str:
    """Return a hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def install_pack(
    pythons: Mapping[str, str], timeout: float = TIMEOUT, cache: Path | None = None
) -> Iterator[Peer | str]:
    """Return the available converters, and a message for each missing one. ``pythons``: their interpreters."""
    for name in COMMANDS:
        python = pythons.get(name, sys.executable)
        try:
            done = subprocess.run(
                [python, "-c", _VERSION, name], cwd=tempfile.gettempdir(), capture_output=True, text=True, check=False
            )
        except OSError as error:
            yield f"{name} is left out: {python} cannot be run: {error.strerror}"
            continue
        if done.returncode:
            yield f"{name} is left out: it is not installed in {python} (--peer-python {name}=PATH names another)"
        else:
            yield Peer(name, done.stdout.strip(), python, timeout, cache)
