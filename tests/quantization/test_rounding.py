"""Rounding differences that a tolerance of one step would hide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, tensor
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.quantization.activation import Clamp, quantized_clamp_bounds
from onnx_tflite_plugin.source.model import Quantization
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime


@pytest.mark.parametrize(("activation", "scale"), [("RELU6", 12.0), ("RELU_N1_TO_1", 2.0)])
def test_bounds_round_half_away_from_zero(activation: str, scale: float) -> None:
    """TfLiteRound; the quotient is exact only for half a step: 6 / 12 and 1 / 2."""
    model = Net()
    x, y = tensor(997, dtype="int8", scale=scale, zero_point=3), tensor(997, dtype="int8", scale=scale, zero_point=-5)
    model.output(model.call("ADD", [x, x], y, fused_activation_function=activation))
    data = model.build()
    array = np.random.default_rng(0).integers(-128, 128, 997).astype(np.int8)
    (actual,), (expected,) = OnnxRuntime(otp.convert(data).proto).run([array, array]), LiteRT(data).run([array, array])
    assert int(expected.max()) == -4
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("zero_point", [0, 71])
def test_int32_is_rounded_not_truncated(zero_point: int) -> None:
    """The kernel rounds twice, so one in 50 results is off by one.

    With truncation, half of the results would be off by one.
    """
    model = Net()
    wide = replace(tensor(997, dtype="int32", scale=1.0), zero_point=zero_point)
    model.output(model.call("QUANTIZE", [tensor(997, dtype="int16", scale=0.029314)], wide))
    data = model.build()
    x = np.random.default_rng(0).integers(-32768, 32768, 997).astype(np.int16)
    (actual,), (expected,) = OnnxRuntime(otp.convert(data).proto).run([x]), LiteRT(data).run([x])
    assert np.abs(expected).max() > 900
    assert np.abs(actual - expected).max() <= 1
    assert np.count_nonzero(actual != expected) < 997 / 10


@pytest.mark.parametrize(
    ("activation", "dtype", "scale", "zero_point", "clamp"),
    [
        ("NONE", "int8", 0.05, -3, Clamp(None, None)),
        ("RELU", "int8", 0.05, -3, Clamp(-3, None)),
        ("RELU", "int8", 0.05, -128, Clamp(None, None)),
        ("RELU", "uint8", 0.05, 1, Clamp(1, None)),
        ("RELU6", "int8", 0.05, -3, Clamp(-3, 117)),
        ("RELU6", "int8", 0.05, 6, Clamp(6, 126)),
        ("RELU6", "int8", 0.05, 7, Clamp(7, None)),
        ("RELU6", "uint8", 0.05, 134, Clamp(134, 254)),
        ("RELU6", "int16", 0.001, 0, Clamp(0, 6000)),
        ("RELU_N1_TO_1", "int8", 0.01, 11, Clamp(-89, 111)),
        ("RELU_N1_TO_1", "uint8", 0.01, 101, Clamp(1, 201)),
        ("RELU_N1_TO_1", "uint8", 0.01, 100, Clamp(None, 200)),
    ],
)
def test_stored_clamp_is_limited_to_the_dtype(
    activation: str, dtype: str, scale: float, zero_point: int, clamp: Clamp
) -> None:
    """The kernel clamps bounds to the dtype.

    CalculateActivationRangeQuantized: max(qmin, quantize(bound)), min(qmax, quantize(bound)).
    """
    assert quantized_clamp_bounds(activation, dtype, Quantization((scale,), (zero_point,), 0)) == clamp


def test_activation_at_scale_0_is_refused() -> None:
    with pytest.raises(Refusal, match="scale of 0"):
        quantized_clamp_bounds("RELU", "int8", Quantization((0.0,), (0,), 0))
