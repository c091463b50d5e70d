"""The parent's side of the worker: one file at a time, and a time limit."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.qa.fuzz.outcome import Kind, Outcome

MEMORY = 3 << 30  # bytes beyond the imports': a budget of 1 GiB, the model's copies, and the runtimes
SECONDS = 10.0  # of converting and of loading
COMPARE_SECONDS = 20.0  # what the runtimes may take more, which is nobody's fault
DIED = "died"
RUNNING = ("compare", "ask")  # stages in which they run

_ROOT = Path(__file__).parents[3]


class Child:
    """A worker process, started when it is needed."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY, nice: int = 0) -> None:
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._process: subprocess.Popen[bytes] | None = None
        self._serving = 0  # the process that has the file
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()
        self._process = None

    def try_file(self, data: bytes) -> Outcome:
        """Return the outcome of a file, even if the process dies.

        If it dies, the file is tried again in a new process, because leaks of the runtimes add up.
        """
        outcome = self._try_once(data)
        return self._try_once(data) if outcome.kind == "bug" and outcome.sort.startswith(DIED) else outcome

    def _try_once(self, data: bytes) -> Outcome:
        process = self._running()
        assert process.stdin is not None
        stage, start = "start", time.monotonic()
        try:
            process.stdin.write(b"%d\n" % len(data) + data)
            process.stdin.flush()
            while True:
                seconds = 60.0 if stage == "start" else self.seconds + (COMPARE_SECONDS if stage in RUNNING else 0)
                reported = self._answer(start + seconds, seconds)
                if isinstance(reported, list):
                    return Outcome.of(reported)
                if isinstance(reported, str):
                    stage, start = reported, time.monotonic()
                elif "ended" in reported and stage != "start":  # before, it had not taken the file: the next one does
                    return self._failure(stage, DIED, f"{_exit_name(reported['ended'])} in {stage}")
                else:
                    self._serving = reported.get("serves", self._serving)
        except TimeoutError:
            self.stop()
            return self._failure(stage, "over its time", f"over {self.seconds} s in {stage}")
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self.stop()
            return self._failure(stage, DIED, f"{_exit_name(code)} in {stage}")

    def _processor_seconds(self) -> float:
        try:
            fields = Path(f"/proc/{self._serving}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _failure(self, stage: str, sort: str, text: str) -> Outcome:
        kind: Kind = "uncompared" if stage == "compare" else "invalid" if (stage, sort) == ("ask", DIED) else "bug"
        return Outcome(kind, f"{sort}: {stage}", text=text)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.qa.fuzz.worker", str(self.memory)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=_ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
                preexec_fn=(lambda: os.nice(self.nice) and None) if self.nice else None,
            )
            self._unread = b""
        return self._process

    def _answer(self, deadline: float, seconds: float) -> Any:
        """Return the next line of the child. Raises TimeoutError, EOFError.

        A process that the machine gave no ``seconds`` of its processors is waited for longer, up to a bound.
        """
        start, last = self._processor_seconds(), deadline + 5 * seconds
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    if time.monotonic() > last or self._processor_seconds() - start >= seconds:
                        raise TimeoutError
                    deadline = time.monotonic() + 1
                    continue
                more = os.read(descriptor, 1 << 16)
                if not more:
                    raise EOFError
                self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


def _exit_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit {code}"
