"""Isolation of LiteRT in a fork, because a broken file may crash LiteRT.

A fork before large packages are imported costs milliseconds. A new process would import everything again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TypeVar

import click

from onnx_tflite_plugin.errors import ConversionError, InvalidModel, VerificationError, describe_signal
from onnx_tflite_plugin.guard import Terminated
from onnx_tflite_plugin.progress import Progress

J = TypeVar("J")
R = TypeVar("R")
ProgressWrapper = Callable[[Progress], Progress]
"""Function that wraps a progress callback so that the parent process knows the last stage."""

_MAX_STAGE_BYTES = 200
TERMINATION_SIGNALS = ("SIGTERM", "SIGHUP")
_FORWARDED_SIGNALS = ("SIGINT", *TERMINATION_SIGNALS)
_CRASH_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGKILL")
"""Signals that end a process for its own faults, or for lack of memory. Other signals come from outside."""
_GRACE_SECONDS = 3.0
"""Seconds until a fork that was told to end is killed: a run of LiteRT or ONNX Runtime cannot be interrupted."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BUS_ERROR = getattr(signal, "SIGBUS", -1)  # a page of a mapped file is gone
_forks_enabled = False


def enable_forks() -> None:
    """Enable forks.

    Call this only while the process runs a single command and has no threads.
    """
    global _forks_enabled
    _forks_enabled = hasattr(os, "fork")


def isolate_command() -> ProgressWrapper:
    """Run the rest of the command in a fork.

    The parent raises Exit with the fork's exit code, or ConversionError if the fork crashed.
    """
    if not _forks_enabled:
        return pass_through
    child = _Child()
    if not child.id:
        return child.wrap_progress
    code = child.wait()
    if code < 0:
        raise child.crash_error(-code)
    raise click.exceptions.Exit(code)


def run_isolated_jobs(jobs: Sequence[J], work: Callable[[J, ProgressWrapper], R]) -> Iterator[R | ConversionError]:
    """Yield the result of each job, run one after the other in a fork.

    After a crash another fork runs the remaining jobs. Raises Exit if a fork failed and has reported the reason.
    """
    if not _forks_enabled:
        yield from (work(job, pass_through) for job in jobs)
        return
    import pickle

    pending = list(jobs)
    while pending:
        read_end, write_end = os.pipe()
        child = _Child()
        if not child.id:
            os.close(read_end)
            _run_jobs(pending, work, child.wrap_progress, write_end)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as results, suppress(EOFError, pickle.UnpicklingError):
            while pending:
                result: R = pickle.load(results)
                pending.pop(0)
                yield result
        code = child.wait()
        if code < 0 and pending:
            pending.pop(0)
            yield child.crash_error(-code)
        elif pending:
            raise click.exceptions.Exit(code)


def _run_jobs(
    jobs: Sequence[J], work: Callable[[J, ProgressWrapper], R], wrap: ProgressWrapper, write_end: int
) -> NoReturn:
    import pickle

    with os.fdopen(write_end, "wb") as results:
        for job in jobs:
            pickle.dump(work(job, wrap), results)
            results.flush()
    raise click.exceptions.Exit(0)


def pass_through(progress: Progress) -> Progress:
    """Return the progress callback unchanged, for commands that do not fork."""
    return progress


class _Child:
    """A fork and its current stage. ``id`` is 0 in the fork itself."""

    def __init__(self) -> None:
        import mmap

        self._stage = mmap.mmap(-1, _MAX_STAGE_BYTES)
        sys.stdout.flush(), sys.stderr.flush()
        self._previous_handlers = {
            number: signal.getsignal(number) for number in map(_signal_number, _FORWARDED_SIGNALS)
        }
        self._end_signal = 0  # signal from outside that ends the fork
        self._timer: threading.Timer | None = None
        self.id = os.fork()
        if self.id:
            for number in self._previous_handlers:
                signal.signal(number, self._forward_signal)
        else:
            _prepare_fork()

    def _forward_signal(self, number: int, frame: FrameType | None) -> None:
        self._send(number)
        if not self._end_signal:
            self._end_signal = number
            self._timer = threading.Timer(_GRACE_SECONDS, self._send, (signal.SIGKILL,))
            self._timer.daemon = True
            self._timer.start()

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.id, number)

    def wrap_progress(self, progress: Progress) -> Progress:
        def report_stage(stage: str) -> None:
            self._stage[:] = stage.encode()[:_MAX_STAGE_BYTES].ljust(_MAX_STAGE_BYTES, b"\0")
            progress(stage)

        return report_stage

    def wait(self) -> int:
        """Return the exit code; a crash is the negative number of its signal.

        Raises KeyboardInterrupt or Terminated if a signal from outside ended the fork.
        """
        _, status = os.waitpid(self.id, 0)
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        code = os.waitstatus_to_exitcode(status)
        if code < 0 and (number := self._end_signal or _signal_from_outside(-code)):
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated(128 + number)
        return code

    def crash_error(self, number: int) -> ConversionError:
        """Return the error for a signal that ended the fork."""
        stage = bytes(self._stage).rstrip(b"\0").decode(errors="replace")
        if number == _BUS_ERROR and not stage.startswith("LiteRT"):
            return InvalidModel("the model file was truncated, or its disk failed, while it was read (signal SIGBUS)")
        runtime = "LiteRT" if stage.startswith("LiteRT") else "LiteRT or ONNX Runtime"
        cause = f"{describe_signal(number)} ended the process"
        return VerificationError(f"{runtime} crashes on the model: {cause}, in {stage or 'its first stage'}")


def _prepare_fork() -> None:
    """Make the fork end with its parent, and handle only the first interruption.

    Ctrl-C in a terminal reaches both processes, and the parent forwards its own signal to the fork.
    """
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)


def _interrupt_once(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _signal_from_outside(number: int) -> int:
    """Return the number of a signal that comes from outside; 0 for a crash."""
    return 0 if any(number == getattr(signal, name, 0) for name in _CRASH_SIGNALS) else number


def _signal_number(name: str) -> int:
    return int(getattr(signal, name))
