"""Tests of random values that include those that hardly ever occur by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.verify import draw
from onnx_tflite_plugin.verify.inputs.drawn import widens
from tests.helpers.verify_graphs import entry_of, operator, slot, subgraph


def test_conditions_meet_in_every_combination() -> None:
    entry = entry_of(subgraph(inputs=[slot(0), *(slot(k, "bool", ()) for k in (1, 2, 3))]))
    for seed in (0, 1):
        runs = [tuple(bool(x) for x in run[1:]) for run in draw(entry, runs=8, seed=seed)]
        assert len({*runs}) == 8
        assert len({run[:2] for run in runs[:4]}) == 4


@pytest.mark.parametrize(
    ("dtype", "width", "most"),
    [
        ("int32", 1.0, 10),
        ("int32", 4.0, 10_000),
        ("int32", 16.0, 46_340),
        ("int64", 16.0, 3_037_000_499),
        ("uint16", 16.0, 255),
    ],
)
def test_plain_integers_are_drawn_as_large_as_two_of_them_have_a_product(dtype: str, width: float, most: int) -> None:
    x = slot(0, dtype, (5000,))
    entry = entry_of(subgraph(operator([x, x], [slot(1, dtype, (5000,))]), inputs=[x]))
    [[array]] = draw(entry, widths=(width,))
    assert 0.9 * most <= array.max() <= most
    assert array.min() < -0.9 * most or dtype[0] == "u"
    assert widens(entry)


@pytest.mark.parametrize(
    ("operands", "result", "plain"),
    [
        ([], slot(1, "float32", (500,)), True),
        ([], slot(1, "float32", (500, 3)), False),
        ([], slot(1, "float16", (500,)), False),
        ([slot(2, "float32", (500,))], slot(1, "float32", (500,)), False),
    ],
    ids=["made floats", "of other sizes", "of other floats", "beside another operand"],
)
def test_integers_that_may_be_indices_are_drawn_no_larger(operands: list[Any], result: Any, plain: bool) -> None:
    x = slot(0, "int32", (500,))
    entry = entry_of(subgraph(operator([x, *operands], [result]), inputs=[x]))
    [[array]] = draw(entry, widths=(16.0,))
    assert (array.max() > 1000, widens(entry)) == (plain, plain)
    assert array.min() >= 0


def test_integers_that_nothing_reads_are_not_drawn_larger_and_careful_ones_stay_so() -> None:
    x = slot(0, "int32", (500,))
    plain = subgraph(operator([x, x], [slot(1, "int32", (500,))]), inputs=[x])
    assert [draw(entry_of(plain), widths=(16.0,), caution=k)[0][0].max() for k in (1, 2)] == [1, 0]
    ids = subgraph(operator([slot(2, shape=(11, 3)), x], [slot(3, shape=(500, 3))]), inputs=[x])
    assert draw(entry_of(ids), widths=(16.0,))[0][0].max() == 10
    assert not widens(entry_of(ids))


def test_integers_that_avoid_0_are_as_they_were_else_and_may_avoid_what_is_negative() -> None:
    x = slot(0, "int32", (500,))
    entry = entry_of(subgraph(inputs=[x]))
    any_, none, positive = (draw(entry, avoided=k)[0][0] for k in (0, 1, 2))
    assert not any_.all()
    np.testing.assert_array_equal(none, np.where(any_ == 0, 1, any_))
    np.testing.assert_array_equal(positive, np.abs(none))
    assert none.dtype == positive.dtype == np.int32


def test_wide_floats_are_whole_or_a_constant_or_equal_here_and_there_at_the_same_places() -> None:
    x, y = slot(0, shape=(5000,)), slot(1, shape=(5000,))
    bound = slot(2, shape=(), values=np.array([0.7], np.float32))
    entry = entry_of(subgraph(operator([x, bound], [slot(3, "bool", (5000,))]), inputs=[x, y]))
    (one, other), (wide, beside) = draw(entry, runs=2, widths=(1.0, 16.0))
    assert len({*one}) > 4990 < len({*other})
    met = [float(value) for value in (-1.5, -0.5, 0.0, 0.5, 1.0)]
    assert {value: bool((wide == value).any()) for value in met} == dict.fromkeys(met, True)
    assert 100 < np.count_nonzero(wide == np.float32(0.7)) < 600
    assert not (beside == np.float32(0.7)).any()
    assert np.count_nonzero(wide[1:] == wide[:-1]) > 300
    assert np.count_nonzero(wide == beside) > 50
    assert 10 < wide.std() < 17
    careful = draw(entry, widths=(16.0,), caution=1)[0][0]
    assert careful.all()


@pytest.mark.parametrize(("operands", "results", "met"), [(1, 1, True), (3, 1, True), (2, 2, True), (3, 2, False)])
def test_floats_that_kernels_may_put_in_an_order_of_their_own_are_not_made_equal(
    operands: int, results: int, met: bool
) -> None:
    x = slot(0, shape=(500,))
    others = [slot(k, shape=(500,)) for k in range(1, operands)]
    made = [slot(10 + k, shape=(500,)) for k in range(results)]
    entry = entry_of(subgraph(operator([*others, x], made), inputs=[x]))
    [[array]] = draw(entry, widths=(16.0,))
    assert (array == 0).any() == met


@pytest.mark.parametrize("meets", [True, False])
def test_floats_are_equal_here_and_there_where_they_may_be(meets: bool) -> None:
    """Recurrent layers of dynamic range differ by more on such inputs, kernel by kernel."""
    entry = entry_of(subgraph(inputs=[slot(0, "float32", (500,)), slot(1, "float32", (500,))]))
    [[x, y]] = draw(entry, widths=(4.0,), meets=meets)
    assert bool((x == y).any()) is meets
    assert bool((x == 0).any()) is meets
