"""Parent of the worker process, which sends files and limits the time."""

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

MEMORY = 3 << 30  # bytes in addition to the imports: a budget of 1 GiB, copies of the model, and the runtimes
SECONDS = 10.0  # maximum for conversion, and for loading
COMPARE_SECONDS = 20.0  # additional time for running both models
DIED = "died"
RUNNING = ("compare", "ask")  # stages in which a runtime runs

_ROOT = Path(__file__).parents[3]


class Child:
    """A worker process, started on demand."""

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY, nice: int = 0) -> None:
        self.seconds, self.memory, self.nice = seconds, memory, nice
        self._process: subprocess.Popen[bytes] | None = None
        self._serving = 0  # id of the process that converts the file
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
        process = self._start()
        assert process.stdin is not None
        stage, start = "start", time.monotonic()
        try:
            process.stdin.write(b"%d\n" % len(data) + data)
            process.stdin.flush()
            while True:
                seconds = 60.0 if stage == "start" else self.seconds + (COMPARE_SECONDS if stage in RUNNING else 0)
                message = self._read_message(start + seconds, seconds)
                if isinstance(message, list):
                    return Outcome.of(message)
                if isinstance(message, str):
                    stage, start = message, time.monotonic()
                elif "ended" in message and stage != "start":  # at "start", the next process takes the file
                    return self._failure(stage, DIED, f"{_exit_name(message['ended'])} in {stage}")
                else:
                    self._serving = message.get("serves", self._serving)
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

    def _start(self) -> subprocess.Popen[bytes]:
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

    def _read_message(self, deadline: float, seconds: float) -> Any:
        """Return the next message of the worker. Raises TimeoutError or EOFError.

        A process that did not get ``seconds`` of processor time on a busy machine has more time, up to a limit.
        """
        start, final_deadline = self._processor_seconds(), deadline + 5 * seconds
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    if time.monotonic() > final_deadline or self._processor_seconds() - start >= seconds:
                        raise TimeoutError
                    deadline = time.monotonic() + 1
                    continue
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    raise EOFError
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


def _exit_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit {code}"
