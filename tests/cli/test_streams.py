"""Standard output of commands: complete, or an error that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")

SHORT_WRITES = """
import io, sys
from onnx_tflite_plugin.cli import main
class Limited(io.FileIO):
    def write(self, content):
        return super().write(memoryview(content)[:100])
sys.stdout = sys.__stdout__ = io.TextIOWrapper(Limited(1, "w", closefd=False), write_through=True)
main()
"""


def run(arguments: list[str | Path], unbuffered: str, stdout: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with stdout.open("w") as file:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, stdout=file, stderr=subprocess.PIPE, text=True, timeout=60)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "MODEL"], ["inspect", "MODEL", "--json"]])
def test_full_stdout_is_an_error_of_one_line(add_path: Path, arguments: list[str], unbuffered: str) -> None:
    named = [str(add_path) if argument == "MODEL" else argument for argument in arguments]
    completed = run(["-m", "onnx_tflite_plugin", *named], unbuffered, FULL)
    assert (completed.returncode, completed.stderr) == (2, "error: stdout: No space left on device\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_full_stdout_does_not_hide_the_written_model(add_path: Path, as_json: bool) -> None:
    completed = run(["-m", "onnx_tflite_plugin", "convert", add_path, *["--json"] * as_json], "", FULL)
    output = add_path.with_suffix(".onnx")
    assert completed.stderr == f"error: stdout: No space left on device\n  {output} was written\n"
    assert completed.returncode == 2
    assert output.exists()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_model_on_a_full_stdout_is_incomplete(add_path: Path, unbuffered: str) -> None:
    completed = run(["-m", "onnx_tflite_plugin", "convert", add_path, "-"], unbuffered, FULL)
    message = "error: stdout: No space left on device\n  the model on stdout is incomplete\n"
    assert (completed.returncode, completed.stderr) == (2, message)


def test_short_writes_to_stdout_are_continued(add_path: Path, tmp_path: Path) -> None:
    completed = run(["-c", SHORT_WRITES, "convert", add_path, "-"], "1", tmp_path / "short.onnx")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert onnx.load(tmp_path / "short.onnx").graph.node[0].op_type == "Add"
