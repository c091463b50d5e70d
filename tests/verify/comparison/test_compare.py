"""Test error measures and tolerances on hand-made arrays."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, Tolerance, compare, measure_error


def array(*values: Any, dtype: str = "float32") -> Array:
    return np.array(values, dtype)


def compare_run(
    actual: Array, *kernel_outputs: Array, tolerance: Tolerance | None = None, floor: float = 0.0
) -> Comparison:
    """Compare one run with the kernel sets "a", "b", ..."""
    expected = {name: [values] for name, values in zip("abc", kernel_outputs, strict=False)}
    return compare("y", [actual], expected, tolerance or Tolerance(), floor=floor)


def varied_integers(rows: int, channels: int = 1, dtype: str = "int8") -> Array:
    """Return integers that differ along each channel."""
    return (np.arange(rows * channels).reshape(rows, channels) * 7 % 50 + 20).astype(dtype)


def leading_ones(count: int, size: int) -> Array:
    return (np.arange(size) < count).astype(np.int8)


class TestMeasureError:
    def test_counts_differing_elements_and_finds_the_maximum(self) -> None:
        error = measure_error(array(1, 2, 3, 4), array(1, 2.5, 3, 3))
        assert (error.worst, error.differing, error.elements, error.problem) == (1, 2, 4, "")

    def test_integers_do_not_wrap(self) -> None:
        assert measure_error(array(-128, 0, dtype="int8"), array(127, 0, dtype="int8")).worst == 255
        assert measure_error(array(0, dtype="uint8"), array(255, dtype="uint8")).worst == 255

    def test_int64_values_differ_beyond_float64_precision(self) -> None:
        big = 2**62
        assert measure_error(array(big, dtype="int64"), array(big + 1, dtype="int64")).worst == 1

    def test_strings_are_equal_as_bytes_or_str(self) -> None:
        error = measure_error(array("kůň", "b", dtype="object"), array("kůň".encode(), b"b", dtype="object"))
        assert (error.worst, error.problem) == (0, "")
        assert measure_error(array("a", dtype="object"), array(b"b", dtype="object")).worst == 1
        assert measure_error(np.array(["\udcff"], object), np.array([b"\xff"], object)).worst == 0
        assert measure_error(np.array(["a", "b"]), np.array([b"a", b"c"])).differing == 1

    def test_complex_values_are_compared_as_pairs(self) -> None:
        assert measure_error(np.array([[1, 2]], np.float32), array(1 + 2j, dtype="complex64")).worst == 0
        transposed = np.arange(6, dtype=np.complex64).reshape(2, 3).T
        assert measure_error(transposed, np.ascontiguousarray(transposed)).worst == 0

    @pytest.mark.parametrize(
        ("actual", "expected", "problem"),
        [
            (np.zeros((2, 1), np.float32), np.zeros(2, np.float32), "shape [2, 1], expected [2]"),
            (np.zeros((), np.float32), np.zeros(1, np.float32), "shape [], expected [1]"),
            (np.zeros(2, np.float64), np.zeros(2, np.float32), "dtype float64, expected float32"),
            (np.zeros(2, np.uint8), np.zeros(2, np.int8), "dtype uint8, expected int8"),
            (np.zeros(2, np.int64), np.zeros(2, np.int32), "dtype int64, expected int32"),
        ],
    )
    def test_different_shapes_and_dtypes_are_problems(self, actual: Array, expected: Array, problem: str) -> None:
        assert measure_error(actual, expected).problem == problem
        assert not compare_run(actual, expected).ok

    @pytest.mark.parametrize(
        ("actual", "expected", "problem"),
        [
            ([np.nan, 1], [0, 1], "NaN at different positions (1 elements, first at [0]: nan, expected 0.0)"),
            (
                [0, np.nan, np.nan],
                [0, 1, 2],
                "NaN at different positions (2 elements, first at [1]: nan, expected 1.0)",
            ),
            ([0, 1], [0, np.nan], "NaN at different positions"),
            ([np.inf, 1], [3e38, 1], "+inf at different positions"),
            ([np.inf, 1], [-np.inf, 1], "+inf at different positions"),
            ([0, 1], [-np.inf, 1], "-inf at different positions"),
        ],
    )
    def test_nan_and_infinity_at_different_positions_are_problems(
        self, actual: list[float], expected: list[float], problem: str
    ) -> None:
        error = measure_error(array(*actual), array(*expected))
        assert error.problem.startswith(problem)
        assert error.worst == math.inf

    def test_nan_and_infinity_at_the_same_positions_are_equal(self) -> None:
        values = array(np.nan, np.inf, -np.inf, 1)
        assert measure_error(values, values.copy()).worst == 0

    def test_empty_arrays_are_equal(self) -> None:
        assert compare_run(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).text.startswith("equal (")

    def test_mean_error_of_booleans_is_the_differing_fraction(self) -> None:
        assert measure_error(np.array([True, True, False, False]), np.zeros(4, bool)).mean == 0.5

    def test_float16_difference_may_exceed_the_dtype(self) -> None:
        assert measure_error(np.float16([60000]), np.float16([-60000])).worst == 120000

    @pytest.mark.parametrize(
        ("dtype", "least", "most"),
        [(ml_dtypes.int4, -8, 7), (ml_dtypes.int2, -2, 1), (ml_dtypes.uint4, 0, 15)],
    )
    def test_sub_byte_integers_do_not_wrap(self, dtype: type, least: int, most: int) -> None:
        error = measure_error(np.array([least, 0], dtype), np.array([most, 0], dtype))
        assert (error.worst, error.differing, error.problem) == (most - least, 1, "")

    def test_uint4_is_not_int4(self) -> None:
        assert measure_error(np.array([3], ml_dtypes.uint4), np.array([3], ml_dtypes.int4)).problem

    def test_ignores_differences_of_denormals(self) -> None:
        """LOGISTIC of -100 is 4e-44, but 0 in some kernels."""
        assert measure_error(np.float32([0, 1e-31]), np.float32([0, 0])) == measure_error(
            np.float32([0, 0]), np.float32([0, 0])
        )
        assert measure_error(np.float32([0, 1e-30]), np.float32([0, 0])).worst == np.float32(1e-30)


class TestTolerance:
    def test_float_tolerance_is_relative_to_the_range(self) -> None:
        expected = array(-500, 0, 500)
        assert compare_run(expected + array(0.99, 0, 0), expected).ok
        assert not compare_run(expected + array(1.01, 0, 0), expected).ok

    def test_the_range_includes_zero(self) -> None:
        expected = array(1000, 1000.1)
        assert compare_run(expected + array(0.9, 0), expected).ok

    def test_zeros_have_no_range(self) -> None:
        assert compare_run(array(0, 0), array(0, 0)).ok
        assert not compare_run(array(0, 1e-9), array(0, 0)).ok
        assert not compare_run(array(0, 5), array(0, 0), floor=0.1).ok

    def test_infinities_do_not_widen_the_range(self) -> None:
        assert not compare_run(array(np.inf, 1.01), array(np.inf, 1)).ok

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
    def test_quantized_values_may_differ_by_one_step(self, dtype: str) -> None:
        comparison = compare_run(array(5, 6, dtype=dtype), array(5, 7, dtype=dtype))
        assert comparison.ok
        assert comparison.text == "max 1 quantization step, 50.0 % of elements differ (tolerance 1)"
        assert not compare_run(array(5, 5, dtype=dtype), array(5, 7, dtype=dtype)).ok

    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "bool", "object"])
    def test_other_dtypes_must_be_equal(self, dtype: str) -> None:
        assert not compare_run(array(0, 1, dtype=dtype), array(1, 1, dtype=dtype)).ok
        assert compare_run(array(1, 1, dtype=dtype), array(1, 1, dtype=dtype)).ok

    @pytest.mark.parametrize(
        ("dtype", "share"),
        [
            ("float16", 2**-10),
            (ml_dtypes.bfloat16, 2**-7),
            (ml_dtypes.float8_e4m3fn, 2**-3),
            (ml_dtypes.float8_e5m2, 2**-2),
        ],
    )
    def test_float16_may_differ_by_one_ulp(self, dtype: Any, share: float) -> None:
        values = np.array([-1, 1], dtype)
        assert compare_run(values, values, tolerance=Tolerance(of_range=0)).tolerance == share

    def test_allows_an_absolute_error(self) -> None:
        assert not compare_run(array(0, 0.9), array(0, 1)).ok
        assert compare_run(array(0, 0.9), array(0, 1), floor=0.1001).ok

    def test_products_of_quantized_values_may_differ_by_rounding(self) -> None:
        scale = np.float32(0.1)
        for expected in range(-97, 98):
            ends = array(-128, 127) * scale
            reference = np.append(ends, np.float32(expected) * scale)
            for steps, ok in ((1, True), (2, False)):
                actual = np.append(ends, np.float32(expected + steps) * scale)
                assert compare_run(actual, reference, tolerance=Tolerance(of_range=0), floor=float(scale)).ok is ok

    def test_rounding_twice_needs_an_absolute_tolerance(self) -> None:
        expected, exact = np.float32([-1, 1, 0]), Tolerance(of_range=0)
        for rounded, ok in ((2**-22, True), (2**-21, False)):
            assert compare_run(np.float32([-1, 1, 0.25 + rounded]), expected, tolerance=exact, floor=0.25).ok is ok
        expected = np.float32([-1, 1, 0.5])
        assert not compare_run(np.float32([-1, 1, 0.5 + 2**-23]), expected, tolerance=exact).ok


class TestKernelSets:
    def test_one_matching_set_is_enough(self) -> None:
        comparison = compare_run(array(5, dtype="int8"), array(50, dtype="int8"), array(6, dtype="int8"))
        assert (comparison.ok, comparison.nearest, comparison.max_error) == (True, "b", 1)

    def test_results_between_two_sets_match_neither(self) -> None:
        comparison = compare_run(array(12, dtype="int8"), array(10, dtype="int8"), array(14, dtype="int8"))
        assert comparison.text == "max 2 quantization steps, 100.0 % of elements differ (tolerance 1, compared with a)"

    def test_nan_of_one_kernel_set_does_not_excuse_other_differences(self) -> None:
        first_set, second_set = array(np.nan, 1), array(0, 1)
        assert compare_run(array(np.nan, 1), first_set, second_set).ok
        assert compare_run(array(0, 1), first_set, second_set).ok
        assert not compare_run(array(np.inf, 1), first_set, second_set).ok
        assert not compare_run(array(0, 2), first_set, second_set).ok

    def test_kernel_set_of_equal_shape_is_nearer(self) -> None:
        assert compare_run(array(1, 2), array(1), array(1, 9)).nearest == "b"

    def test_nearest_set_has_the_least_maximum_then_mean(self) -> None:
        comparison = compare_run(np.int8([2, 2, 2, 4]), np.int8([0, 0, 0, 2]), np.int8([2, 2, 2, 0]))
        assert (comparison.nearest, comparison.max_error) == ("a", 2)
        first_set, second_set = array(9, 9, 5, dtype="int8"), array(5, 9, 5, dtype="int8")
        assert compare_run(array(5, 5, 5, dtype="int8"), first_set, second_set).nearest == "b"

    def test_prefers_a_kernel_set_without_bias(self) -> None:
        actual = varied_integers(100).ravel()
        nearest, other = actual - leading_ones(80, 100), actual - leading_ones(61, 100)
        other[80:] += 1
        assert compare_run(actual, nearest).problem
        comparison = compare_run(actual, other, nearest)
        assert (comparison.nearest, comparison.ok) == ("a", True)

    def test_difference_in_any_run_fails(self) -> None:
        good, bad = array(1, 2), array(1, 3)
        assert not compare("y", [good, bad], {"a": [good, good]}, Tolerance()).ok
        comparison = compare("y", [np.zeros((3, 1), np.int8), bad], {"a": [np.zeros(3, np.int8), bad]}, Tolerance())
        assert (comparison.problem, comparison.max_error) == ("shape [3, 1], expected [3]", np.inf)

    def test_statistics_cover_all_runs_in_output_units(self) -> None:
        """The range is 8 over two runs; infinity is excluded."""
        first_run, second_run = array(-3, 5, np.inf), array(0, 1, 2)
        other_outputs = [first_run + array(5, 0, 0), second_run - array(0, 0, 1)]
        actual = [first_run - array(0, 1, 0), second_run + array(0.5, 0, 0)]
        assert compare(
            "y", actual, {"other": other_outputs, "near": [first_run, second_run]}, Tolerance(of_range=0.5)
        ) == Comparison(
            name="y",
            unit="range",
            max_error=1 / 8,
            differing=2 / 6,
            tolerance=0.5,
            nearest="near",
            mean_error=1.5 / 6 / 8,
        )


@pytest.mark.parametrize(("differing_count", "share"), [(1, "under 0.1 %"), (5, "0.1 %"), (20, "0.2 %")])
def test_fraction_of_differing_elements_has_one_decimal(differing_count: int, share: str) -> None:
    actual = np.zeros(10_000, np.int8)
    actual[:differing_count] = 1
    assert f", {share} of elements differ" in compare_run(actual, np.zeros_like(actual)).text


def test_comparison_text_has_errors_and_tolerance() -> None:
    assert compare_run(array(1, 2), array(1, 2)).text == "equal (tolerance 0.001 of the output's range)"
    assert compare_run(array(0, 1.0005), array(0, 1)).text == "max 0.0005 of the output's range (tolerance 0.001)"
    wrong = compare_run(array(0, 1.5), array(0, 1)).text
    assert wrong == "max 0.5 of the output's range (tolerance 0.001, compared with a)"
    assert compare_run(array(7, dtype="int32"), array(9, dtype="int32")).text.startswith("max 2, 100.0 % of elements")
    assert compare_run(array(1), array(1, 2)).text == "shape [1], expected [2]"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (0.25, "max 1 quantization step (tolerance 2)"),
        (0.5, "max 2 quantization steps (tolerance 2)"),
        (0.3, "max 0.038 of the output's range (tolerance 2 quantization steps)"),
        (0.75, "max 3 quantization steps (tolerance 2, compared with a)"),
        (0.0, "equal (tolerance 2 quantization steps)"),
    ],
)
def test_error_of_a_dequantized_output_is_in_steps(error: float, text: str) -> None:
    expected = array(0, 8)
    comparison = compare("y", [array(error, 8)], {"a": [expected]}, Tolerance(), floor=0.5, step=0.25)
    assert comparison.text == text
    larger = compare("y", [array(0.25, 8)], {"a": [expected]}, Tolerance(of_range=0.1), floor=0.5, step=0.25)
    assert larger.text == "max 0.031 of the output's range (tolerance 0.1)", "the tolerance is no number of steps"


class TestBias:
    LIMITS = ((32, 32, True), (31, 31, False), (75, 100, False), (76, 100, True))

    @pytest.mark.parametrize(("off_count", "elements", "is_rejected"), LIMITS)
    @pytest.mark.parametrize("direction", [1, -1])
    @pytest.mark.parametrize("dtype", ["int8", "uint8"])
    def test_rejects_three_quarters_of_a_step_in_32_elements(
        self, off_count: int, elements: int, is_rejected: bool, direction: int, dtype: str
    ) -> None:
        expected = varied_integers(elements, dtype=dtype).ravel()
        comparison = compare_run((expected + direction * leading_ones(off_count, elements)).astype(dtype), expected)
        assert comparison.ok is not is_rejected
        assert (
            f"off by {direction * off_count / elements:+.2f} quantization steps" in comparison.problem
        ) is is_rejected

    @pytest.mark.parametrize(("off_count", "rows", "is_rejected"), LIMITS)
    @pytest.mark.parametrize("direction", [1, -1])
    def test_rejects_three_quarters_of_a_step_in_one_channel(
        self, off_count: int, rows: int, is_rejected: bool, direction: int
    ) -> None:
        expected = varied_integers(rows, 3)
        actual = expected.copy()
        actual[:, 1] += direction * leading_ones(off_count, rows)
        assert ("in channel 1" in compare_run(actual, expected).problem) is is_rejected

    def test_channels_are_the_last_axis_of_all_runs(self) -> None:
        expected = [varied_integers(17, 5).reshape(17, 1, 5), varied_integers(17, 5).reshape(17, 1, 5)]
        actual = [array + np.int8([0, 0, 0, 1, 0]) for array in expected]
        assert "in channel 3" in compare("y", actual, {"a": expected}, Tolerance()).problem

    def test_runs_of_different_widths_share_no_channels(self) -> None:
        expected = [varied_integers(40, 3), varied_integers(40, 5)]
        actual = [array + np.int8(array.shape[1] == 3) for array in expected]
        assert compare("y", actual, {"a": expected}, Tolerance()).ok

    def test_a_vector_has_no_channels(self) -> None:
        assert compare_run(varied_integers(40).ravel() + leading_ones(30, 40), varied_integers(40).ravel()).ok

    def test_detects_bias_only_with_a_tolerance_of_one_step(self) -> None:
        expected = varied_integers(40).ravel()
        shifted = expected + np.int8(1)
        assert "in the same direction in nearly all elements" in compare_run(shifted, expected).problem
        assert compare_run(shifted, expected, tolerance=Tolerance(steps=2)).ok
        assert compare_run(shifted.astype(np.int32), expected.astype(np.int32), tolerance=Tolerance(integers=1)).ok

    def test_larger_errors_are_reported_by_size(self) -> None:
        comparison = compare_run(varied_integers(40) + np.int8(3), varied_integers(40))
        assert (comparison.ok, comparison.problem, comparison.max_error) == (False, "", 3)

    def test_repeated_values_of_a_channel_count_once(self) -> None:
        """A clipped value may lie halfway between two steps, and it occurs many times."""
        expected = varied_integers(40, 3)
        expected[:30, 1], expected[30:, 1] = 7, range(9, 39, 3)
        shifted_ties = expected + np.int8([0, 1, 0]) * (expected == 7)
        assert compare_run(shifted_ties, expected).ok
        assert "in channel 1" in compare_run(expected + np.int8([0, 1, 0]), expected).problem

    def test_ignores_bias_of_fewer_than_eight_values(self) -> None:
        for value_count, is_rejected in ((7, False), (8, True)):
            expected = np.arange(40, dtype=np.int8) % value_count * 9
            assert bool(compare_run(expected + np.int8(1), expected).problem) is is_rejected
