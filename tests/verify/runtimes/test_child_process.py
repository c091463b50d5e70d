"""Reference kernels run in a child process, whose crash is not a verdict."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.models import Net, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, LiteRTError, Trial, verify
from onnx_tflite_plugin.verify.comparison.trial import TIME_LIMIT
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.runtimes import child, structure
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTCrash, NoKernel, RunTimeout
from tests.helpers.control_flow import count_to_three_million

CRASH = "signal 6 (SIGABRT) ended the process"


def classifier(classes: int = 1000) -> bytes:
    """Return an int8 classifier with equal logits.

    From 600 logits on, softmax of the reference kernels aborts.
    """
    rng, model = np.random.default_rng(0), ModelBuilder()
    g = model.main
    x = g.input("x", (1, 64), "int8", quantization=quant(0.02))
    w = g.constant("w", rng.integers(-127, 128, (classes, 64)).astype(np.int8), quantization=quant(1e-4))
    b = g.constant("b", rng.integers(-200, 200, classes).astype(np.int32), quantization=quant(2e-6))
    logits = g.tensor("logits", (1, classes), "int8", quantization=quant(6.4e-4))
    y = g.tensor("y", (1, classes), "int8", quantization=quant(1 / 256, -128))
    g.operator("FULLY_CONNECTED", [x, w, b], [logits])
    g.operator("SOFTMAX", [logits], [y], {"beta": 1.0})
    g.output(y)
    return model.build()


def zero_input() -> list[Array]:
    return [np.zeros((1, 64), np.int8)]


def accumulate() -> bytes:
    """Return a model that accumulates its inputs in a variable tensor."""
    model = ModelBuilder()
    g, eye = model.main, np.eye(3, dtype=np.float32)
    w, r = g.constant("w", eye), g.constant("r", eye)
    state = g.tensor("state", (2, 3), variable=True)
    g.operator(
        "RNN",
        [g.input("x", (2, 3)), w, r, g.constant("b", np.zeros(3, np.float32)), state],
        [y := g.tensor("y", (2, 3))],
    )
    g.output(y)
    return model.build()


def trial_of(data: bytes) -> Trial:
    model = structure.read(data)
    return Trial(data, model, structure.entry(model), Tolerance.of(model))


# --- verdicts ---------------------------------------------------------------------------------


def test_correct_model_passes_if_reference_kernels_abort() -> None:
    verification = verify(classifier(), otp.convert(classifier()).proto)
    assert verification.ok, verification.text
    assert not verification.notes


@pytest.mark.parametrize("bias", [0, 5])
def test_other_kernels_decide_if_reference_kernels_abort(bias: int) -> None:
    """A wrong last operator is found although the outputs hardly change."""
    proto = otp.convert(classifier()).proto
    softmax = next(node for node in proto.graph.node if node.op_type == "Softmax")
    if bias:
        steps = np.zeros(1000, np.float32)
        steps[::2] = bias / 256
        softmax.output[0], original_output = "exact", softmax.output[0]
        proto.graph.initializer.append(onnx.numpy_helper.from_array(steps, "steps"))
        position = [*proto.graph.node].index(softmax) + 1
        proto.graph.node.insert(position, onnx.helper.make_node("Add", ["exact", "steps"], [original_output]))
    assert verify(classifier(), proto).ok is not bool(bias)


# --- equal to an interpreter in this process --------------------------------------------------


@pytest.mark.parametrize("kernels", ["builtin", "reference"])
def test_interpreters_do_not_share_states(kernels: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, second = (LiteRT(accumulate(), kernels) for _ in range(2))
    assert [float(session.run([x])[0][1, 2]) for session in (first, first, second, first, second)] == [5, 10, 5, 15, 10]


def test_both_kernel_sets_return_every_tensor() -> None:
    trial = trial_of(classifier(10))
    builtin, reference = (trial.litert_session(kernels, preserve=True) for kernels in ("builtin", "reference"))
    for session in (builtin, reference):
        session.run(zero_input())
    builtin_tensors, reference_tensors = builtin.tensors(), reference.tensors()
    assert builtin_tensors.keys() == reference_tensors.keys()
    assert len(builtin_tensors) > 1
    assert all(np.array_equal(array, reference_tensors[index]) for index, array in builtin_tensors.items())


TEXTS = np.array(["a", "", "cd", "é", "f"], object)


@pytest.mark.parametrize("operand", [TEXTS, TEXTS == "a", np.arange(5)], ids=["string", "bool", "int64"])
def test_arrays_survive_a_round_trip(operand: Array) -> None:
    dtype = "string" if operand.dtype == object else operand.dtype.name
    net = Net()
    net.output(net.call("GATHER", [tensor(5, dtype=dtype), tensor(3, dtype="int32")], tensor(3, dtype=dtype), axis=0))
    runs = [operand, np.array([2, 3, 0], np.int32)]
    (builtin_result,), (reference_result,) = (
        LiteRT(net.build(), kernels).run(runs) for kernels in ("builtin", "reference")
    )
    assert builtin_result.dtype == reference_result.dtype
    assert builtin_result.tolist() == reference_result.tolist()


def test_litert_errors_are_the_same_as_in_process() -> None:
    with pytest.raises(LiteRTError, match=r"LiteRT \(reference kernels\) cannot run the model: Cannot set tensor"):
        LiteRT(classifier(10), "reference").run([np.zeros((1, 64), np.float32)])
    model = ModelBuilder()
    x, y = model.main.input("x", (2, 3)), model.main.tensor("y", (2, 3))
    model.main.operator("CUSTOM.Unheard", [x], [y])
    model.main.output(y)
    with pytest.raises(NoKernel) as caught:
        LiteRT(model.build(), "reference").run([np.zeros((2, 3), np.float32)])
    assert caught.value.code == "CUSTOM.Unheard"


# --- crashes and endless runs -----------------------------------------------------------------


def test_child_is_reused_and_replaced_after_it_ends() -> None:
    first = child.child_of_process()
    second_session = LiteRT(classifier(10), "reference")
    assert child.child_of_process() is first
    with pytest.raises(LiteRTCrash, match=r"signal 6 \(SIGABRT\) ended the process of LiteRT"):
        LiteRT(classifier(), "reference").run(zero_input())
    with pytest.raises(LiteRTCrash, match="the process that ran the model has ended"):
        second_session.run(zero_input())
    assert LiteRT(classifier(10), "reference").run(zero_input())[0].shape == (1, 10)
    assert child.child_of_process() is not first


def test_endless_run_is_stopped_with_its_child() -> None:
    session = LiteRT(count_to_three_million(), "reference", time_limit=0.2)
    with pytest.raises(RunTimeout, match="the run may never end"):
        session.run([np.float32(-1e9)])
    assert not session.backend._child.alive  # type: ignore[attr-defined]
    assert LiteRT(count_to_three_million(), "reference").run([np.float32(3e6 - 3)])[0] == 3e6


def test_interrupted_request_does_not_shift_later_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    session = LiteRT(classifier(10), "reference")

    def interrupt(stream: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pickle, "load", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.run(zero_input())
    assert LiteRT(classifier(10), "reference").run(zero_input())[0].shape == (1, 10)


def test_unreferenced_interpreters_are_freed() -> None:
    numbers = [LiteRT(classifier(10), "reference").backend._number for _ in range(3)]  # type: ignore[attr-defined]
    abandoned = child.child_of_process()._abandoned
    assert set(abandoned) <= set(numbers)
    LiteRT(classifier(10), "reference").run(zero_input())
    assert not set(abandoned) & set(numbers)


def test_failure_to_start_a_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that embeds Python has no interpreter to start."""
    child.stop_child()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/no/such/python")
        with pytest.raises(LiteRTError, match="no process can be started for LiteRT"):
            LiteRT(classifier(10), "reference")
    with monkeypatch.context() as patched:
        patched.setattr(child, "_BOOTSTRAP", "raise SystemExit('no package')")
        with pytest.raises(LiteRTCrash, match="ended with code 1, no package"):
            LiteRT(classifier(10), "reference")
    assert LiteRT(classifier(10), "reference").run(zero_input())[0].shape == (1, 10)


