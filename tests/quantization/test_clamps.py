"""Bounds of fused activations in quantized values."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.quantization.activation import Clamp, quantized_clamp_bounds
from onnx_tflite_plugin.source.model import Quantization


@pytest.mark.parametrize(
    ("activation", "dtype", "scale", "zero_point", "bounds"),
    [
        ("RELU6", "int8", 0.05, 3, (3, 123)),
        ("RELU_N1_TO_1", "int8", 0.4, 3, (0, 6)),  # rounded half away from zero
        ("RELU", "uint8", 0.05, 3, (3, None)),
        ("RELU", "uint8", 0.05, 0, (None, None)),
        ("RELU6", "int8", 0.05, -127, (-127, -7)),
        ("RELU6", "int8", 0.05, -128, (None, -8)),
        ("RELU6", "int8", 0.05, 7, (7, None)),
        ("RELU6", "uint8", 0.01, 0, (None, None)),
        ("RELU_N1_TO_1", "int16", 0.0001, 0, (-10000, 10000)),
        ("NONE", "int8", 0.05, 3, (None, None)),
    ],
)
def test_bound_at_the_end_of_the_dtype_is_omitted(
    activation: str, dtype: str, scale: float, zero_point: int, bounds: tuple[int | None, int | None]
) -> None:
    """CalculateActivationRangeQuantized, kernel_util.cc."""
    clamp = quantized_clamp_bounds(activation, dtype, Quantization((scale,), (zero_point,), 0))
    assert clamp == Clamp(*bounds)
    assert clamp.is_idle == (bounds == (None, None))


def test_bounds_at_scale_0_are_refused() -> None:
    with pytest.raises(Refusal, match="a scale of 0"):
        quantized_clamp_bounds("RELU6", "int8", Quantization((0.0,), (3,), 0))
