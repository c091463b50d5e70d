"""An operator's frame: the axes that its slots share, and how an order of them shows in each slot."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from onnx_tflite_plugin.layout.frame import (
    AxesError,
    Frame,
    FrameOrder,
    Part,
    RankError,
    make_frame,
    merged,
    parse_axes,
)
from onnx_tflite_plugin.layout.order import INSERTED, Atom, permuted, source_order
from onnx_tflite_plugin.source.model import Dims
from tests.layout.test_order import elements


def solved(axes: str, *dims: Dims, unordered: str = "", units: bool = False) -> Frame | None:
    """Of inputs, then one output, as the arrow has it."""
    inputs, outputs = parse_axes(axes)
    groups = {**dict(enumerate(inputs)), **{~k: g for k, g in enumerate(outputs)}}
    slots = {slot: (g or [], sizes) for (slot, g), sizes in zip(groups.items(), dims, strict=True)}
    return make_frame(slots, unordered, units=units)


def frame(axes: str, *dims: Dims, unordered: str = "", units: bool = False) -> Frame:
    made = solved(axes, *dims, unordered=unordered, units=units)
    assert made is not None
    return made


def transposed(of: Frame, slot: int, order: FrameOrder) -> np.ndarray | None:
    """The number of each element of a slot's tensor, its letters taken apart and put into an order.

    ``None`` where the pieces of an axis would not be side by side.
    """
    groups, sizes = of.slots[slot].groups, of.slots[slot].sizes
    home = {letter: axis for axis, group in enumerate(groups) for letter in group}
    shown = [part for part in order if part.letter in home]
    size = {part: 1 if sizes[part.letter] == 1 else part.size or sizes[part.letter] or 0 for part in shown}
    letters = list(home)
    source = sorted(shown, key=lambda part: (letters.index(part.letter), -part.stride))
    axes = [home[part.letter] for part in shown if size[part] != 1]
    runs = [axis for k, axis in enumerate(axes) if axes[k - 1 : k] != [axis]]
    if len(runs) > len(set(runs)):
        return None
    numbers = np.arange(np.prod([size[part] for part in source])).reshape([size[part] for part in source])
    return numbers.transpose([source.index(part) for part in shown]).reshape(-1)


FLATTENED = (Part("n"), Part("k", 1, 3), Part("k", 3, 35))  # channels first of 5 x 7 x 3, flattened


@pytest.mark.parametrize(
    ("axes", "dims", "cut"),
    [
        ("n h w c, c, n c -> n h w c", [(2, 3, 5, 7), (7,), (2, 7), (2, 3, 5, 7)], ""),
        ("n (h w) c -> n h (w c)", [(2, 15, 7), (2, 3, 35)], ""),
        ("a b, (a b) -> b a", [(2, 3), (6,), (3, 2)], ""),
        ("n h w c -> n h w c", [(2, 1, 5, 3), (2, 1, 5, 3)], ""),
        ("n (k c), n k -> n k c", [(2, 105), (2, 15), (2, 15, 7)], "k"),
        ("n k c, k -> n (c k)", [(2, 15, 7), (1,), (2, 105)], "k"),
    ],
)
def test_an_order_shows_in_each_slot_as_its_axes_transposed_and_comes_back_by_way_of_the_frame(
    axes: str, dims: list[Dims], cut: str
) -> None:
    """``cut``: a letter of size 15 in pieces of 5 and 3."""
    of = frame(axes, *dims, unordered=cut)
    whole = [Part(letter) for letter in of.letters if letter != cut]
    for order in permutations([*whole, Part(cut, 3, 5), Part(cut, 1, 3)] if cut else whole):
        for slot, axes_ in of.slots.items():
            wanted, shown = transposed(of, slot, order), of.to_slot(order, slot)
            if wanted is None or shown is None:
                assert wanted is shown is None
                continue
            sizes = [n or 0 for n in dims[slot]]
            np.testing.assert_array_equal(elements(shown, sizes), wanted)
            back = of.to_frame(shown, slot)
            assert back is not None
            assert of.to_slot(back, slot) == shown
            letters = {letter for group in axes_.groups for letter in group}
            if letters == {*of.letters} and not cut:
                assert back == order


def test_letters_that_a_slot_lacks_stay_behind_the_one_before_them() -> None:
    image = frame("n h w c, c n -> n h w c", (2, 3, 5, 7), (7, 2), (2, 3, 5, 7))
    assert [part.letter for part in image.to_frame(source_order((7, 2)), 1) or ()] == ["c", "n", "h", "w"]
    rows = frame("n h c, h c -> n h c", (2, 3, 5), (3, 5), (2, 3, 5))
    assert [part.letter for part in rows.to_frame(permuted((3, 5), (1, 0)), 1) or ()] == ["n", "c", "h"]
    steps = frame("n k c, n k -> n k c", (2, 15, 7), (2, 15), (2, 15, 7), unordered="k")
    cut = (Part("n"), Part("k", 1, 3), Part("k", 3, 5))
    assert steps.to_frame(steps.to_slot(cut, 1) or (), 1) == (*cut, Part("c"))
    columns = frame("n c h, n c -> n c h", (2, 3, 5), (2, 3), (2, 3, 5))
    assert [part.letter for part in columns.to_frame(permuted((2, 3), (1, 0)), 1) or ()] == ["c", "h", "n"]
    sequence = frame("n h c, n c, c -> n h c", (1, 5, 3), (1, 3), (3,), (1, 5, 3), units=True)
    assert sequence.to_frame((Atom(1, 1, 3),), 1) == (Part("h"), Part("c"))
    assert sequence.to_frame((Atom(0, 1, 3),), 2) == sequence.source
    single = frame("(a b) c -> a b c", (3, 5), (1, 3, 5))
    assert single.to_frame(source_order((3, 5)), 0) == single.source


def test_a_unit_shows_in_slots_without_it_and_is_one_however_often_an_order_has_it() -> None:
    rows = frame("r c -> r 1 c", (2, 3), (2, 1, 3))
    (unit,) = rows.units
    put_in = (Atom(1, 1, 3), Atom(INSERTED, 1, 1), Atom(0, 1, 2))
    order = (Part("c"), Part(unit, size=1), Part("r"))
    assert rows.to_frame(put_in, 0) == order
    assert rows.to_frame((put_in[0], put_in[1], *put_in[1:]), 0) == order
    assert (rows.to_slot(order, 0), rows.to_slot(order, ~0)) == (put_in, permuted((2, 1, 3), (2, 1, 0)))
    assert not rows.uneven(order)
    whole = rows.to_frame(permuted((2, 1, 3), (2, 1, 0)), ~0)
    assert whole == (Part("c"), Part(unit), Part("r"))
    assert rows.to_slot(whole, 0) == permuted((2, 3), (1, 0))
    assert rows.uneven(whole)
    assert not rows.uneven((Part("r"), Part("c")))
    assert frame("r c -> r c", (2, 3), (2, 3)).to_frame(put_in, 0) == (Part("c"), Part("r"))
    assert frame("r c -> q r c", (2, 3), (1, 2, 3)).to_frame(put_in, 0) == (Part("q"), Part("c"), Part("r"))
    both = frame("r c, r 1 c -> r 1 1 c", (2, 3), (2, 1, 3), (2, 1, 1, 3))
    assert sum(part.size == 1 for part in both.to_frame(put_in, 0) or ()) == 1
    beside_its_own = (Atom(0, 1, 2), Atom(1, 1, 1), Atom(INSERTED, 1, 1), Atom(2, 1, 3))
    (shown,) = (part.letter for part in both.to_frame(beside_its_own, 1) or () if part.size == 1)
    assert all(shown not in group for group in both.slots[1].groups)


@pytest.mark.parametrize(
    ("axes", "dims", "sizes"),
    [
        ("(a b) -> a b", [(None,), (None, 3)], {"a": None, "b": 3}),
        ("(a b) -> a b", [(None,), (3, None)], None),
        ("(a b) -> a b", [(None,), (2, 3)], {"a": 2, "b": 3}),
        ("(a b) -> a b", [(6,), (2, None)], {"a": 2, "b": 3}),
        ("(a b), b -> a b", [(6,), (1,), (2, 3)], {"a": 2, "b": 3}),
        ("(a b), b -> b", [(6,), (1,), (3,)], None),
        ("(a b) -> c", [(6,), (6,)], None),
        ("(a b c) -> c", [(30,), (5,)], None),
        ("(a b) -> b", [(0,), (3,)], {"a": 0, "b": 3}),
    ],
)
def test_the_one_size_that_is_not_told_follows_from_its_axis(
    axes: str, dims: list[Dims], sizes: dict[str, int | None] | None
) -> None:
    of = solved(axes, *dims)
    assert (of and of.slots[0].sizes) == sizes


def test_an_axis_of_unknown_size_has_all_its_letters() -> None:
    opened = frame("(a b) c -> c a b", (None, 5), (5, None, 3))
    assert opened.to_frame(permuted((None, 5), (1, 0)), 0) == (Part("c"), Part("a"), Part("b"))


def test_an_order_that_cuts_an_axis_between_the_steps_of_its_letters_is_none_of_the_operator() -> None:
    joined = frame("(k c) -> k c", (105,), (15, 7), unordered="*")
    assert joined.to_frame((Atom(0, 1, 5), Atom(0, 5, 21)), 0) is None
    assert joined.to_frame((Atom(0, 1, 35), Atom(0, 35, 3)), 0) == (Part("k", 1, 5), Part("c"), Part("k", 5, 3))


def test_three_dots_are_the_axes_in_front_counted_from_the_right() -> None:
    dots = frame("... k, ... k -> ... k", (2, 3, 5), (3, 5), (2, 3, 5), unordered="...")
    assert dots.letters == (".1", ".0", "k")
    assert dots.unordered == {".1", ".0"}
    assert frame("... a b -> ... a b", (2, 3, 5), (2, 3, 5)).letters == (".0", "a", "b")
    assert frame("... k -> ... k", (2, 3), (2, 3), unordered="k").unordered == {"k"}
    assert frame("... k -> ... k", (2, 3), (2, 3), unordered="*").unordered == {".0", "k"}


@pytest.mark.parametrize(("axes", "dims"), [("n h -> n h", (2,)), ("n -> n", (2, 3)), ("... a b -> a", (2,))])
def test_operands_of_more_or_fewer_axes_than_are_declared_are_the_files_fault(axes: str, dims: Dims) -> None:
    with pytest.raises(RankError, match=f"do not fit a tensor of rank {len(dims)}"):
        frame(axes, dims, dims)


def test_axes_parse_as_groups_of_letters_one_a_slot() -> None:
    assert parse_axes("n (h w)  c, _ ,1 ... -> n0 (), o") == (
        [[("n",), ("h", "w"), ("c",)], None, [(), ("...",)]],
        [[("n0",), ()], [("o",)]],
    )


def test_an_order_that_cuts_a_letter_shows_in_a_slot_of_size_1_as_that_one_element() -> None:
    rows = frame("n k, n k -> n k", (2, 105), (2, 1), (2, 105), unordered="k")
    assert rows.to_slot(FLATTENED, 0) == (Atom(0, 1, 2), Atom(1, 1, 3), Atom(1, 3, 35))
    assert rows.to_slot(FLATTENED, 1) == source_order((2, 1))


def test_a_cut_of_a_letter_counts_from_the_letters_place_in_its_axis() -> None:
    joined = frame("n k c -> n (k c)", (2, 15, 7), (2, 105), unordered="k")
    order = (Part("n"), Part("k", 1, 3), Part("k", 3, 5), Part("c"))
    assert joined.to_slot(order, ~0) == (Atom(0, 1, 2), Atom(1, 7, 3), Atom(1, 21, 5), Atom(1, 1, 7))
    assert joined.to_frame((Atom(0, 1, 2), Atom(1, 7, 3), Atom(1, 21, 5), Atom(1, 1, 7)), ~0) == order


@pytest.mark.parametrize(("size", "rest"), [(20, 7), (21, 0)])
def test_an_axis_that_does_not_divide_into_its_letters_is_the_files_fault(size: int, rest: int) -> None:
    with pytest.raises(RankError, match=f"axis of size {size} does not divide into a b"):
        frame("(a b) -> b", (size,), (rest,))
    assert frame("(a b) -> b", (21,), (7,)).slots[0].sizes == {"a": 3, "b": 7}


def test_letters_of_one_size_may_be_cut_and_those_that_change_may_not() -> None:
    assert frame("n k -> n k", (2, 3), (2, 5), unordered="n k").unordered == {"n"}
    assert frame("n k -> n k", (2, 3), (2, 1), unordered="n k").unordered == {"n", "k"}


def test_a_unit_has_size_1_in_every_slot() -> None:
    assert frame("n k, n k -> n k", (1, 3), (1, 1), (1, 3), units=True).units == {"n"}
    assert not frame("n k, n k -> n k", (1, 3), (1, 1), (1, 3)).units


def test_a_unit_that_an_order_leaves_out_stays_out_and_any_other_letter_comes_back() -> None:
    image = frame("n h c, n h c -> n h c", (1, 5, 3), (1, 5, 3), (1, 5, 3), units=True)
    assert image.to_frame((Atom(2, 1, 3), Atom(1, 1, 5)), 0) == (Part("c"), Part("h"))
    rows = frame("h c, c -> h c", (5, 3), (3,), (5, 3))
    assert rows.to_frame(source_order((3,)), 1) == (Part("h"), Part("c"))


def test_an_order_in_a_slot_is_that_order_again_by_way_of_the_frame() -> None:
    image = frame("n h w c -> n h w c", (2, 5, 7, 3), (2, 5, 7, 3), unordered="*")
    for perm in ((0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3)):
        order = permuted((2, 5, 7, 3), perm)
        assert image.to_slot(image.to_frame(order, 0) or (), ~0) == order


def test_an_order_that_cuts_a_letter_that_must_stay_whole_is_none_of_the_operator() -> None:
    flattened = (Atom(0, 1, 2), Atom(1, 1, 3), Atom(1, 3, 35))
    assert frame("n k -> n k", (2, 105), (2, 105)).to_frame(flattened, 0) is None
    assert frame("n k -> n k", (2, 105), (2, 105), unordered="k").to_frame(flattened, 0) == FLATTENED


def test_letters_are_merged_in_an_order_that_every_slot_keeps_and_the_first_wins() -> None:
    assert merged([["n", "c"], ["n", "h", "c"]]) == ("n", "h", "c")
    assert merged([["a", "b"], ["b", "a"]]) == ("a", "b")


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ("n h w", r"have no '->'"),
        ("n ? -> n", r"do not parse at ' \?'"),
        ("n (h w -> n", r"do not parse at ' \(h w'"),
        ("n h) -> n", r"do not parse at '\)'"),
    ],
)
def test_axes_that_do_not_parse_are_told_with_the_place(axes: str, text: str) -> None:
    with pytest.raises(AxesError, match=text):
        parse_axes(axes)
