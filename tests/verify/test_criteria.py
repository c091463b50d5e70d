"""Test each tolerance of a submodel at its limit."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, compare, criteria
from onnx_tflite_plugin.verify.criteria import Tolerance, submodel_tolerance, without_overflow

ONE = submodel_tolerance(1, recurrent=False, dequantized=False)


def compare_arrays(
    actual: Array,
    expected: Array,
    *,
    operators: int = 1,
    recurrent: bool = False,
    largest: float = 0.0,
) -> Comparison:
    tolerance = submodel_tolerance(operators, recurrent=recurrent, dequantized=False)
    return compare("y", [actual], {"builtin": [expected]}, tolerance, floor=criteria.CANCELLATION * largest)


def floats(off: float) -> tuple[Array, Array]:
    """Return numbers from 0 to 1, and a copy with one error."""
    expected = np.linspace(0, 1, 31, dtype=np.float64)
    actual = expected.copy()
    actual[7] += off
    return actual.astype(np.float32), expected.astype(np.float32)


@pytest.mark.parametrize(
    ("operators", "recurrent", "share"),
    [(1, False, criteria.OPERATOR), (2, False, criteria.GROUP), (1, True, criteria.RECURRENT)],
)
def test_float_error_is_relative_to_the_range(operators: int, recurrent: bool, share: float) -> None:
    assert compare_arrays(*floats(0.9 * share), operators=operators, recurrent=recurrent).ok
    assert not compare_arrays(*floats(1.1 * share), operators=operators, recurrent=recurrent).ok


@pytest.mark.parametrize(("dtype", "mean"), [("int8", criteria.GROUP_MEAN), ("int16", criteria.GROUP_STEPS_INT16)])
def test_limits_the_mean_error_after_several_roundings(dtype: str, mean: float) -> None:
    tolerance, size = submodel_tolerance(3, roundings=3), 1000
    expected = (np.arange(size) % 101).astype(dtype)
    for share, ok in ((0.9, True), (1.1, False)):
        errors = np.zeros(size, dtype)
        errors[: round(share * mean * size / 3)] = 3
        assert compare("y", [expected + errors], {"builtin": [expected]}, tolerance).ok is ok


def test_cancellation_error_is_relative_to_the_largest_operand() -> None:
    off = 1000 * criteria.CANCELLATION
    assert compare_arrays(*floats(0.9 * off), largest=1000.0).ok
    assert not compare_arrays(*floats(1.1 * off), largest=1000.0).ok


def channels(off: float, rows: int = 11) -> tuple[Array, Array]:
    """Return a channel up to 1 and one up to 0.01 with an error relative to its range."""
    expected = np.linspace(0, 1, rows)[:, None] * np.array([1, 0.01])
    actual = expected.copy()
    actual[3, 1] += off * 0.01
    return actual.astype(np.float32), expected.astype(np.float32)


def test_float_error_is_relative_to_the_channel_range() -> None:
    assert compare_arrays(*channels(0.9 * max(criteria.OPERATOR, 100 * criteria.RESIDUE))).ok
    assert (
        "of the range of channel 1"
        in compare_arrays(*channels(1.1 * max(criteria.OPERATOR, 100 * criteria.RESIDUE))).problem
    )
    assert compare_arrays(*channels(3e-3, rows=7)).ok
    assert compare_arrays(*channels(3e-3), recurrent=True).ok


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantized_values_may_rarely_differ_by_one_step(dtype: str) -> None:
    expected = (np.arange(64).reshape(32, 2) * 7 % 50 + 20).astype(dtype)
    mask = (np.arange(64).reshape(32, 2) % 13 == 0).astype(dtype)
    assert compare_arrays(expected + mask, expected).ok
    assert not compare_arrays(expected + 2 * mask, expected).ok


def test_rejects_bias_over_most_of_a_tensor() -> None:
    expected = np.arange(-50, 50, dtype=np.int8)
    few, many = (expected + (np.arange(100) < count).astype(np.int8) for count in (75, 76))
    assert compare_arrays(few, expected).ok
    assert "off by +0.76 quantization steps on average" in compare_arrays(many, expected).problem


@pytest.mark.parametrize(("below", "above"), [(1, 1), (-1, 1), (1, 0), (0, -1)])
def test_limits_the_mean_error_on_each_side_of_the_zero_point(below: int, above: int) -> None:
    expected = np.tile(np.arange(-40, 60), 10).astype(np.int8)
    sides = np.where(expected < 10, below, above)
    tolerance = Tolerance(rounding_bias=criteria.ROUNDING_BIAS)
    for share, ok in ((0.28, True), (0.32, False)):
        off = (sides * (np.random.default_rng(0).permuted(np.arange(1000)) < 1000 * share)).astype(np.int8)
        comparison = compare("y", [expected + off], {"a": [expected]}, tolerance, zero_point=10)
        assert comparison.ok is ok, comparison.text
        assert compare("y", [expected + off], {"a": [expected]}, Tolerance(), zero_point=10).ok


def test_allows_one_step_per_rounding_operator() -> None:
    expected = np.arange(64, dtype=np.int8)
    off = 2 * (np.arange(64) % 13 == 0).astype(np.int8)
    for roundings, ok in ((1, False), (2, True)):
        tolerance = submodel_tolerance(2, roundings=roundings)
        assert compare("y", [expected + off], {"builtin": [expected]}, tolerance).ok is ok


@pytest.mark.parametrize(("dtype", "wrong"), [("int8", True), ("int16", False)])
def test_rejects_bias_of_an_8_bit_channel(dtype: str, wrong: bool) -> None:
    expected = (np.arange(200).reshape(40, 5) * 7 % 90).astype(dtype)
    off = np.zeros_like(expected)
    off[:10, 3] = 1
    assert compare_arrays(expected + off, expected).ok
    off[10, 3] = 1
    assert ("in channel 3" in compare_arrays(expected + off, expected).problem) is wrong


def test_tensor_of_few_distinct_values_allows_few_errors() -> None:
    expected = (np.arange(64) % criteria.FEW_STEPS).astype(np.int8)
    off = np.where(np.arange(64) % 3 == 0, np.where(np.arange(64) % 2, 1, -1), 0).astype(np.int8)
    assert "in a tensor with few distinct values" in compare_arrays(expected + off, expected).problem
    assert compare_arrays((2 * expected + off).astype(np.int8), 2 * expected).ok


def test_integers_and_booleans_must_be_equal() -> None:
    expected = np.arange(31, dtype=np.int64)
    assert compare_arrays(expected, expected).ok
    assert not compare_arrays(expected + (expected == 7), expected).ok
    assert not compare_arrays(np.array([True, False]), np.array([True, True])).ok


def test_dequantized_tensors_allow_a_few_steps() -> None:
    dequantized = submodel_tolerance(1, recurrent=False, dequantized=True)
    assert (dequantized.steps, dequantized.int16_steps) == (
        criteria.DEQUANTIZED_STEPS,
        criteria.DEQUANTIZED_INT16_STEPS,
    )


def test_excludes_overflowed_elements() -> None:
    arrays = np.float32([1, np.inf, 3, 2.0**101]), np.float32([1, 2, np.nan, 4])
    actual, expected = without_overflow(*arrays, wide=True)
    assert actual.tolist() == [1, 0, 0, 0]
    assert expected.tolist() == [1, 0, 0, 0]
    actual, _ = without_overflow(*arrays, wide=False)
    assert actual.tolist() == [1, np.inf, 0, 2.0**101]
    wrapped, _ = without_overflow(np.int16([32767, -32768, 5]), np.int16([-9, 9, 7]), wide=True)
    assert wrapped.tolist() == [-9, 9, 5]
    assert without_overflow(np.float32([1, 2]), np.float32([1]), wide=True)[0].tolist() == [1, 2]
