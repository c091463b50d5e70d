"""Progress of a conversion: stages that are passed to a callback and logged."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

Progress = Callable[[str], None]
"""Callback that takes the name of each stage when it begins."""


def check_progress(progress: object) -> None:
    """Raise TypeError if ``progress`` is neither a function nor None."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of a stage's name, not {type(progress).__name__}")


LOG = logging.getLogger("onnx_tflite_plugin")
LOG.addHandler(logging.NullHandler())  # nothing is printed unless the application configures logging


class Stages:
    """Callable that passes the name of each stage to a callback, and logs its time.

    A stage is logged when it ends. ``seconds``: stage -> total time.
    """

    def __init__(self, callback: Progress | None = None) -> None:
        self._callback = callback
        self._stage = ""
        self._start = 0.0
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str) -> None:
        self.finish()
        self._stage, self._start = stage, time.perf_counter()
        if self._callback is not None:
            self._callback(stage)

    def finish(self) -> None:
        """End the current stage."""
        if self._stage:
            seconds = time.perf_counter() - self._start
            LOG.info("%s: %.3f s", self._stage, seconds)
            name = self._stage.partition(", run ")[0]
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._stage = ""
