"""Prices of layouts, which targets and handlers define."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_tflite_plugin.checked import Checked


@dataclass(frozen=True)
class Price(Checked):
    """Extra cost of a layout, in bytes moved per byte of the operand.

    1 µs equals 8 kB moved. ``last``: cost if the operator works along the last axis in memory. ``inner``: cost along any other axis.
    """

    last: float = 0.0
    inner: float = 0.0
