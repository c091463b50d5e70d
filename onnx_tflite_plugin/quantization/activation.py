"""Fused activations of quantized tensors: their bounds in the stored integers."""

from __future__ import annotations

import math
from typing import NamedTuple

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Quantization


class Clamp(NamedTuple):
    """Bounds on stored integers; ``None`` where the dtype's own end does it."""

    low: int | None
    high: int | None

    @property
    def idle(self) -> bool:
        return self.low is None and self.high is None


def round_half_away(value: float) -> int:
    """TfLiteRound: halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def stored_clamp(activation: str, dtype: str, quantization: Quantization) -> Clamp:
    """Return the clamp that a quantized kernel applies (CalculateActivationRangeQuantized): zp + round(bound / scale).

    Raises Refused for an activation that is no clamp, which no kernel applies to integers.
    """
    bounds = activation_bounds(activation)
    if bounds is None:
        raise Refused(f"its fused activation {activation} is no clamp, and its result is quantized")
    low, high = bounds
    scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    if not scale:
        raise Refused("its result has a scale of 0, which a fused activation cannot be told in")
    least, most = INTEGER_RANGE[dtype]
    bottom = None if low is None else zero_point + round_half_away(low / scale)
    top = None if high is None else zero_point + round_half_away(high / scale)
    return Clamp(
        bottom if bottom is not None and bottom > least else None, top if top is not None and top < most else None
    )
