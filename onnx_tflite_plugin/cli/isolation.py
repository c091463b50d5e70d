"""A broken file may make LiteRT end the process that runs it: commands run it in a fork of theirs, and tell how that ended.

Forked before anything large is imported it costs milliseconds; another process would import all of it once more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TypeVar

import click

from onnx_tflite_plugin.errors import ConversionError, InvalidModel, VerificationError
from onnx_tflite_plugin.progress import Progress

J = TypeVar("J")
R = TypeVar("R")
Watched = Callable[[Progress], Progress]
"""Hands stages on to a progress, and keeps the last one for the parent."""

_LONGEST = 200  # bytes of a stage's name
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP")
_PARENT_DIED = 1  # PR_SET_PDEATHSIG, linux/prctl.h
_BUS_ERROR = getattr(signal, "SIGBUS", -1)  # a page of a mapped file is gone
_forks = False


def fork_commands() -> None:
    """From now on: the process is a command's own, and has no threads yet."""
    global _forks
    _forks = hasattr(os, "fork")


def isolated() -> Watched:
    """The rest of the command runs in a fork. Raises in its parent what that ends with: Exit, or ConversionError."""
    if not _forks:
        return unwatched
    child = _Child()
    if not child.id:
        return child.told
    code = child.wait()
    if code < 0:
        raise child.ended(-code)
    raise click.exceptions.Exit(code)


def isolated_jobs(jobs: Sequence[J], work: Callable[[J, Watched], R]) -> Iterator[R | ConversionError]:
    """What becomes of each job in a fork that does one after the other; one that ends it is told, and another does the rest.

    Raises Exit where a fork failed, and told why.
    """
    if not _forks:
        yield from (work(job, unwatched) for job in jobs)
        return
    import pickle

    left = list(jobs)
    while left:
        read, write = os.pipe()
        child = _Child()
        if not child.id:
            os.close(read)
            _work(left, work, child.told, write)
        os.close(write)
        with os.fdopen(read, "rb") as results, suppress(EOFError, pickle.UnpicklingError):
            while left:
                result: R = pickle.load(results)
                left.pop(0)
                yield result
        code = child.wait()
        if code < 0 and left:
            left.pop(0)
            yield child.ended(-code)
        elif left:
            raise click.exceptions.Exit(code)


def _work(jobs: Sequence[J], work: Callable[[J, Watched], R], told: Watched, write: int) -> NoReturn:
    import pickle

    with os.fdopen(write, "wb") as results:
        for job in jobs:
            pickle.dump(work(job, told), results)
            results.flush()
    raise click.exceptions.Exit(0)


def unwatched(progress: Progress) -> Progress:
    return progress


class _Child:
    """A fork, and the stage it is in. ``id`` is 0 in the fork itself."""

    def __init__(self) -> None:
        import mmap

        self._stage = mmap.mmap(-1, _LONGEST)
        sys.stdout.flush(), sys.stderr.flush()
        self._before = {number: signal.getsignal(number) for number in map(_number, _PASSED_ON)}
        self.id = os.fork()
        if self.id:
            for number in self._before:
                signal.signal(number, self._pass_on)
        else:
            _begin()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.id, number)

    def told(self, progress: Progress) -> Progress:
        def tell(stage: str) -> None:
            self._stage[:] = stage.encode()[:_LONGEST].ljust(_LONGEST, b"\0")
            progress(stage)

        return tell

    def wait(self) -> int:
        """What it exits with; the signal that ended it as a negative number."""
        _, status = os.waitpid(self.id, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        return os.waitstatus_to_exitcode(status)

    def ended(self, number: int) -> ConversionError:
        """Return the error for a signal that ended it."""
        stage = bytes(self._stage).rstrip(b"\0").decode(errors="replace")
        if number == _BUS_ERROR and not stage.startswith("LiteRT"):
            return InvalidModel("the model file was truncated, or its disk failed, while it was read (signal SIGBUS)")
        who = "LiteRT" if stage.startswith("LiteRT") else "LiteRT or ONNX Runtime"
        memory = ", as where memory runs out" if number == _number("SIGKILL") else ""
        how = f"signal {number} ({signal.Signals(number).name}{memory}) ended the process"
        return VerificationError(f"{who} crashes on the model: {how}, in {stage or 'its first stage'}")


def _begin() -> None:
    """In a fork: it ends with its parent, and of several interruptions heeds the first (a terminal's reach both)."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted_once)


def _interrupted_once(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _number(name: str) -> int:
    return int(getattr(signal, name))
