"""Integers and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored


def quantized_tensor(dtype: str, scale: Sequence[float], zero_point: Sequence[int], axis: int = 0) -> Tensor:
    return Tensor(0, 0, "t", dtype, (2, 3), (2, 3), quantization=Quantization(tuple(scale), tuple(zero_point), axis))


def test_integers_stand_for_their_distance_from_the_zero_point_in_steps() -> None:
    tensor = quantized_tensor("int8", [0.5], [3])
    stored = np.array([[-128, 3, 4], [5, 127, 0]], np.int8)
    floats = as_float(tensor, stored)
    assert floats.dtype == np.float32
    assert floats.tolist() == [[-65.5, 0, 0.5], [1, 62, -1.5]]
    np.testing.assert_array_equal(as_stored(tensor, floats), stored)


def test_each_channel_has_its_scale_along_its_axis() -> None:
    tensor = quantized_tensor("int16", [1, 2, 4], [0, 0, 0], axis=1)
    floats = as_float(tensor, np.ones((2, 3), np.int16))
    assert floats.tolist() == [[1, 2, 4]] * 2
    assert as_stored(tensor, floats).tolist() == [[1, 1, 1]] * 2


def test_floats_are_rounded_to_even_and_saturate() -> None:
    floats = np.array([[0.5, 1.5, -0.5], [1e9, -1e9, np.nan]], np.float32)
    stored = as_stored(quantized_tensor("uint8", [1.0], [10]), floats)
    assert stored.dtype == np.uint8
    assert stored.tolist() == [[10, 12, 10], [255, 0, 10]]


def test_what_has_no_scale_or_is_no_integer_stays() -> None:
    plain = Tensor(0, 0, "t", "int8", (3,), (3,))
    floats, integers = np.ones(3, np.float32), np.ones(3, np.int8)
    assert as_float(plain, integers) is integers
    assert as_stored(plain, floats) is floats
    assert as_float(quantized_tensor("int8", [0.5], [0]), floats) is floats
    assert as_stored(quantized_tensor("int8", [0.5], [0]), integers) is integers
    assert as_stored(quantized_tensor("float32", [0.5], [0]), floats) is floats
