"""Standard output and error of the command.

Every write to stdout is complete or raises an error that names stdout. With ``PYTHONUNBUFFERED``, Python's own stdout would
write as many bytes as fit and drop the rest.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def open_streams() -> None:
    """Open stdout and stderr, and escape characters that a terminal cannot show."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    stdout, is_original = sys.stdout, sys.stdout is sys.__stdout__  # the interpreter keeps its original stdout open
    buffer = getattr(stdout, "buffer", None)
    raw = buffer if isinstance(buffer, io.RawIOBase) else getattr(buffer, "raw", None)
    if raw is not None and is_original:
        stdout.flush()
        sys.stdout = io.TextIOWrapper(_Stdout(raw), stdout.encoding, stdout.errors, line_buffering=stdout.isatty())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing its buffers succeeds."""
    _discard(sys.stdout.fileno())


def _discard(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


class _Stdout(io.BufferedWriter):
    """Buffer of stdout. The first error is raised, and all later output is discarded."""

    def write(self, content: Any, /) -> int:
        return self._name_errors(lambda: super(_Stdout, self).write(content))

    def flush(self) -> None:
        self._name_errors(super().flush)

    def _name_errors(self, action: Callable[[], T]) -> T:
        """Return the result of an action; its errors name stdout."""
        try:
            return action()
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard(self.fileno())
            raise OSError(error.errno, error.strerror, "stdout") from error
