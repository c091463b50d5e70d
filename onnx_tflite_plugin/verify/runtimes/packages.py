"""Import of optional packages, and suppression of their log."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from onnx_tflite_plugin.errors import MissingExtra


def import_optional(module: str) -> Any:
    """Import and return a module.

    Raises MissingExtra, with the pip command, if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(package.replace("_", "-")) from None


@contextlib.contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard all output to file descriptor 2, such as log lines of C++ code.

    Exceptions are not affected. The descriptor belongs to the whole process, so other threads are silenced too.
    """
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stderr.flush()
    try:
        stderr_copy = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    try:
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, 2)
        os.close(null_device)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
