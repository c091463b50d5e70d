"""LiteRT in a child process, which may end without ending this one: one child, started when first needed and reused.

The child is a new Python, started by ``subprocess``: nothing is forked and no ``__main__`` is imported again, so that it works
on every system, in notebooks, under test runners and in scripts without a guard. Requests and answers are pickles
over its standard input and output; ``worker`` is its side.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import Any

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.interpreter import LiteRTError, NoKernel, Plan, RunTimeout

_BOOTSTRAP = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from onnx_tflite_plugin.verify.runtimes.worker import main; main()"
)
_LAST_WORDS = 300  # characters of a failed child's error output


class LiteRTCrash(LiteRTError):
    """The process that ran LiteRT ended: there is no answer from that kernel set."""


_recorded: ContextVar[list[str] | None] = ContextVar("_recorded", default=None)


@contextmanager
def record_crashes() -> Iterator[list[str]]:
    """Give the list to which a line is added for each child that ends within, whoever goes on without its answer.

    An enclosing list gets the lines as well, unless an exception leaves, whose message names the crash.
    """
    crashes: list[str] = []
    outer = _recorded.get()
    token = _recorded.set(crashes)
    try:
        yield crashes
    finally:
        _recorded.reset(token)
    if outer is not None:
        outer += crashes


class Child:
    """A child process that runs LiteRT's interpreters, each known by a number."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is
        command = [sys.executable, "-I", "-c", _BOOTSTRAP]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
            )
        except (OSError, ValueError) as error:  # no interpreter of Python, as in an application that embeds one
            self._stderr.close()
            raise LiteRTError(f"no process can be started for LiteRT: {error}") from error
        self.owner = os.getpid()
        self.alive = True
        self._numbers = count()
        self._lock = threading.Lock()
        self._abandoned: list[int] = []  # interpreters that nobody holds any more
        with suppress(OSError):  # a child that ends at once is told by the first request
            self._send(list(sys.path))

    def open(self, data: bytes, plan: Plan) -> int:
        """Load a model; return the interpreter's number."""
        number = next(self._numbers)
        self.request(plan.kernels, "open", number, data, plan)
        return number

    def abandon(self, number: int) -> None:
        """Let the next request free an interpreter; finalizers call this at any time and in any thread."""
        self._abandoned.append(number)

    def request(self, kernels: str, what: str, *arguments: Any) -> Any:
        """Return the child's answer. Raises the LiteRTError that it reports, and LiteRTCrash if it ends."""
        with self._lock:
            if not self.alive or self.owner != os.getpid():  # a fork has the parent's pipes
                raise LiteRTCrash(f"LiteRT ({kernels} kernels): the process that ran the model has ended")
            freed = [self._abandoned.pop() for _ in range(len(self._abandoned))]
            try:
                self._send((freed, what, arguments))
                assert self._process.stdout is not None
                kind, answer = pickle.load(self._process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                raise self._crash_error(kernels) from error
            except BaseException:  # an interruption: the answer would be taken for that of the next request
                self.stop()
                raise
        if kind == "RunTimeout":  # its thread goes on
            self.stop()
        if kind == "answer":
            return answer
        raise _ERRORS.get(kind, LiteRTError)(answer)

    def stop(self) -> None:
        """End the child, whatever it does."""
        self.alive = False
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()

    def _crash_error(self, kernels: str) -> LiteRTCrash:
        reason = self._end()
        if (recorded := _recorded.get()) is not None:
            recorded.append(f"LiteRT's {kernels} kernels gave no answer: {reason}")
        return LiteRTCrash(f"LiteRT ({kernels} kernels) crashes on the model: {reason}")

    def _end(self) -> str:
        """Return the signal or exit status with which the child ended."""
        with suppress(subprocess.TimeoutExpired):  # it has closed its output, and ends now
            self._process.wait(5)
        code = self._process.returncode
        said = b""
        if code is not None and code > 0:  # Python ended it, and says why
            self._stderr.seek(0)
            said = self._stderr.read().strip()
        self.stop()
        if code is None:
            return "the process that ran it no longer answers"
        if code < 0:
            memory = ", as where memory runs out" if -code == getattr(signal, "SIGKILL", 0) else ""
            return f"signal {-code} ({_signal_name(-code)}{memory}) ended the process that ran it"
        last = said.splitlines()[-1][:_LAST_WORDS].decode(errors="replace") if said else ""
        return f"the process that ran it ended with code {code}{last and f', {last}'}"


class ChildInterpreter:
    """An interpreter in the shared child, with the same calls as one in this process."""

    def __init__(self, data: bytes, plan: Plan) -> None:
        self.plan = plan
        self._child = child_of_process()
        self._number = self._child.open(data, plan)
        weakref.finalize(self, self._child.abandon, self._number)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Invoke once, with inputs in the plan's order; return the outputs in its order."""
        outputs: list[Array] = self._child.request(self.plan.kernels, "run", self._number, list(arrays))
        return outputs

    def allocate(self) -> None:
        """Allocate all tensors at the stored sizes. Raises NoKernel for an operator without kernel."""
        self._child.request(self.plan.kernels, "allocate", self._number)

    def shapes(self, arrays: Sequence[Array]) -> dict[int, tuple[int, ...]]:
        """Return the shapes of tensors after a run on these inputs."""
        shapes: dict[int, tuple[int, ...]] = self._child.request(
            self.plan.kernels, "shapes", self._number, list(arrays)
        )
        return shapes

    def tensors(self) -> dict[int, Array]:
        """Return every readable tensor by index, as the last run left it."""
        kept: dict[int, Array] = self._child.request(self.plan.kernels, "tensors", self._number)
        return kept


_ERRORS: dict[str, type[VerificationError]] = {"NoKernel": NoKernel, "RunTimeout": RunTimeout}
_shared: Child | None = None
_starting = threading.Lock()


def child_of_process() -> Child:
    """Return the child of this process; a new one if the last one ended or belongs to the process that was forked."""
    global _shared
    with _starting:
        if _shared is None or not _shared.alive or _shared.owner != os.getpid():
            _shared = Child()
        return _shared


@atexit.register
def stop_child() -> None:
    """End the child of this process, if there is one."""
    if _shared is not None and _shared.alive and _shared.owner == os.getpid():
        _shared.stop()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
