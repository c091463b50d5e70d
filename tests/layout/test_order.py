"""Orders as permutations of a tensor's elements: what ``move`` and ``coalesced`` do to memory is what numpy does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from conformance.models import Net, Spec, constant
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.layout.order import (
    Atom,
    Move,
    Order,
    by_way_of,
    coalesced,
    count,
    is_tensor,
    move,
    perm_of,
    permuted,
    physical,
    source_order,
    spelled,
    without_unit_axes,
)
from onnx_tflite_plugin.verify import verify


def cuts(dims: Sequence[int], draw: random.Random) -> list[int]:
    """Where each axis may be cut in two: elements of the inner part, 1 for nowhere."""
    return [draw.choice([1, *(n for n in range(2, size) if size % n == 0)]) for size in dims]


def drawn_order(dims: Sequence[int], inner: Sequence[int], draw: random.Random) -> Order:
    """The axes, some cut in two, in any order."""
    atoms: list[Atom] = []
    for axis, (size, part) in enumerate(zip(dims, inner, strict=True)):
        cut = part > 1 and draw.random() < 0.7
        atoms += [Atom(axis, part, size // part), Atom(axis, 1, part)] if cut else [Atom(axis, 1, size)]
    draw.shuffle(atoms)
    return tuple(atoms)


def elements(order: Order, dims: Sequence[int]) -> np.ndarray:
    """The number of each element of a tensor in its own memory, as they follow each other in an order."""
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    places = np.zeros((), np.int64)
    for atom in order:
        step = np.arange(atom.size or 0) * atom.stride * (strides[atom.axis] if atom.axis >= 0 else 0)
        places = places[..., None] + step
    return places.reshape(-1)


@pytest.mark.parametrize("seed", range(60))
def test_neighbours_become_one_only_where_they_continue_each_other(seed: int) -> None:
    draw = random.Random(seed)
    dims = [draw.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(draw.randint(1, 4))]
    order = drawn_order(dims, cuts(dims, draw), draw)
    np.testing.assert_array_equal(elements(coalesced(order), dims), elements(order, dims))
    np.testing.assert_array_equal(elements(without_unit_axes(order), dims), elements(order, dims))


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_moves_put_each_element_where_the_other_order_has_it(seed: int, alike: bool) -> None:
    """Also where both cut an axis and the sizes do not divide each other."""
    draw = random.Random(seed)
    dims = [draw.choice((1, 2, 3, 4, 6, 12)) for _ in range(draw.randint(1, 4))]
    inner = cuts(dims, draw)
    start, end = (coalesced(drawn_order(dims, inner if alike else cuts(dims, draw), draw)) for _ in "ab")
    between = by_way_of(start, end)
    assert not (alike and between)
    array = elements(start, dims).reshape([size or 0 for size in physical(start)])
    for here, there in pairwise((start, *between, end)):
        moved = move(here, there)
        if moved.split is not None:
            array = array.reshape(moved.split)  # type: ignore[arg-type]
        if moved.perm is not None:
            array = array.transpose(moved.perm)
        if moved.shape is not None:
            array = array.reshape(moved.shape)  # type: ignore[arg-type]
    assert array.shape == physical(end)
    np.testing.assert_array_equal(array.reshape(-1), elements(end, dims))


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (2, 29), (4, 6), (2, 4)])
def test_channels_that_are_shuffled_twice_are_where_litert_has_them(rows: int, columns: int) -> None:
    net, flat = Net(), Spec((2, rows * columns))
    x = net.input(flat)
    for _ in "ab":
        x = net.call("RESHAPE", [x, constant([2, rows, columns])], Spec((2, rows, columns)))
        x = net.call("TRANSPOSE", [x, constant([0, 2, 1])], Spec((2, columns, rows)))
        x = net.call("RESHAPE", [net.call("ABS", [x], Spec((2, columns, rows))), constant([2, rows * columns])], flat)
    net.output(x)
    data = net.build()
    assert verify(data, convert(data)).ok


def test_atoms_that_do_not_touch_stay_apart() -> None:
    assert coalesced([Atom(0, 6, 2), Atom(0, 1, 2)]) == (Atom(0, 6, 2), Atom(0, 1, 2))
    assert coalesced([Atom(0, 2, 6), Atom(0, 1, 2)]) == (Atom(0, 1, 12),)
    assert coalesced([Atom(0, 3, 0), Atom(0, 1, 3)]) == (Atom(0, 3, 0), Atom(0, 1, 3))


def test_pieces_of_one_element_are_no_pieces_of_their_own() -> None:
    assert coalesced([Atom(0, 6, 1), Atom(0, 1, 6)]) == (Atom(0, 1, 6),)
    assert coalesced([Atom(0, 1, 1), Atom(0, 1, 6)]) == (Atom(0, 1, 6),)
    assert coalesced([Atom(0, 1, 6), Atom(0, 6, 1)]) == (Atom(0, 1, 6),)
    assert coalesced([Atom(1, 1, 1), Atom(0, 6, 1)]) == (Atom(1, 1, 1), Atom(0, 1, 1))
    assert coalesced([Atom(0, 7, 3), Atom(0, 1, None)]) == (Atom(0, 7, 3), Atom(0, 1, None))
    assert coalesced([Atom(0, 1, 5), Atom(1, 3, 1), Atom(1, 1, 3)]) == (Atom(0, 1, 5), Atom(1, 1, 3))


def test_an_axis_is_in_one_piece_where_its_atoms_are_side_by_side() -> None:
    assert is_tensor((Atom(0, 1, 3), Atom(0, 3, 5), Atom(1, 1, 7)))
    assert not is_tensor((Atom(0, 1, 3), Atom(1, 1, 7), Atom(0, 3, 5)))
    assert not is_tensor((Atom(2, 1, 2), Atom(0, 1, 3), Atom(1, 1, 7), Atom(0, 3, 5)))
    assert is_tensor(())


def test_sizes_that_only_one_side_knows_move_nothing() -> None:
    start: Order = (Atom(0, 1, 55), Atom(1, 1, None))
    end: Order = (Atom(0, 1, None), Atom(1, 1, 5))
    assert move(start, end) == move(end, start) == Move(None, None, None)
    assert move(start, tuple(reversed(end))) != Move(None, None, None)


def test_an_axis_is_cut_in_as_many_pieces_as_both_sides_have_bounds() -> None:
    start: Order = (Atom(0, 1, 210),)
    end: Order = (Atom(0, 1, 7), Atom(0, 7, 3), Atom(0, 21, 2), Atom(0, 42, 5))
    assert move(start, end) == Move((5, 2, 3, 7), (3, 2, 1, 0), (210,))
    assert move(end, start) == Move((7, 3, 2, 5), (3, 2, 1, 0), (210,))


def test_an_order_is_spelled_by_axes_and_by_stride_and_size_where_one_is_cut() -> None:
    whole, cut = (Atom(0, 1, 2), Atom(2, 1, 5), Atom(1, 1, None)), (Atom(0, 1, 2), Atom(1, 3, 7), Atom(1, 1, 3))
    assert (spelled(whole), perm_of(whole)) == ("0,2,1", (0, 2, 1))
    assert (spelled(cut), perm_of(cut)) == ("0/1x2,1/3x7,1/1x3", None)


def test_an_unknown_size_is_unknown_in_every_product() -> None:
    assert physical((Atom(0, 1, 2), Atom(1, 7, None), Atom(1, 1, 7), Atom(2, 1, 3))) == (2, None, 3)
    assert coalesced([Atom(0, 7, None), Atom(0, 1, 7)]) == (Atom(0, 1, None),)
    assert (count((2, None, 3)), count((2, None, 3), unknown=11)) == (6, 66)


def test_a_unit_axis_that_moves_is_a_reshape_and_a_cut_at_the_end_of_an_axis_is_none() -> None:
    assert move(source_order((1, 5, 3)), permuted((1, 5, 3), (1, 0, 2))) == Move(None, None, (5, 1, 3))
    assert move(source_order((2, 5, 3)), permuted((2, 5, 3), (2, 0, 1))) == Move(None, (2, 0, 1), None)
    assert move(source_order((2, 5)), (Atom(1, 1, 5), Atom(0, 1, 2))) == Move(None, (1, 0), None)
    assert move(source_order((1, 1, 3)), permuted((1, 1, 3), (1, 0, 2))) == Move(None, None, None)
    assert move(source_order((5, 1)), source_order((5,))) == Move(None, None, (5,))
    assert move(source_order((5,)), source_order((5, 1))) == Move(None, None, (5, 1))
