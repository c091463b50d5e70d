"""LiteRT in a child process, so that a crash of LiteRT does not end this process.

A child is started on first use, and reused. ``subprocess`` starts a new Python interpreter: nothing is forked, and
``__main__`` is not imported again. The child therefore works on every system, in notebooks, under test runners, and in
scripts without a ``__main__`` guard. Requests and answers are pickles over standard input and output. The child runs
``worker``.
"""

from __future__ import annotations

import atexit
import os
import pickle
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

from onnx_tflite_plugin.errors import VerificationError, describe_signal
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.interpreter import InterpreterConfig, LiteRTError, NoKernel, RunTimeout

_BOOTSTRAP = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from onnx_tflite_plugin.verify.runtimes.worker import main; main()"
)
_MAX_ERROR_TEXT = 300  # characters of a failed child's error output in a message


class LiteRTCrash(LiteRTError):
    """The process that ran LiteRT crashed, so this kernel set has no result."""


_crash_lines: ContextVar[list[str] | None] = ContextVar("_crash_lines", default=None)


@contextmanager
def record_crashes() -> Iterator[list[str]]:
    """Yield a list that gets one line for each child that crashes in this context.

    On a normal exit the lines are also added to the list of an enclosing context. They are not added after an exception,
    whose message names the crash.
    """
    crashes: list[str] = []
    enclosing_list = _crash_lines.get()
    token = _crash_lines.set(crashes)
    try:
        yield crashes
    finally:
        _crash_lines.reset(token)
    if enclosing_list is not None:
        enclosing_list += crashes


class Child:
    """A child process that runs LiteRT's interpreters, each identified by a number."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the child is
        command = [sys.executable, "-I", "-c", _BOOTSTRAP]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr
            )
        except (OSError, ValueError) as error:  # there is no Python executable, as in an application that embeds Python
            self._stderr.close()
            raise LiteRTError(f"no process can be started for LiteRT: {error}") from error
        self.owner = os.getpid()
        self.alive = True
        self._numbers = count()
        self._lock = threading.Lock()
        self._abandoned: list[int] = []  # interpreters to free with the next request
        with suppress(OSError):  # if the child ends at once, the first request reports it
            self._send(list(sys.path))

    def open(self, data: bytes, config: InterpreterConfig) -> int:
        """Load a model, and return the interpreter's number."""
        number = next(self._numbers)
        self.request(config.kernels, "open", number, data, config)
        return number

    def abandon(self, number: int) -> None:
        """Free an interpreter with the next request.

        Finalizers may call this at any time and in any thread.
        """
        self._abandoned.append(number)

    def request(self, kernels: str, command: str, *arguments: Any) -> Any:
        """Send a request, and return the child's answer.

        Raises the LiteRTError that the child reports, and LiteRTCrash if the child ends.
        """
        with self._lock:
            if not self.alive or self.owner != os.getpid():  # a fork has the parent's pipes
                raise LiteRTCrash(f"LiteRT ({kernels} kernels): the process that ran the model has ended")
            interpreters_to_free = [self._abandoned.pop() for _ in range(len(self._abandoned))]
            try:
                self._send((interpreters_to_free, command, arguments))
                assert self._process.stdout is not None
                kind, answer = pickle.load(self._process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                raise self._crash_error(kernels) from error
            except BaseException:  # after an interruption the next request would read this answer
                self.stop()
                raise
        if kind == "RunTimeout":  # the thread of the run is still busy
            self.stop()
        if kind == "answer":
            return answer
        raise _ERRORS.get(kind, LiteRTError)(answer)

    def stop(self) -> None:
        """Kill the child."""
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
        reason = self._stop_and_describe()
        if (crashes := _crash_lines.get()) is not None:
            crashes.append(f"LiteRT's {kernels} kernels gave no answer: {reason}")
        return LiteRTCrash(f"LiteRT ({kernels} kernels) crashes on the model: {reason}")

    def _stop_and_describe(self) -> str:
        """Stop the child, and return the signal or exit status with which it ended."""
        with suppress(subprocess.TimeoutExpired):  # its output is closed, so it ends soon
            self._process.wait(5)
        code = self._process.returncode
        log = b""
        if code is not None and code > 0:  # Python ended, and has printed the reason
            self._stderr.seek(0)
            log = self._stderr.read().strip()
        self.stop()
        if code is None:
            return "the process of LiteRT no longer answers"
        if code < 0:
            return f"{describe_signal(-code)} ended the process of LiteRT"
        error = log.splitlines()[-1][:_MAX_ERROR_TEXT].decode(errors="replace") if log else ""
        return f"the process of LiteRT ended with code {code}{error and f', {error}'}"


class ChildInterpreter:
    """An interpreter in the shared child process, with ``LocalInterpreter``'s methods."""

    def __init__(self, data: bytes, config: InterpreterConfig) -> None:
        self.config = config
        self._child = child_of_process()
        self._number = self._child.open(data, config)
        weakref.finalize(self, self._child.abandon, self._number)

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Run once, with inputs and outputs in the configured order."""
        outputs: list[Array] = self._child.request(self.config.kernels, "run", self._number, list(arrays))
        return outputs

    def allocate(self) -> None:
        """Allocate all tensors at the stored sizes.

        Raises NoKernel for an operator without a kernel.
        """
        self._child.request(self.config.kernels, "allocate", self._number)

    def shapes(self, arrays: Sequence[Array]) -> dict[int, tuple[int, ...]]:
        """Return the shapes of tensors after a run on these inputs."""
        shapes: dict[int, tuple[int, ...]] = self._child.request(
            self.config.kernels, "shapes", self._number, list(arrays)
        )
        return shapes

    def tensors(self) -> dict[int, Array]:
        """Return tensor index -> value after the last run, for readable tensors."""
        tensors: dict[int, Array] = self._child.request(self.config.kernels, "tensors", self._number)
        return tensors


_ERRORS: dict[str, type[VerificationError]] = {"NoKernel": NoKernel, "RunTimeout": RunTimeout}
_child: Child | None = None
_start_lock = threading.Lock()


def child_of_process() -> Child:
    """Return this process's child; start one if it ended or belongs to a parent."""
    global _child
    with _start_lock:
        if _child is None or not _child.alive or _child.owner != os.getpid():
            _child = Child()
        return _child


@atexit.register
def stop_child() -> None:
    """End the child of this process, if there is one."""
    if _child is not None and _child.alive and _child.owner == os.getpid():
        _child.stop()
