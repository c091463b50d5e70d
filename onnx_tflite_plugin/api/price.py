"""What an order costs an operator itself: told by targets for operators of ONNX, or by a handler for its own."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_tflite_plugin.checked import Checked


@dataclass(frozen=True)
class Price(Checked):
    """Extra byte equivalents (8 kB a microsecond) per byte of an operand.

    ``last``: where the axis worked along is the last in memory; ``inner``: where it is not.
    """

    last: float = 0.0
    inner: float = 0.0
