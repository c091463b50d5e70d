"""``--help`` of every command, and its speed."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.helpers.command import Run

COMMANDS = ("convert", "inspect", "verify", "report", "bench", "handlers", "conformance", "new-pack")


def test_help_imports_no_heavy_package() -> None:
    script = (
        "import sys\nfrom onnx_tflite_plugin.cli import cli\n"
        f"for name in {COMMANDS!r}:\n    cli.main([name, '--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'onnx', 'onnx_ir', 'rich', 'tflite', 'pluggy', 'onnxruntime'} & sys.modules.keys()\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr

    def seconds() -> float:
        """Return processor seconds, which do not depend on other processes."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "onnx_tflite_plugin", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Usage: otp" in out
