"""A crash in LiteRT stops neither the command nor other models of a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.guard import BUILTIN, attribute_errors
from tests.helpers.changed_files import change_fields

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="commands run in their own process where there is no fork"
)

FAILING_LITERT = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
run = LiteRT.run
def fail(self, inputs):
    if "crashing" in self.entry.input_names:
        {}
    return run(self, inputs)
LiteRT.run = fail
from onnx_tflite_plugin.cli import main
main()
"""
ABORTED = FAILING_LITERT.format("os.abort()")


def model(path: Path, name: str = "x") -> Path:
    built = ModelBuilder()
    g = built.main
    x, y = g.input(name, (2, 3)), g.tensor("y", (2, 3))
    g.operator("NEG", [x], [y])
    g.output(y)
    path.write_bytes(built.build())
    return path


def command(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("name", ["crashing", "harmless"])
def test_crashing_model_is_not_written(tmp_path: Path, name: str) -> None:
    completed = command(ABORTED, "convert", model(tmp_path / "a.tflite", name), "--verify")
    if name == "harmless":
        assert completed.returncode == 0, completed.stderr
        return
    assert completed.returncode == 3
    assert "LiteRT crashes on the model: signal 6 (SIGABRT)" in completed.stderr
    assert "in LiteRT (xnnpack), run 1 of 3" in completed.stderr
    assert not (tmp_path / "a.onnx").exists()


def test_crash_does_not_stop_other_models_of_a_folder(tmp_path: Path) -> None:
    for number, name in enumerate(("x", "crashing", "x", "crashing", "x")):
        model(tmp_path / f"{number}.tflite", name)
    completed = command(ABORTED, "convert", tmp_path, "--verify", "--json")
    assert completed.returncode == 3, completed.stderr
    result = json.loads(completed.stdout)
    assert [model_result.get("error", {}).get("exit_code") for model_result in result["models"]] == [
        None,
        3,
        None,
        3,
        None,
    ]
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == ["0.onnx", "2.onnx", "4.onnx"]
    assert "LiteRT crashes on the model" in completed.stderr
    assert "in 1.tflite, 3.tflite" in completed.stderr


def test_crash_is_reported_with_its_signal(tmp_path: Path) -> None:
    """The kernel does not check the indices of a sparse tensor."""
    path, inputs = tmp_path / "sparse.tflite", tmp_path / "inputs.npz"
    path.write_bytes(change_fields("EMBEDDING_LOOKUP_SPARSE-MEAN,_5_operands_known_at_runtime,_rank_3"))
    indices, sizes = np.full((6, 3), 2**24, np.int32), np.array([2, 3, 4], np.int32)
    weights, table = np.ones(6, np.float32), np.ones((7, 5), np.float32)
    np.savez(inputs, ids=np.arange(6, dtype=np.int32), indices=indices, sizes=sizes, weights=weights, table=table)
    completed = command(
        "from onnx_tflite_plugin.cli import main; main()", "convert", path, "--verify", "--inputs", inputs
    )
    assert completed.returncode == 3
    assert "LiteRT crashes on the model: signal" in completed.stderr
    assert not path.with_suffix(".onnx").exists()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_are_forwarded_to_the_fork(tmp_path: Path, name: str, code: int) -> None:
    """The signal is sent to the command only, as by kill in a shell."""
    interrupted = FAILING_LITERT.format(f"os.kill(os.getppid(), signal.{name}); time.sleep(30)")
    completed = command(interrupted, "convert", model(tmp_path / "a.tflite", "crashing"), "--verify")
    assert completed.returncode == code
    assert "Traceback" not in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.tflite"]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_fork_that_ignores_the_signal_is_killed(tmp_path: Path, name: str, code: int) -> None:
    """A run of LiteRT or ONNX Runtime does not return to Python."""
    busy = FAILING_LITERT.format(
        f"signal.signal(signal.{name}, signal.SIG_IGN); os.kill(os.getppid(), signal.{name}); time.sleep(60)"
    )
    script = f"from onnx_tflite_plugin.cli import isolation\nisolation._GRACE_SECONDS = 0.5\n{busy}"
    path = model(tmp_path / "a.tflite", "crashing")
    completed = command(script, "convert", path, "--verify")
    text = "interrupted" if name == "SIGINT" else f"terminated by signal {code - 128} ({name})"
    assert completed.stderr == f"error: {text}\n  {path.with_suffix('.onnx')} was not written\n"
    assert completed.returncode == code


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1", "SIGXCPU"])
def test_signal_from_outside_is_not_attributed_to_litert(tmp_path: Path, name: str) -> None:
    killed = FAILING_LITERT.format(f"signal.signal(signal.{name}, signal.SIG_DFL); os.kill(os.getpid(), signal.{name})")
    for count in (1, 2):  # one model, and a folder
        model(tmp_path / f"{count}.tflite", "crashing")
        completed = command(killed, "convert", tmp_path / "1.tflite" if count == 1 else tmp_path, "--verify")
        number = getattr(signal, name)
        assert completed.stderr.startswith(f"error: terminated by signal {number} ({name})\n")
        assert completed.returncode == 128 + number


def test_interruption_names_no_built_in_function() -> None:
    with pytest.raises(KeyboardInterrupt) as error, attribute_errors("lowering", BUILTIN, object(), "op 1"):
        raise KeyboardInterrupt
    assert not hasattr(error.value, "__notes__")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_fork_ends_with_a_killed_command(tmp_path: Path) -> None:
    """Otherwise a reader of the command's output would wait forever."""
    killed = FAILING_LITERT.format("os.kill(os.getppid(), signal.SIGKILL); time.sleep(50)")
    completed = command(killed, "convert", model(tmp_path / "a.tflite", "crashing"), "--verify")
    assert completed.returncode == -9
