"""Bounds of fused activations in quantized values."""

from __future__ import annotations

import math
from typing import NamedTuple

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.source.dtypes import INTEGER_RANGE
from onnx_tflite_plugin.source.model import Quantization


class Clamp(NamedTuple):
    """Bounds of quantized values; ``None`` if only the dtype limits them."""

    low: int | None
    high: int | None

    @property
    def is_idle(self) -> bool:
        """True if neither bound has an effect."""
        return self.low is None and self.high is None


def round_half_away(value: float) -> int:
    """Return the value rounded half away from zero, as TfLiteRound does."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def quantized_clamp_bounds(activation: str, dtype: str, quantization: Quantization) -> Clamp:
    """Return the bounds to which a quantized kernel clamps its output.

    Each bound is zero point + round(bound / scale), as in CalculateActivationRangeQuantized. Raises Refusal for a scale
    of 0, and for an activation without bounds, which no kernel applies to integers.
    """
    bounds = activation_bounds(activation)
    if bounds is None:
        raise Refusal(f"the fused activation {activation} is not a clamp, but the output is quantized")
    low, high = bounds
    scale, zero_point = quantization.scale[0], quantization.zero_point[0]
    if not scale:
        raise Refusal("the output has a scale of 0, so the bounds of its fused activation cannot be quantized")
    lowest, highest = INTEGER_RANGE[dtype]
    lower = None if low is None else zero_point + round_half_away(low / scale)
    upper = None if high is None else zero_point + round_half_away(high / scale)
    return Clamp(
        low=None if lower is None or lower <= lowest else lower,
        high=None if upper is None or upper >= highest else upper,
    )