# --- scripts, forks and killed parents --------------------------------------------------------

SCRIPT = """
import sys, numpy as np
from onnx_tflite_plugin.verify import LiteRT
from onnx_tflite_plugin.verify.runtimes.child import child_of_process
print("begins")
session = LiteRT(open("m.tflite", "rb").read(), "reference")
print(session.run([np.zeros((1, 64), np.int8)])[0].shape, flush=True)
"""


def run_python(folder: Path, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the package that is tested here."""
    environment = {**os.environ, "PYTHONPATH": str(Path(otp.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, input=stdin, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a model and a script that runs it."""
    (tmp_path / "m.tflite").write_bytes(classifier(10))
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize("by_pipe", [False, True])
def test_script_without_a_main_guard_runs_once(folder: Path, by_pipe: bool) -> None:
    """Modules in the folder of the script are not imported."""
    command, stdin = ("-", SCRIPT) if by_pipe else ("script.py", None)
    (folder / "worker.py").write_text("raise SystemExit('not this one')")
    process = run_python(folder, command, stdin=stdin)
    assert (process.returncode, process.stdout, process.stderr) == (0, "begins\n(1, 10)\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks")
def test_fork_starts_its_own_child(folder: Path) -> None:
    fork_script = """
import os
if not os.fork():
    again = LiteRT(open("m.tflite", "rb").read(), "reference")
    print(again.run([np.zeros((1, 64), np.int8)])[0].shape, flush=True)
    try:
        session.run([np.zeros((1, 64), np.int8)])
    except Exception as error:
        print(type(error).__name__, flush=True)
    sys.exit()
os.wait()
print(session.run([np.zeros((1, 64), np.int8)])[0].shape, flush=True)
"""
    process = run_python(folder, "-c", SCRIPT + fork_script)
    assert process.stdout.split("\n") == ["begins", "(1, 10)", "(1, 10)", "LiteRTCrash", "(1, 10)", ""], process.stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux lists other processes in /proc")
@pytest.mark.parametrize("running", [False, True])
def test_child_ends_with_its_parent(folder: Path, running: bool) -> None:
    """A killed parent cannot stop it, even while LiteRT computes."""
    (folder / "m.tflite").write_bytes(count_to_three_million())
    print_pid = "import os, signal\nprint(child_of_process()._process.pid, flush=True)\n"
    kill_parent = "os.kill(os.getpid(), signal.SIGKILL)\n"
    kill_parent_during_run = (
        "import threading\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()\n"
        "session.run([np.float32(-1e9)])\n"
    )
    script = SCRIPT.rpartition("print(")[0] + print_pid + (kill_parent_during_run if running else kill_parent)
    process = run_python(folder, "-c", script)
    assert process.returncode == -signal.SIGKILL
    status = Path("/proc") / process.stdout.split()[-1] / "stat"
    for _ in range(100):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child lives on")


def test_skips_kernel_sets_that_take_far_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_by_kernels = {}

    def time_runs(self: Trial, kernels: str, *arguments: Any, time_limit: float | None, **options: Any) -> Any:
        limits_by_kernels[kernels] = time_limit
        if kernels == "builtin":
            raise RunTimeout("LiteRT has run for 20 s on these inputs")
        return original_time_runs(self, kernels, *arguments, time_limit=time_limit, **options)

    original_time_runs = Trial._time_runs
    monkeypatch.setattr(Trial, "_time_runs", time_runs)
    expected = trial_of(count_to_three_million()).reference_outputs([[np.float32(3e6 - 3)]])
    assert [*expected] == ["xnnpack"]
    assert limits_by_kernels == {"xnnpack": None, "builtin": TIME_LIMIT}
