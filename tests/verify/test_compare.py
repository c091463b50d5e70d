"""Distances, tolerances and bands, with hand-made arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conformance.builder import quant
from conformance.lstms import Lstm
from conformance.models import Net
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, Tolerance, Verification, compare, measure
from onnx_tflite_plugin.verify.comparison.systematic import describe_offset
from onnx_tflite_plugin.verify.comparison.tolerance import inherited_step
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.verify_pairs import build_chain, build_model


def array(*values: Any, dtype: str = "float32") -> Array:
    return np.array(values, dtype)


def compare_run(actual: Array, expected: Array, *others: Array, tolerance: Tolerance | None = None) -> Comparison:
    """Compare one run with the kernel sets "a", "b", ..."""
    sets = {name: [values] for name, values in zip("abc", (expected, *others), strict=False)}
    return compare("y", [actual], sets, tolerance or Tolerance())


def test_what_could_hardly_have_failed_says_so() -> None:
    """Two kernel sets half of the range apart: whatever lies between them passes."""
    wide = compare_run(array(0, 1, 6), array(0, 0, 10), array(0, 5, 10))
    near = compare_run(array(0, 1, 10), array(0, 1, 10), array(0, 1, 10.001))
    assert (wide.ok, wide.wide, near.ok, near.wide) == (True, True, True, False)
    assert "says little" in Verification((near, wide), ("a", "b"), 1).text
    assert "says little" not in Verification((near,), ("a", "b"), 1).text


class TestDistance:
    def test_counts_what_differs_and_by_how_much_at_worst(self) -> None:
        found = measure(array(1, 2, 3, 4), array(1, 2.5, 3, 3))
        assert (found.worst, found.differing, found.elements, found.problem) == (1, 2, 4, "")

    def test_integers_do_not_wrap(self) -> None:
        assert measure(array(-128, 0, dtype="int8"), array(127, 0, dtype="int8")).worst == 255
        assert measure(array(0, dtype="uint8"), array(255, dtype="uint8")).worst == 255

    def test_wide_integers_are_told_apart_where_float64_cannot(self) -> None:
        big = 2**62
        assert measure(array(big, dtype="int64"), array(big + 1, dtype="int64")).worst == 1

    def test_text_is_equal_as_bytes_or_str(self) -> None:
        same = measure(array("kůň", "b", dtype="object"), array("kůň".encode(), b"b", dtype="object"))
        assert (same.worst, same.problem) == (0, "")
        assert measure(array("a", dtype="object"), array(b"b", dtype="object")).worst == 1

    def test_complex_numbers_meet_pairs(self) -> None:
        assert measure(np.array([[1, 2]], np.float32), array(1 + 2j, dtype="complex64")).worst == 0

    @pytest.mark.parametrize(
        ("actual", "expected", "said"),
        [
            (np.zeros((2, 1), np.float32), np.zeros(2, np.float32), "shape [2, 1] for [2]"),
            (np.zeros((), np.float32), np.zeros(1, np.float32), "shape [] for [1]"),
            (np.zeros(2, np.float64), np.zeros(2, np.float32), "dtype float64 for float32"),
            (np.zeros(2, np.uint8), np.zeros(2, np.int8), "dtype uint8 for int8"),
            (np.zeros(2, np.int64), np.zeros(2, np.int32), "dtype int64 for int32"),
        ],
    )
    def test_other_shapes_and_dtypes_are_problems(self, actual: Array, expected: Array, said: str) -> None:
        assert measure(actual, expected).problem == said
        assert not compare_run(actual, expected).ok

    @pytest.mark.parametrize(
        ("actual", "expected", "said"),
        [
            ([np.nan, 1], [0, 1], "NaN in other places (1 elements, first at [0]: nan for 0.0)"),
            ([0, 1], [0, np.nan], "NaN in other places"),
            ([np.inf, 1], [3e38, 1], "+inf in other places"),
            ([np.inf, 1], [-np.inf, 1], "+inf in other places"),
            ([0, 1], [-np.inf, 1], "-inf in other places"),
        ],
    )
    def test_nan_and_infinity_in_other_places_are_problems(
        self, actual: list[float], expected: list[float], said: str
    ) -> None:
        found = measure(array(*actual), array(*expected))
        assert found.problem.startswith(said)
        assert found.worst == math.inf

    def test_nan_and_infinity_in_the_same_places_are_equal(self) -> None:
        values = array(np.nan, np.inf, -np.inf, 1)
        assert measure(values, values.copy()).worst == 0

    def test_empty_arrays_are_equal(self) -> None:
        assert compare_run(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).text.startswith("equal (")


class TestTolerance:
    def test_floats_may_differ_by_a_share_of_the_range(self) -> None:
        expected = array(-500, 0, 500)
        assert compare_run(expected + array(0.99, 0, 0), expected).ok
        assert not compare_run(expected + array(1.01, 0, 0), expected).ok

    def test_the_range_holds_zero(self) -> None:
        expected = array(1000, 1000.1)
        assert compare_run(expected + array(0.9, 0), expected).ok

    def test_all_zeros_leave_no_room(self) -> None:
        assert compare_run(array(0, 0), array(0, 0)).ok
        assert not compare_run(array(0, 1e-9), array(0, 0)).ok

    def test_infinities_do_not_widen_the_range(self) -> None:
        assert not compare_run(array(np.inf, 1.01), array(np.inf, 1)).ok

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
    def test_narrow_integers_may_differ_by_one_step(self, dtype: str) -> None:
        one = compare_run(array(5, 6, dtype=dtype), array(5, 7, dtype=dtype))
        assert one.ok
        assert one.text == "max 1 LSB, 50.0 % of elements differ (tolerance 1 LSB)"
        assert not compare_run(array(5, 5, dtype=dtype), array(5, 7, dtype=dtype)).ok

    @pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "bool", "object"])
    def test_whatever_else_is_exact(self, dtype: str) -> None:
        assert not compare_run(array(0, 1, dtype=dtype), array(1, 1, dtype=dtype)).ok
        assert compare_run(array(1, 1, dtype=dtype), array(1, 1, dtype=dtype)).ok

    def test_half_floats_may_differ_by_their_rounding(self) -> None:
        expected = array(1, -1, dtype="float16")
        near = expected + array(2**-10, 0, dtype="float16")
        assert compare_run(near, expected, tolerance=Tolerance(of_range=1e-5)).ok

    @pytest.mark.parametrize(
        ("dtype", "share"),
        [
            ("float16", 2**-10),
            (ml_dtypes.bfloat16, 2**-7),
            (ml_dtypes.float8_e4m3fn, 2**-3),
            (ml_dtypes.float8_e5m2, 2**-2),
        ],
    )
    def test_a_coarse_dtype_may_be_off_by_one_unit_in_its_last_place(self, dtype: Any, share: float) -> None:
        values = np.array([-1, 1], dtype)
        assert compare_run(values, values, tolerance=Tolerance(of_range=0)).tolerance == share

    def test_a_quantization_step_in_real_units_is_allowed(self) -> None:
        sets = {"a": [array(0, 1)]}
        assert not compare("y", [array(0, 0.9)], sets, Tolerance()).ok
        assert compare("y", [array(0, 0.9)], sets, Tolerance(), step=0.1001).ok

    def test_the_products_of_integers_a_step_apart_may_be_rounded(self) -> None:
        scale = np.float32(0.1)
        for expected in range(-97, 98):
            ends = array(-128, 127) * scale
            sets = {"a": [np.append(ends, np.float32(expected) * scale)]}
            for steps, ok in ((1, True), (2, False)):
                actual = [np.append(ends, np.float32(expected + steps) * scale)]
                assert compare("y", actual, sets, Tolerance(of_range=0), step=float(scale)).ok is ok

    def test_a_step_does_not_excuse_a_result_of_zeros(self) -> None:
        assert not compare("y", [array(0, 5)], {"a": [array(0, 0)]}, Tolerance(), step=0.1).ok


class TestBand:
    def test_the_distance_is_to_the_nearest_kernel_set(self) -> None:
        found = compare_run(array(5, dtype="int8"), array(50, dtype="int8"), array(6, dtype="int8"))
        assert (found.nearest, found.distance) == ("b", 1)

    def test_the_band_is_what_the_kernel_sets_differ_by(self) -> None:
        left, right = array(10, dtype="int8"), array(14, dtype="int8")
        assert compare_run(array(18, dtype="int8"), left, right).ok
        found = compare_run(array(19, dtype="int8"), left, right)
        assert not found.ok
        assert found.text == (
            "max 5 LSB, 100.0 % of elements differ (tolerance 4 LSB, by what LiteRT's own kernels differ, nearest b)"
        )

    def test_kernel_sets_apart_by_nan_do_not_open_the_band(self) -> None:
        left, right = array(np.nan, 1), array(0, 1)
        assert compare_run(array(np.nan, 1), left, right).ok
        assert compare_run(array(0, 1), left, right).ok
        assert not compare_run(array(np.inf, 1), left, right).ok
        assert not compare_run(array(0, 2), left, right).ok

    def test_a_comparable_set_is_nearer_than_one_of_another_shape(self) -> None:
        assert compare_run(array(1, 2), array(1), array(1, 9)).nearest == "b"

    def test_all_runs_count(self) -> None:
        good, bad = array(1, 2), array(1, 3)
        assert not compare("y", [good, bad], {"a": [good, good]}, Tolerance()).ok

    def test_every_number_is_of_all_runs_and_in_the_unit_of_the_output(self) -> None:
        """A range of 8 over two runs and two kernel sets, one of which is nearer; infinity is no part of a range."""
        one, two = array(-3, 5, np.inf), array(0, 1, 2)
        far = [one + array(2, 0, 0), two - array(0, 0, 1)]
        actual = [one - array(0, 1, 0), two + array(0.5, 0, 0)]
        assert compare("y", actual, {"far": far, "near": [one, two]}, Tolerance(of_range=0.5)) == Comparison(
            name="y",
            unit="range",
            distance=1 / 8,
            differing=2 / 6,
            tolerance=0.5,
            spread=2 / 8,
            nearest="near",
            mean=1.5 / 6 / 8,
            mean_spread=3 / 6 / 8,
        )

    def test_the_nearest_set_has_the_least_mean_of_those_with_one_maximum(self) -> None:
        left, right = array(9, 9, 5, dtype="int8"), array(5, 9, 5, dtype="int8")
        assert compare_run(array(5, 5, 5, dtype="int8"), left, right).nearest == "b"

    def test_twice_the_spread_passes_only_where_the_mean_stays_within_theirs(self) -> None:
        left, right = np.zeros(100, np.int8), np.tile(np.array([0, 3], np.int8), 50)
        drifted, beyond = right.copy(), right.copy()
        drifted[0], beyond[0] = 6, 7
        assert compare_run(drifted, left, right).ok
        assert not compare_run(beyond, left, right).ok
        assert not compare_run(np.full(100, 5, np.int8), left, right).ok

    def test_a_mean_as_large_as_theirs_stays_within_it(self) -> None:
        left, right = np.zeros(4, np.int8), np.array([3, 3, 0, 0], np.int8)
        assert compare_run(right + np.array([6, 0, 0, 0], np.int8), left, right).ok
        assert not compare_run(right + np.array([6, 1, 0, 0], np.int8), left, right).ok

    def test_floats_that_are_no_numbers_are_not_off_by_steps(self) -> None:
        assert describe_offset([np.zeros((40, 2), np.int8)], [[np.full((40, 2), np.nan, np.float32)]]) == ""

    def test_a_whole_step_the_same_way_counts_where_no_more_than_a_step_is_allowed(self) -> None:
        expected = np.arange(40, dtype=np.int8)
        near, far = expected.copy(), expected.copy()
        near[0], far[0] = 1, 2
        assert "the same way nearly everywhere" in compare_run(expected + np.int8(1), expected).problem
        assert not compare_run(expected + np.int8(1), expected, near).ok
        assert compare_run(expected + np.int8(1), expected, far).ok
        assert compare_run(expected + np.int8(1), expected, tolerance=Tolerance(steps=2)).ok

    def test_the_share_that_differs_is_told_to_a_tenth_of_a_percent(self) -> None:
        def report_of(elements: int) -> str:
            expected = np.zeros(elements, np.int8)
            actual = expected.copy()
            actual[3] = 1
            return compare_run(actual, expected).text

        assert "0.1 % of elements differ" in report_of(2000)
        assert "under 0.1 %" not in report_of(2000)
        assert "under 0.1 % of elements differ" in report_of(2003)

    def test_the_texts(self) -> None:
        assert compare_run(array(1, 2), array(1, 2)).text == "equal (tolerance 0.001 of the output's range)"
        assert compare_run(array(0, 1.0005), array(0, 1)).text == ("max 0.0005 of the output's range (tolerance 0.001)")
        assert compare_run(array(0, 1.5), array(0, 1)).text == (
            "max 0.5 of the output's range (tolerance 0.001, nearest a)"
        )
        assert compare_run(array(7, dtype="int32"), array(9, dtype="int32")).text.startswith(
            "max 2, 100.0 % of elements"
        )
        assert compare_run(array(1), array(1, 2)).text == "shape [1] for [2]"


def layer(g: Any, weights: Array, operand: str = "float32", result: str = "float32", **quantization: Any) -> None:
    x, y = g.input("x", (1, 3), operand), g.tensor("y", (1, 2), result)
    g.operator("FULLY_CONNECTED", [x, g.constant("w", weights, **quantization), None], [y])
    g.output(y)


def tolerance_of(build: Callable[[Any], None]) -> Tolerance:
    return Tolerance.of(structure.read(build_model(build)))


class TestToleranceOfAModel:
    def test_a_single_operator_is_held_to_a_hundredth(self) -> None:
        assert tolerance_of(lambda g: layer(g, np.ones((2, 3), np.float32))).of_range == 1e-5
        assert tolerance_of(build_chain).of_range == 1e-3

    def test_float_activations_with_byte_weights_are_dynamic_range(self) -> None:
        weights = np.ones((2, 3), np.int8)
        assert tolerance_of(lambda g: layer(g, weights, quantization=quant(0.5))).of_range == 2e-2

    def test_what_is_rounded_and_fed_back_may_differ_by_more(self) -> None:
        model = Net()
        Lstm(weights="int8").draw(model)
        assert Tolerance.of(structure.read(model.build())).of_range == 5e-2

    def test_dynamic_quantization_has_weights_that_stand_for_numbers_and_a_float_result(self) -> None:
        weights = np.ones((2, 3), np.int8)
        assert tolerance_of(lambda g: layer(g, weights)).of_range == 1e-5
        assert tolerance_of(lambda g: layer(g, weights.astype(ml_dtypes.int4))).of_range == 2e-2
        assert tolerance_of(lambda g: layer(g, weights, result="int8", quantization=quant(0.5))).of_range == 1e-5
        assert tolerance_of(lambda g: layer(g, weights, operand="int8", quantization=quant(0.5))).of_range == 1e-5

    def test_dequantizing_weights_first_is_exact(self) -> None:
        def build(g: Any) -> None:
            w, full = g.constant("w", np.ones(3, np.int8), quantization=quant(0.5)), g.tensor("full", (3,))
            x, y = g.input("x", (3,)), g.tensor("y", (3,))
            g.operator("DEQUANTIZE", [w], [full])
            g.operator("ADD", [x, full], [y])
            g.output(y)

        assert tolerance_of(build).of_range == 1e-3

    def test_what_one_operator_hands_on_to_the_next_run_has_more_room(self) -> None:
        model = Net()
        Lstm().draw(model)
        assert Tolerance.of(structure.read(model.build())).of_range == 1e-4


def tail_of(build: Callable[[Any], None]) -> float:
    graph = structure.read(build_model(build)).main
    return inherited_step(graph.outputs[0], structure.producers(graph), Tolerance())


def test_a_dequantized_output_inherits_the_step_of_its_integers() -> None:
    def build(g: Any, scale: float) -> None:
        x = g.input("x", (2, 3), "int8", quantization=quant(scale, 3))
        full, y = g.tensor("full", (2, 3)), g.tensor("y", (6,))
        g.operator("DEQUANTIZE", [x], [full])
        g.operator("RESHAPE", [full, g.constant("shape", [6])], [y])
        g.output(y)

    assert tail_of(lambda g: build(g, 0.25)) == 0.25
    assert tail_of(build_chain) == 0


def test_a_sum_of_two_dequantized_tensors_inherits_no_step() -> None:
    def build(g: Any) -> None:
        floats = [g.tensor(name, (2, 3)) for name in "ab"]
        for name, full in zip("xz", floats, strict=True):
            g.operator("DEQUANTIZE", [g.input(name, (2, 3), "int8", quantization=quant(0.25, 3))], [full])
        y = g.tensor("y", (2, 3))
        g.operator("ADD", floats, [y])
        g.output(y)

    assert tail_of(build) == 0


@pytest.mark.parametrize(("dtype", "steps"), [("int8", 3), ("int16", 7)])
def test_the_steps_inherited_are_those_of_the_dtype_that_was_dequantized(dtype: str, steps: int) -> None:
    def build(g: Any) -> None:
        x, y = g.input("x", (2, 3), dtype, quantization=quant(0.25)), g.tensor("y", (2, 3))
        g.operator("DEQUANTIZE", [x], [y])
        g.output(y)

    graph = structure.read(build_model(build)).main
    tolerance = Tolerance(steps=3, int16_steps=7)
    assert inherited_step(graph.outputs[0], structure.producers(graph), tolerance) == 0.25 * steps


def test_sixteen_bit_integers_of_a_network_have_more_steps_than_eight_bit_ones() -> None:
    """An LSTM has both: what its cells may be off by says nothing of its int8."""
    lenient = Tolerance(int16_steps=16)
    for dtype, steps, ok in (("int16", 16, True), ("int16", 17, False), ("int8", 1, True), ("int8", 2, False)):
        expected = np.zeros(7, dtype)
        assert compare_run(expected + np.asarray(steps, dtype), expected, tolerance=lenient).ok is ok
