"""An operator's frame: the axes that its slots share, and how an order of them shows in each slot."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.layout.frame import AxesError, Frame, Part, RankError, make_frame, merged, parse_axes
from onnx_tflite_plugin.layout.order import Atom, permuted, source_order
from onnx_tflite_plugin.source.model import Dims


def frame(axes: str, *dims: Dims, unordered: str = "", units: bool = False) -> Frame:
    """Of inputs, then one output, as the arrow has it."""
    inputs, outputs = parse_axes(axes)
    groups = {**dict(enumerate(inputs)), **{~k: g for k, g in enumerate(outputs)}}
    made = make_frame(
        {slot: (g or [], sizes) for (slot, g), sizes in zip(groups.items(), dims, strict=True)}, unordered, units=units
    )
    assert made is not None
    return made


FLATTENED = (Part("n"), Part("k", 1, 3), Part("k", 3, 35))  # channels first of 5 x 7 x 3, flattened


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


@pytest.mark.parametrize(("axes", "text"), [("n h w", "have no '->'"), ("n ? -> n", "do not parse at ' ?'")])
def test_axes_that_do_not_parse_are_told_with_the_place(axes: str, text: str) -> None:
    with pytest.raises(AxesError, match=text.replace("?", r"\?")):
        parse_axes(axes)
