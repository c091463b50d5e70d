"""Test conversions between quantized values and floats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored


def quantized_tensor(dtype: str, scale: Sequence[float], zero_point: Sequence[int], axis: int = 0) -> Tensor:
    return Tensor(0, 0, "t", dtype, (2, 3), (2, 3), quantization=Quantization(tuple(scale), tuple(zero_point), axis))


def test_dequantizes_and_requantizes_per_tensor() -> None:
    tensor = quantized_tensor("int8", [0.5], [3])
    stored = np.array([[-128, 3, 4], [5, 127, 0]], np.int8)
    floats = as_float(tensor, stored)
    assert floats.dtype == np.float32
    assert floats.tolist() == [[-65.5, 0, 0.5], [1, 62, -1.5]]
    np.testing.assert_array_equal(as_stored(tensor, floats), stored)


def test_dequantizes_and_requantizes_per_channel() -> None:
    tensor = quantized_tensor("int16", [1, 2, 4], [0, 0, 0], axis=1)
    floats = as_float(tensor, np.ones((2, 3), np.int16))
    assert floats.tolist() == [[1, 2, 4]] * 2
    assert as_stored(tensor, floats).tolist() == [[1, 1, 1]] * 2


def test_quantization_rounds_half_to_even_and_saturates() -> None:
    floats = np.array([[0.5, 1.5, -0.5], [1e9, -1e9, np.nan]], np.float32)
    stored = as_stored(quantized_tensor("uint8", [1.0], [10]), floats)
    assert stored.dtype == np.uint8
    assert stored.tolist() == [[10, 12, 10], [255, 0, 10]]


def test_unquantized_values_stay_unchanged() -> None:
    unquantized = Tensor(0, 0, "t", "int8", (3,), (3,))
    floats, integers = np.ones(3, np.float32), np.ones(3, np.int8)
    assert as_float(unquantized, integers) is integers
    assert as_stored(unquantized, floats) is floats
    assert as_float(quantized_tensor("int8", [0.5], [0]), floats) is floats
    assert as_stored(quantized_tensor("int8", [0.5], [0]), integers) is integers
    assert as_stored(quantized_tensor("float32", [0.5], [0]), floats) is floats
