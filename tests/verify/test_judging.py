"""Tests of the limits between rounding and error: offsets of integers and floats, bands of several kernel sets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, Tolerance, compare, measure
from onnx_tflite_plugin.verify.comparison.systematic import describe_offset


def compare_run(actual: Array, *sets: Array, tolerance: Tolerance | None = None, step: float = 0.0) -> Comparison:
    expected = {name: [values] for name, values in zip("abc", sets, strict=False)}
    return compare("y", [actual], expected, tolerance or Tolerance(), step=step)


def vary(rows: int, channels: int = 1, dtype: str = "int8") -> Array:
    """Integers that differ along each channel."""
    return (np.arange(rows * channels).reshape(rows, channels) * 7 % 50 + 20).astype(dtype)


def first(count: int, of: int) -> Array:
    return (np.arange(of) < count).astype(np.int8)


class TestBand:
    def test_the_nearest_set_is_that_with_the_least_maximum_whatever_its_mean(self) -> None:
        found = compare_run(np.int8([2, 2, 2, 3]), np.int8([0, 0, 0, 1]), np.int8([2, 2, 2, 0]))
        assert (found.nearest, found.distance) == ("a", 2)

    def test_the_spread_is_that_of_the_two_sets_furthest_apart(self) -> None:
        assert compare_run(np.int8([0, 9]), np.int8([0, 9]), np.int8([0, 10]), np.int8([0, 14])).spread == 5

    def test_the_range_is_that_of_all_sets(self) -> None:
        assert compare_run(np.float32([0, 1]), np.float32([0, 1]), np.float32([0, 4])).spread == 3 / 4

    def test_without_a_step_nothing_is_allowed_for_its_product(self) -> None:
        expected = np.float32([-1, 1, 0.5])
        assert not compare_run(np.float32([-1, 1, 0.5 + 2**-23]), expected, tolerance=Tolerance(of_range=0)).ok

    def test_no_more_than_two_roundings_of_a_product_are_allowed(self) -> None:
        expected, exact = np.float32([-1, 1, 0]), Tolerance(of_range=0)
        for rounded, ok in ((2**-22, True), (2**-21, False)):
            assert compare_run(np.float32([-1, 1, 0.25 + rounded]), expected, tolerance=exact, step=0.25).ok is ok

    def test_only_a_float_s_band_that_its_kernel_sets_open_is_wide(self) -> None:
        assert not compare_run(np.int8([5]), np.int8([5]), np.int8([9])).wide
        floats = [np.float32([0, 10]), np.float32([0, 5])]
        assert compare_run(floats[0], *floats).wide
        assert not compare_run(floats[0], *floats, tolerance=Tolerance(of_range=1.5)).wide

    def test_a_problem_of_an_early_run_stays_and_leaves_no_distance(self) -> None:
        good, bad = np.zeros(3, np.int8), np.zeros((3, 1), np.int8)
        found = compare("y", [bad, good], {"a": [good, good]}, Tolerance())
        assert (found.problem, found.distance) == ("shape [3, 1] for [3]", np.inf)

    @pytest.mark.parametrize(("differ", "said"), [(1, "under 0.1 %"), (5, "0.1 %"), (20, "0.2 %")])
    def test_a_share_is_said_in_tenths_of_a_percent(self, differ: int, said: str) -> None:
        actual = np.zeros(10_000, np.int8)
        actual[:differ] = 1
        assert f", {said} of elements differ" in compare_run(actual, np.zeros_like(actual)).text


class TestDistance:
    def test_the_mean_is_that_of_every_kind_of_element(self) -> None:
        assert measure(np.array([True, True, False, False]), np.zeros(4, bool)).mean == 0.5

    def test_half_floats_further_apart_than_their_dtype_reaches_have_a_distance(self) -> None:
        assert measure(np.float16([60000]), np.float16([-60000])).worst == 120000

    @pytest.mark.parametrize(
        ("dtype", "least", "most"),
        [(ml_dtypes.int4, -8, 7), (ml_dtypes.int2, -2, 1), (ml_dtypes.uint4, 0, 15)],
    )
    def test_small_integers_are_apart_by_their_difference(self, dtype: type, least: int, most: int) -> None:
        found = measure(np.array([least, 0], dtype), np.array([most, 0], dtype))
        assert (found.worst, found.differing, found.problem) == (most - least, 1, "")

    def test_uint4_is_not_int4(self) -> None:
        assert measure(np.array([3], ml_dtypes.uint4), np.array([3], ml_dtypes.int4)).problem

    def test_texts_of_any_bytes_and_of_numpy_s_own_dtypes_are_compared(self) -> None:
        assert measure(np.array(["\udcff"], object), np.array([b"\xff"], object)).worst == 0
        assert measure(np.array(["a", "b"]), np.array([b"a", b"c"])).differing == 1

    def test_complex_numbers_of_a_turned_array_are_pairs(self) -> None:
        turned = np.arange(6, dtype=np.complex64).reshape(2, 3).T
        assert measure(turned, np.ascontiguousarray(turned)).worst == 0

    def test_the_first_element_that_is_nan_is_told(self) -> None:
        assert "first at [1]: nan for 1.0" in measure(np.float32([0, np.nan, np.nan]), np.float32([0, 1, 2])).problem

    def test_what_is_next_to_nothing_is_nothing(self) -> None:
        """The logistic function of -100 is 4e-44, and 0 in some kernels."""
        assert measure(np.float32([0, 1e-31]), np.float32([0, 0])) == measure(np.float32([0, 0]), np.float32([0, 0]))
        assert measure(np.float32([0, 1e-30]), np.float32([0, 0])).worst == np.float32(1e-30)


class TestIntegersMoved:
    @pytest.mark.parametrize(
        ("moving", "elements", "said"), [(32, 32, True), (31, 31, False), (75, 100, False), (76, 100, True)]
    )
    @pytest.mark.parametrize("way", [1, -1])
    @pytest.mark.parametrize("dtype", ["int8", "uint8"])
    def test_more_than_three_quarters_of_32_elements_or_more(
        self, moving: int, elements: int, said: bool, way: int, dtype: str
    ) -> None:
        expected = vary(elements, dtype=dtype).ravel()
        actual = (expected + way * first(moving, elements)).astype(dtype)
        found = compare_run(actual, expected)
        assert found.ok is not said
        assert (f"off by {way * moving / elements:+.2f} LSB" in found.problem) is said

    @pytest.mark.parametrize(
        ("moving", "rows", "said"), [(32, 32, True), (31, 31, False), (75, 100, False), (76, 100, True)]
    )
    @pytest.mark.parametrize("way", [1, -1])
    def test_likewise_in_one_channel(self, moving: int, rows: int, said: bool, way: int) -> None:
        expected = vary(rows, 3)
        actual = expected.copy()
        actual[:, 1] += way * first(moving, rows)
        assert ("in channel 1" in compare_run(actual, expected).problem) is said

    def test_channels_are_those_of_the_last_axis_over_all_runs(self) -> None:
        expected = [vary(17, 5).reshape(17, 1, 5), vary(17, 5).reshape(17, 1, 5)]
        actual = [array + np.int8([0, 0, 0, 1, 0]) for array in expected]
        assert "in channel 3" in describe_offset(actual, [expected])

    def test_a_channel_that_hardly_varies_may_be_a_tie_throughout(self) -> None:
        expected = np.stack([vary(40).ravel(), 20 + 2 * (np.arange(40) % 2)], 1).astype(np.int8)
        assert compare_run(expected + np.int8([0, 1]), expected).ok  # a deviation of 1
        expected[::2, 1] -= 1
        assert not compare_run(expected + np.int8([0, 1]), expected).ok

    def test_a_number_that_most_of_a_channel_has_counts_once(self) -> None:
        """As after a bound, where it may be a tie."""
        expected = vary(40, 3)
        expected[:36, 1], expected[36:, 1] = 7, [9, 12, 15, 18]
        tied = expected + np.int8([0, 1, 0]) * (expected == 7)
        assert compare_run(tied, expected).ok
        assert "in channel 1" in compare_run(expected + np.int8([0, 1, 0]), expected).problem

    def test_runs_of_other_widths_have_no_channels_in_common(self) -> None:
        expected = [vary(40, 3), vary(40, 5)]
        assert describe_offset([array + np.int8(array.shape[1] == 3) for array in expected], [expected]) == ""

    def test_a_vector_has_no_channels(self) -> None:
        assert compare_run(vary(40).ravel() + first(30, 40), vary(40).ravel()).ok

        runs = [np.arange(20, 26, dtype=np.int8) * np.int8(1 + k % 3) for k in range(40)]
        assert describe_offset([run + first(1, 6) for run in runs], [runs]) == ""

    def test_what_one_kernel_set_has_not_is_no_offset(self) -> None:
        """The nearest is off by one in four of five; another, a step from it at most, is off as often to either side."""
        actual = vary(100).ravel()
        nearest, other = actual - first(80, 100), actual - first(61, 100)
        other[80:] += 1
        assert compare_run(actual, nearest).problem
        assert compare_run(actual, other, nearest).nearest == "b"
        assert compare_run(actual, other, nearest).ok

    def test_a_channel_is_off_where_it_is_for_every_kernel_set(self) -> None:
        expected = vary(40, 3)
        actual, other = expected + np.int8([0, 1, 0]), expected + np.int8([0, 2, 0])
        assert "in channel 1" in describe_offset([actual], [[expected], [other]])
        for way in (1, -1):
            assert describe_offset([actual], [[actual + np.int8(way)], [actual]]) == ""
            assert describe_offset([actual], [[actual + np.int8([0, way, 0])], [actual]]) == ""

    def test_a_kernel_set_of_another_shape_says_nothing(self) -> None:
        expected = vary(40)
        assert "off by +1.00" in describe_offset([expected + np.int8(1)], [[expected[:7]], [expected]])

    @pytest.mark.parametrize("small", [0, 1])
    def test_integers_of_four_bits_are_not_looked_at(self, small: int) -> None:
        arrays = [np.zeros(40, np.int8), np.ones(40, np.int8)]
        arrays[small] = arrays[small].astype(ml_dtypes.int4)
        assert describe_offset([arrays[0]], [[arrays[1]]]) == ""

    def test_an_offset_is_looked_for_where_one_step_is_all_that_is_allowed(self) -> None:
        expected = vary(40).ravel()
        off = expected + np.int8(1)
        assert not compare_run(off, expected).ok
        assert compare_run(off, expected, tolerance=Tolerance(steps=2)).ok
        other = expected.copy()
        other[0] -= 2  # by what LiteRT's own kernels differ
        assert compare_run(off, expected, other).ok
        assert compare_run(off.astype(np.int32), expected.astype(np.int32), tolerance=Tolerance(integers=1)).ok

    def test_what_is_further_off_is_told_by_its_distance(self) -> None:
        found = compare_run(vary(40) + np.int8(3), vary(40))
        assert (found.ok, found.problem, found.distance) == (False, "", 3)
