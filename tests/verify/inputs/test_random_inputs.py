"""Random inputs suit the operators that read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.errors import InvalidInputs, VerificationError
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify import generate_inputs
from tests.helpers.verify_graphs import entry_of, operator, slot, subgraph

MANY = (500,)


def draw_input(x: Tensor, *operators: Operator, **options: Any) -> Array:
    ((array, *_),) = generate_inputs(entry_of(subgraph(*operators, inputs=[x])), **options)
    return array


def value_range(array: Array) -> tuple[int, int]:
    return int(array.min()), int(array.max())


class TestIntegers:
    """Integers of 32 and 64 bits: operands, indices, dimensions, permutations."""

    x = slot(0, "int32", MANY)

    def test_arithmetic_operands_may_be_negative(self) -> None:
        operand = slot(2, "int32", ())
        assert value_range(draw_input(self.x, operator([self.x, operand, None], [slot(1, "int32", MANY)]))) == (-10, 9)
        assert value_range(draw_input(slot(0, "uint32", MANY))) == (0, 9)

    @pytest.mark.parametrize(
        ("operand", "result"),
        [
            (slot(2, "int32", (7, 1)), slot(1, "int32", MANY)),
            (slot(2, "int64", MANY), slot(1, "int32", MANY)),
            (slot(2, "int32", MANY), slot(1, "float32", MANY)),
        ],
        ids=["different shape", "different operand dtype", "different result dtype"],
    )
    def test_possible_indices_stay_below_the_smallest_dimension(self, operand: Tensor, result: Tensor) -> None:
        assert value_range(draw_input(self.x, operator([self.x, operand], [result]))) == (
            0,
            6 if operand.shape == (7, 1) else 9,
        )

    def test_index_use_is_traced_through_operators(self) -> None:
        copied, wide, result = slot(1, "int32", MANY), slot(2, "int64", MANY), slot(3, "float32", (3, 5))
        ops = [
            operator([self.x], [copied, None]),
            operator([copied], [wide]),
            operator([slot(4, "float32", (3, 5)), wide], [result]),
        ]
        assert value_range(draw_input(self.x, *ops)) == (0, 2)
        rounded = operator([self.x], [slot(1, "float32", MANY)])
        assert value_range(draw_input(self.x, rounded, operator([slot(1), slot(5)], [slot(6)]))) == (0, 9)

    def test_own_dimensions_do_not_limit_indices(self) -> None:
        x, result = slot(0, "int32", (2,)), slot(1, shape=(2,))
        assert max(draw_input(x, operator([x], [result]), seed=seed).max() for seed in range(20)) > 2

    def test_scalar_is_not_a_table(self) -> None:
        assert value_range(draw_input(self.x, operator([slot(1, shape=()), self.x], [slot(2, shape=MANY)]))) == (0, 9)

    def test_cyclic_graph_terminates(self) -> None:
        copied = slot(1, "int32", MANY)
        assert value_range(draw_input(self.x, operator([self.x], [copied]), operator([copied], [self.x]))) == (-10, 9)

    @staticmethod
    def gather(ids: Tensor, rows: int, dtype: str = "float32", k: int = 1) -> Operator:
        return operator([slot(10 * k, dtype, (rows, 3)), ids], [slot(10 * k + 1, dtype, (*ids.shape, 3))])

    def test_row_indices_reach_the_end_of_the_smallest_table(self) -> None:
        large, small = self.gather(self.x, 101), self.gather(self.x, 31, k=2)
        assert value_range(draw_input(self.x, large)) == (0, 100)
        assert value_range(draw_input(self.x, large, small)) == (0, 30)
        other_reader = operator([self.x, slot(40, "float32", (23, 29))], [slot(41)])
        assert value_range(draw_input(self.x, self.gather(self.x, 101), other_reader)) == (0, 9)
        assert value_range(draw_input(self.x, self.gather(self.x, 5), other_reader)) == (0, 4)

    @pytest.mark.parametrize(
        ("table", "result"),
        [
            (slot(1, "float32", (101, 3)), slot(2, "float32", (500, 5))),
            (slot(1, "float32", (101, 3)), slot(2, "int8", (500, 3))),
            (slot(1, "int32", (101, 3)), slot(2, "int32", (500, 3))),
        ],
        ids=["different row size", "different dtype", "table of indices"],
    )
    def test_only_tables_have_row_indices(self, table: Tensor, result: Tensor) -> None:
        assert draw_input(self.x, operator([table, self.x], [result])).max() < 10

    @pytest.mark.parametrize(("restriction", "value"), [("ones", 1), ("zeros", 0)])
    def test_restricted_integers_are_constant(self, restriction: str, value: int) -> None:
        comparison = operator(
            [self.x, slot(1, "int32", MANY, values=np.full(500, 77, np.int32))], [slot(2, "bool", MANY)]
        )
        assert value_range(draw_input(self.x, comparison, restriction=restriction)) == (value, value)
        perm = slot(3, "int32", (4,))
        transpose = operator([slot(4, shape=(2, 3, 5, 7)), perm], [slot(5, shape=(2, 3, 5, 7))])
        assert value_range(draw_input(perm, transpose, restriction=restriction)) == (value, value)
        coordinates, sizes = slot(6, "int32", (23, 3)), slot(7, "int32", (3,))
        sparse = operator([coordinates, sizes, slot(8, shape=(23,)), slot(9, shape=())], [slot(10, shape=(2, 3, 5))])
        assert value_range(draw_input(coordinates, sparse, restriction=restriction)) == (value, value)


class TestPermutations:
    def is_permutation(
        self, x: Tensor, result: Tensor, *, perm_first: bool = False, has_third_operand: bool = False, size: int = 4
    ) -> bool:
        perm = slot(1, "int32", (size,))
        slots = [perm, x] if perm_first else [x, perm]
        op = operator([*slots, slot(3)] if has_third_operand else slots, [result])
        return all(sorted(draw_input(perm, op, seed=seed).tolist()) == [*range(size)] for seed in range(3))

    X = slot(0, shape=(2, 3, 5, 7))

    def test_permutation_needs_a_result_with_permuted_dimensions(self) -> None:
        assert self.is_permutation(self.X, slot(2, shape=(7, 2, 5, 3)))
        assert self.is_permutation(self.X, slot(2, shape=()))
        assert self.is_permutation(self.X, slot(2, shape=(None, 2, 5, 3)))

    def test_other_operands_are_not_permutations(self) -> None:
        y = slot(2, shape=(7, 2, 5, 3))
        assert not self.is_permutation(self.X, slot(2, shape=(7, 2, 5, 1)))
        assert not self.is_permutation(self.X, slot(2, shape=(None, 2, 5)))
        assert not self.is_permutation(self.X, slot(2, "int32", shape=(7, 2, 5, 3)))
        assert not self.is_permutation(self.X, y, perm_first=True)
        assert not self.is_permutation(self.X, y, has_third_operand=True)
        assert not self.is_permutation(self.X, y, size=3)

        assert not self.is_permutation(slot(0, shape=(7,)), slot(2, shape=(7,)), size=1)
        operand, rows = slot(4, "int32", (4,)), slot(5, "int32", (4, 2))
        transpose = operator([self.X, slot(1, "int32", (4,))], [y])
        assert any(sorted(draw_input(operand, transpose, seed=seed).tolist()) != [0, 1, 2, 3] for seed in range(3))
        assert draw_input(rows, operator([self.X, rows], [y])).shape == (4, 2)

    def test_arithmetic_operand_is_not_a_permutation(self) -> None:
        for size in (4, 1):
            x = slot(0, "int32", (4, 4, 4, size))
            assert not self.is_permutation(x, slot(2, "int32", (4, 4, 4, size)))
        assert self.is_permutation(slot(0, "int32", (4, 4, 4, 3)), slot(2, "int32", (4, 4, 4, 3)))
        assert self.is_permutation(slot(0, "int64", (4, 4, 4, 4)), slot(2, "int64", (4, 4, 4, 4)))


class TestThresholds:
    x = slot(0, "int32", MANY)

    def reaches_constant(self, number: int, result: Tensor, *operands: Tensor, dtype: str = "int32") -> bool:
        constant = slot(1, dtype, MANY, values=np.full(500, number, dtype))
        return bool((draw_input(self.x, operator([self.x, constant, *operands], [result])) > 50).any())

    def test_only_elementwise_comparisons_have_thresholds(self) -> None:
        truths = slot(2, "bool", MANY)
        assert self.reaches_constant(1000, truths)
        assert not self.reaches_constant(1000, slot(2, "bool", (5,)))
        assert not self.reaches_constant(1000, slot(2, "int32", MANY))
        assert not self.reaches_constant(1000, truths, slot(3, "int32", MANY))
        assert not self.reaches_constant(1000, truths, dtype="int64")

    def test_thresholds_include_each_constant_and_its_neighbors(self) -> None:
        constant = slot(1, "int32", MANY, values=np.arange(1000, 6000, 10, dtype=np.int32))
        array = draw_input(self.x, operator([self.x, constant], [slot(2, "bool", MANY)]))
        assert {number % 10 for number in array[array > 50]} == {9, 0, 1}
        assert array.max() > 5000
        assert not (
            draw_input(self.x, operator([slot(7, "int32", MANY), constant], [slot(2, "bool", MANY)])) > 50
        ).any()


class TestFloats:
    x = slot(0, shape=MANY)

    def test_quantized_floats_cover_their_range(self) -> None:
        for dtype, low, high in (("int8", -131, 124), ("uint8", -3, 252), ("int16", -32771, 32764)):
            array = draw_input(self.x, operator([self.x], [None, slot(1, dtype, MANY, 2.0, zero_point=3)]))
            assert 2 * low <= array.min() < 1.9 * low or dtype == "uint8"
            assert 1.9 * high < array.max() <= 2 * high

    @pytest.mark.parametrize(
        "op",
        [
            operator([x], [slot(1, "int8", (5,), 9.0)]),
            operator([x], [slot(1, "int32", (5,), 9.0)]),
            operator([x], [slot(1, "int8", MANY, (9.0, 9.0))]),
            operator([x, slot(2)], [slot(1, "int8", MANY, 9.0)]),
            operator([slot(2)], [slot(1, "int8", MANY, 9.0)]),
            operator([x], [slot(1, "float32", MANY, 9.0)]),
            operator([x], [slot(1, "int32", MANY)]),
        ],
        ids=[
            "different shape",
            "wide",
            "per channel",
            "two operands",
            "another input",
            "float",
            "cast to unquantized integers",
        ],
    )
    def test_other_floats_have_no_known_range(self, op: Operator) -> None:
        assert np.abs(draw_input(self.x, op)).max() < 6

    def test_rounded_floats_cover_row_indices(self) -> None:
        ids = slot(1, "int32", MANY)
        array = draw_input(self.x, operator([self.x], [ids]), TestIntegers.gather(ids, 101))
        assert 0 <= array.min() < 5 < 95 < array.max() <= 101

    def test_restricted_floats_are_nonnegative_and_keep_their_dtype(self) -> None:
        for dtype in ("float32", "float16", "bfloat16"):
            array = draw_input(slot(0, dtype, MANY), restriction="ones")
            assert array.min() >= 0
            assert array.dtype.name == dtype


def test_inputs_runs_and_seeds_have_different_values() -> None:
    entry = entry_of(subgraph(inputs=[slot(0), slot(1)]))
    arrays = [array.tobytes() for seed in (0, 1) for run in generate_inputs(entry, runs=2, seed=seed) for array in run]
    assert len(set(arrays)) == 8


def test_small_integers_cover_their_dtype() -> None:
    ends = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "int16": (-(2**15), 2**15 - 1)}
    for dtype, limits in ends.items():
        array = draw_input(slot(0, dtype, (400_000,) if dtype == "int16" else MANY))
        assert (value_range(array), array.dtype.kind) == (limits, "u" if dtype[0] == "u" else "i")


def test_restricted_quantized_values_are_positive_if_possible() -> None:
    for zero_point, least in ((3, 4), (126, 127), (127, -128)):
        array = draw_input(slot(0, "int8", (5000,), 0.5, zero_point=zero_point), restriction="ones")
        assert array.min() == least


def test_conditions_take_both_values_over_runs_seeds_and_inputs() -> None:
    entry = entry_of(subgraph(inputs=[slot(0, "bool", ()), slot(1, "bool", (1,))]))
    conditions = [
        [bool(array.item()) for array in run] for seed in (0, 1) for run in generate_inputs(entry, runs=2, seed=seed)
    ]
    assert conditions == [[True, False], [False, True], [False, True], [True, False]]
    restricted = {bool(generate_inputs(entry, seed=seed, restriction="ones")[0][0]) for seed in range(0, 20, 2)}
    assert restricted == {True, False}


def test_only_string_arrays_may_have_empty_elements() -> None:
    assert "" in draw_input(slot(0, "string", MANY))
    assert all(draw_input(slot(0, "string", ()), seed=seed).item() for seed in range(30))


def test_real_and_imaginary_parts_are_independent() -> None:
    array = draw_input(slot(0, "complex64", MANY))
    assert abs(np.corrcoef(array.real, array.imag)[0, 1]) < 0.3


class TestRanges:
    def test_integer_ranges_are_rounded_and_inclusive(self) -> None:
        for dtype, kind in (("int8", "int8"), ("int4", "int8"), ("uint4", "uint8"), ("int32", "int32")):
            array = draw_input(slot(0, dtype, MANY), ranges={"t0": (0.9, 4.1)})
            assert (value_range(array), array.dtype.name) == ((1, 4), kind)
        assert value_range(draw_input(slot(0, "int32", MANY), ranges={"t0": (3, 3)})) == (3, 3)

    @pytest.mark.parametrize("dtype", ["string", "bool", "complex64"])
    def test_rejects_ranges_for_unordered_dtypes(self, dtype: str) -> None:
        with pytest.raises(InvalidInputs, match="so --range does not apply"):
            draw_input(slot(0, dtype, MANY), ranges={"t0": (0, 1)})

    @pytest.mark.parametrize("value_range", [(2.0, 1.0), (float("nan"), 1.0), (0.0, float("nan"))])
    def test_rejects_reversed_or_non_numeric_ranges(self, value_range: tuple[float, float]) -> None:
        with pytest.raises(InvalidInputs, match="is empty"):
            draw_input(slot(0, shape=MANY), ranges={"t0": value_range})

    @pytest.mark.parametrize(
        ("dtype", "value_range", "limits"),
        [
            ("int8", (0, 1000), "-128 to 127"),
            ("uint4", (-1, 3), "0 to 15"),
            ("int32", (0, 2**31), "-2147483648 to 2147483647"),
        ],
    )
    def test_rejects_ranges_beyond_the_dtype(self, dtype: str, value_range: tuple[float, float], limits: str) -> None:
        with pytest.raises(InvalidInputs, match=f"is {dtype}, whose values are {limits}; the range .* exceeds them"):
            draw_input(slot(0, dtype, MANY), ranges={"t0": value_range})


def test_given_runs_determine_the_number_of_runs() -> None:
    entry = entry_of(subgraph(inputs=[slot(0), slot(1)]))
    first, second = ({"t0": np.full((2, 3), k, np.float32)} for k in (5, 7))
    assert [run[0].flat[0] for run in generate_inputs(entry, user_inputs=[first, second], runs=3)] == [5, 7]
    repeated = generate_inputs(entry, user_inputs=first, runs=3)
    assert [run[0].flat[0] for run in repeated] == [5, 5, 5]
    assert len({float(run[1].flat[0]) for run in repeated}) == 3


def test_rejects_random_resources() -> None:
    with pytest.raises(VerificationError, match="input 0 't0' is resource, for which there are no random values"):
        generate_inputs(entry_of(subgraph(inputs=[slot(0, "resource")])))


def test_random_conditions_cover_every_combination() -> None:
    entry = entry_of(subgraph(inputs=[slot(0), *(slot(k, "bool", ()) for k in (1, 2, 3))]))
    for seed in (0, 1):
        runs = [tuple(bool(x) for x in run[1:]) for run in generate_inputs(entry, runs=8, seed=seed)]
        assert len({*runs}) == 8
        assert len({run[:2] for run in runs[:4]}) == 4


def test_restrictions_exclude_zeros_or_negative_integers() -> None:
    x = slot(0, "int32", (500,))
    entry = entry_of(subgraph(inputs=[x]))
    unrestricted, nonzero, positive = (
        generate_inputs(entry, restriction=restriction)[0][0] for restriction in ("none", "nonzero", "positive")
    )
    assert not unrestricted.all()
    np.testing.assert_array_equal(nonzero, np.where(unrestricted == 0, 1, unrestricted))
    np.testing.assert_array_equal(positive, np.abs(nonzero))
    assert nonzero.dtype == positive.dtype == np.int32
