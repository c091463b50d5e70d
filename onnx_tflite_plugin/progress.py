"""What a conversion is doing: told to whoever asks, and logged with how long it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""

LOG = logging.getLogger("onnx_tflite_plugin")
LOG.addHandler(logging.NullHandler())  # nothing is printed unless whoever calls sets logging up


class Stages:
    """Hands the name of a stage on, and logs the one before with its seconds."""

    def __init__(self, told: Progress | None = None) -> None:
        self._told = told
        self._stage = ""
        self._start = 0.0

    def __call__(self, stage: str) -> None:
        self.done()
        self._stage, self._start = stage, time.perf_counter()
        if self._told is not None:
            self._told(stage)

    def done(self) -> None:
        """The last stage is over."""
        if self._stage:
            LOG.info("%s: %.3f s", self._stage, time.perf_counter() - self._start)
        self._stage = ""
