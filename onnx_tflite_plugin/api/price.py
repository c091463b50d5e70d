"""Prices of layouts: defined by targets for ONNX operators, or by a handler for its own operator."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_tflite_plugin.checked import Checked


@dataclass(frozen=True)
class Price(Checked):
    """Extra cost of a layout per byte of an operand; 1 µs counts as 8 kB.

    ``last``: if the operator works along the last axis in memory; ``inner``: if along another.
    """

    last: float = 0.0
    inner: float = 0.0
