"""Fixtures of several modules."""

from __future__ import annotations

import pytest
from command import Ran, Run

from onnx_tflite_plugin.cli import cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def call(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments], prog_name="otp")
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call
