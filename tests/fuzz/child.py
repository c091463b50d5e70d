"""The parent's side of the worker: one file at a time, a time limit, and a new process where the old one died."""

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

from .outcome import Outcome

MEMORY = 3 << 30  # bytes beyond the imports': a budget of 1 GiB, the model's copies, and the runtimes
SECONDS = 10.0  # of converting and of loading
COMPARING = 20.0  # what the runtimes may take more, which is nobody's fault
FILES_EACH = 500  # after so many a process is replaced, for what runtimes leak

_ROOT = Path(__file__).parents[2]


class Child:
    """A worker process, started when it is needed."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY, nice: int = 0) -> None:
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._process: subprocess.Popen[bytes] | None = None
        self._left = 0
        self._unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()
        self._process = None

    def tried(self, data: bytes) -> Outcome:
        """What becomes of a file, whatever happens to the process."""
        process = self._running()
        assert process.stdin is not None
        stage, start = "start", time.monotonic()
        try:
            process.stdin.write(b"%d\n" % len(data) + data)
            process.stdin.flush()
            while True:
                seconds = 60.0 if stage == "start" else self.seconds + (COMPARING if stage == "compare" else 0)
                told = self._answer(start + seconds, seconds)
                if not isinstance(told, str):
                    return Outcome.of(told)
                stage, start = told, time.monotonic()
        except TimeoutError:
            self.stop()
            return self._broken(stage, "over its time", f"over {self.seconds} s in {stage}")
        except (EOFError, BrokenPipeError):
            code = process.wait()
            self.stop()
            died = signal.Signals(-code).name if code < 0 else f"exit {code}"
            return self._broken(stage, "died", f"{died} in {stage}")

    def _processor_seconds(self) -> float:
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _broken(self, stage: str, sort: str, text: str) -> Outcome:
        return Outcome("uncompared" if stage == "compare" else "bug", f"{sort}: {stage}", text=text)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._left <= 0:
            self.stop()
        if self._process is None:
            command = [sys.executable, "-m", "tests.fuzz.worker", str(self.memory)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=_ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                preexec_fn=(lambda: os.nice(self.nice) and None) if self.nice else None,
            )
            self._left, self._unread = FILES_EACH, b""
        self._left -= 1
        return self._process

    def _answer(self, deadline: float, seconds: float) -> Any:
        """The next line of the child. Raises TimeoutError, EOFError.

        A process that the machine gave no ``seconds`` of its processors is waited for longer, up to a bound.
        """
        begun, last = self._processor_seconds(), deadline + 5 * seconds
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    if time.monotonic() > last or self._processor_seconds() - begun >= seconds:
                        raise TimeoutError
                    deadline = time.monotonic() + 1
                    continue
                more = os.read(descriptor, 1 << 16)
                if not more:
                    raise EOFError
                self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)
