"""Main program of the child process, which runs LiteRT's interpreters.

The program answers requests of ``child`` until standard input ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify.runtimes.interpreter import LocalInterpreter, NoKernel, RunTimeout

Answer = tuple[str, Any]


def main() -> None:
    """Answer the requests of the parent, one after the other."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # a terminal sends them to all processes, and the parent ends this one
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_IGN)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of LiteRT must not mix with the answers
    sessions: dict[int, LocalInterpreter] = {}
    for numbers_to_free, command, arguments in _requests():
        for number in numbers_to_free:
            sessions.pop(number, None)
        pickle.dump(_answer(sessions, command, *arguments), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _requests() -> Iterator[tuple[list[int], str, tuple[Any, ...]]]:
    """Yield the parent's requests.

    The process ends with the parent, even while LiteRT runs.
    """
    queue: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                queue.put(pickle.load(sys.stdin.buffer))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield queue.get()


def _answer(sessions: dict[int, LocalInterpreter], command: str, number: int, *arguments: Any) -> Answer:
    """Return the result of a request, or the kind and message of its error."""
    try:
        if command == "open":
            sessions[number] = LocalInterpreter(*arguments, silent=False)
            return "answer", None
        return "answer", getattr(sessions[number], command)(*arguments)
    except NoKernel as error:
        return "NoKernel", error.code
    except RunTimeout as error:
        return "RunTimeout", str(error)
    except ConversionError as error:
        return "LiteRTError", str(error)
    except Exception as error:
        return "LiteRTError", f"LiteRT fails on the model: {type(error).__name__}: {error}"
