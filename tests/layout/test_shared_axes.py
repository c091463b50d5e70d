"""Axes that an operator's slots share, and conversions to slot layouts."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from onnx_tflite_plugin.api.notation import AxesError, parse_axes
from onnx_tflite_plugin.layout.shared_axes import (
    LetterPart,
    OperatorLayout,
    RankError,
    SharedAxes,
    merge_letters,
    resolve_shared_axes,
)
from onnx_tflite_plugin.layout.tensor_layout import INSERTED, AxisPart, layout_of_permutation, source_layout
from onnx_tflite_plugin.source.model import Dims
from tests.layout.test_tensor_layout import elements


def resolve_axes(axes: str, *dims: Dims, unordered: str = "", units: bool = False) -> SharedAxes | None:
    """Return the shared axes of the slots, or None if the sizes are ambiguous."""
    inputs, outputs = parse_axes(axes)
    groups = {**dict(enumerate(inputs)), **{~k: g for k, g in enumerate(outputs)}}
    slots = {slot: (g or [], sizes) for (slot, g), sizes in zip(groups.items(), dims, strict=True)}
    return resolve_shared_axes(slots, unordered, every_unit=units)


def shared_axes(axes: str, *dims: Dims, unordered: str = "", units: bool = False) -> SharedAxes:
    resolved = resolve_axes(axes, *dims, unordered=unordered, units=units)
    assert resolved is not None
    return resolved


def element_order(shared: SharedAxes, slot: int, layout: OperatorLayout) -> np.ndarray | None:
    """Return the source indices of a slot's elements in a layout.

    Return None if the parts of an axis would not be adjacent.
    """
    groups, sizes = shared.slots[slot].groups, shared.slots[slot].sizes
    axis_of = {letter: axis for axis, group in enumerate(groups) for letter in group}
    parts = [part for part in layout if part.letter in axis_of]
    size = {part: 1 if sizes[part.letter] == 1 else part.size or sizes[part.letter] or 0 for part in parts}
    letters = list(axis_of)
    source_parts = sorted(parts, key=lambda part: (letters.index(part.letter), -part.stride))
    axes = [axis_of[part.letter] for part in parts if size[part] != 1]
    adjacent_axes = [axis for k, axis in enumerate(axes) if axes[k - 1 : k] != [axis]]
    if len(adjacent_axes) > len(set(adjacent_axes)):
        return None
    indices = np.arange(np.prod([size[part] for part in source_parts])).reshape([size[part] for part in source_parts])
    return indices.transpose([source_parts.index(part) for part in parts]).reshape(-1)


FLATTENED = (LetterPart("n"), LetterPart("k", 1, 3), LetterPart("k", 3, 35))  # channels first of 5 x 7 x 3, flattened


@pytest.mark.parametrize(
    ("axes", "dims", "split_letter"),
    [
        ("n h w c, c, n c -> n h w c", [(2, 3, 5, 7), (7,), (2, 7), (2, 3, 5, 7)], ""),
        ("n (h w) c -> n h (w c)", [(2, 15, 7), (2, 3, 35)], ""),
        ("a b, (a b) -> b a", [(2, 3), (6,), (3, 2)], ""),
        ("n h w c -> n h w c", [(2, 1, 5, 3), (2, 1, 5, 3)], ""),
        ("n (k c), n k -> n k c", [(2, 105), (2, 15), (2, 15, 7)], "k"),
        ("n k c, k -> n (c k)", [(2, 15, 7), (1,), (2, 105)], "k"),
    ],
)
def test_slot_and_operator_layouts_convert_to_each_other(axes: str, dims: list[Dims], split_letter: str) -> None:
    """``split_letter``: a letter of size 15, split into 5 and 3."""
    shared = shared_axes(axes, *dims, unordered=split_letter)
    whole_letters = [LetterPart(letter) for letter in shared.letters if letter != split_letter]
    for layout in permutations(
        [*whole_letters, LetterPart(split_letter, 3, 5), LetterPart(split_letter, 1, 3)]
        if split_letter
        else whole_letters
    ):
        for slot, slot_axes in shared.slots.items():
            expected, slot_layout = element_order(shared, slot, layout), shared.slot_layout(layout, slot)
            if expected is None or slot_layout is None:
                assert expected is slot_layout is None
                continue
            sizes = [n or 0 for n in dims[slot]]
            np.testing.assert_array_equal(elements(slot_layout, sizes), expected)
            operator_layout = shared.operator_layout(slot_layout, slot)
            assert operator_layout is not None
            assert shared.slot_layout(operator_layout, slot) == slot_layout
            letters = {letter for group in slot_axes.groups for letter in group}
            if letters == {*shared.letters} and not split_letter:
                assert operator_layout == layout


def test_missing_letters_follow_their_predecessor() -> None:
    image = shared_axes("n h w c, c n -> n h w c", (2, 3, 5, 7), (7, 2), (2, 3, 5, 7))
    assert [part.letter for part in image.operator_layout(source_layout((7, 2)), 1) or ()] == ["c", "n", "h", "w"]
    rows = shared_axes("n h c, h c -> n h c", (2, 3, 5), (3, 5), (2, 3, 5))
    assert [part.letter for part in rows.operator_layout(layout_of_permutation((3, 5), (1, 0)), 1) or ()] == [
        "n",
        "c",
        "h",
    ]
    steps = shared_axes("n k c, n k -> n k c", (2, 15, 7), (2, 15), (2, 15, 7), unordered="k")
    split_layout = (LetterPart("n"), LetterPart("k", 1, 3), LetterPart("k", 3, 5))
    assert steps.operator_layout(steps.slot_layout(split_layout, 1) or (), 1) == (*split_layout, LetterPart("c"))
    columns = shared_axes("n c h, n c -> n c h", (2, 3, 5), (2, 3), (2, 3, 5))
    assert [part.letter for part in columns.operator_layout(layout_of_permutation((2, 3), (1, 0)), 1) or ()] == [
        "c",
        "h",
        "n",
    ]
    sequence = shared_axes("n h c, n c, c -> n h c", (1, 5, 3), (1, 3), (3,), (1, 5, 3), units=True)
    assert sequence.operator_layout((AxisPart(1, 1, 3),), 1) == (LetterPart("h"), LetterPart("c"))
    assert sequence.operator_layout((AxisPart(0, 1, 3),), 2) == sequence.source
    without_unit_axis = shared_axes("(a b) c -> a b c", (3, 5), (1, 3, 5))
    assert without_unit_axis.operator_layout(source_layout((3, 5)), 0) == without_unit_axis.source


def test_unit_axis_is_inserted_once_in_slots_without_it() -> None:
    rows = shared_axes("r c -> r 1 c", (2, 3), (2, 1, 3))
    (unit,) = rows.units
    with_inserted_axis = (AxisPart(1, 1, 3), AxisPart(INSERTED, 1, 1), AxisPart(0, 1, 2))
    layout = (LetterPart("c"), LetterPart(unit, size=1), LetterPart("r"))
    assert rows.operator_layout(with_inserted_axis, 0) == layout
    assert rows.operator_layout((with_inserted_axis[0], with_inserted_axis[1], *with_inserted_axis[1:]), 0) == layout
    assert (rows.slot_layout(layout, 0), rows.slot_layout(layout, ~0)) == (
        with_inserted_axis,
        layout_of_permutation((2, 1, 3), (2, 1, 0)),
    )
    assert not rows.has_partial_unit(layout)
    without_inserted_axis = rows.operator_layout(layout_of_permutation((2, 1, 3), (2, 1, 0)), ~0)
    assert without_inserted_axis == (LetterPart("c"), LetterPart(unit), LetterPart("r"))
    assert rows.slot_layout(without_inserted_axis, 0) == layout_of_permutation((2, 3), (1, 0))
    assert rows.has_partial_unit(without_inserted_axis)
    assert not rows.has_partial_unit((LetterPart("r"), LetterPart("c")))
    assert shared_axes("r c -> r c", (2, 3), (2, 3)).operator_layout(with_inserted_axis, 0) == (
        LetterPart("c"),
        LetterPart("r"),
    )
    assert shared_axes("r c -> q r c", (2, 3), (1, 2, 3)).operator_layout(with_inserted_axis, 0) == (
        LetterPart("q"),
        LetterPart("c"),
        LetterPart("r"),
    )
    two_unit_axes = shared_axes("r c, r 1 c -> r 1 1 c", (2, 3), (2, 1, 3), (2, 1, 1, 3))
    assert sum(part.size == 1 for part in two_unit_axes.operator_layout(with_inserted_axis, 0) or ()) == 1
    with_own_and_inserted_axis = (AxisPart(0, 1, 2), AxisPart(1, 1, 1), AxisPart(INSERTED, 1, 1), AxisPart(2, 1, 3))
    (letter,) = (
        part.letter for part in two_unit_axes.operator_layout(with_own_and_inserted_axis, 1) or () if part.size == 1
    )
    assert all(letter not in group for group in two_unit_axes.slots[1].groups)


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
def test_size_of_a_letter_is_derived_from_its_axis(
    axes: str, dims: list[Dims], sizes: dict[str, int | None] | None
) -> None:
    shared = resolve_axes(axes, *dims)
    assert (shared and shared.slots[0].sizes) == sizes


def test_dynamic_axis_has_all_its_letters() -> None:
    shared = shared_axes("(a b) c -> c a b", (None, 5), (5, None, 3))
    assert shared.operator_layout(layout_of_permutation((None, 5), (1, 0)), 0) == (
        LetterPart("c"),
        LetterPart("a"),
        LetterPart("b"),
    )


def test_layout_that_splits_between_letter_steps_is_rejected() -> None:
    joined = shared_axes("(k c) -> k c", (105,), (15, 7), unordered="*")
    assert joined.operator_layout((AxisPart(0, 1, 5), AxisPart(0, 5, 21)), 0) is None
    assert joined.operator_layout((AxisPart(0, 1, 35), AxisPart(0, 35, 3)), 0) == (
        LetterPart("k", 1, 5),
        LetterPart("c"),
        LetterPart("k", 5, 3),
    )


def test_ellipsis_axes_are_counted_from_the_right() -> None:
    shared = shared_axes("... k, ... k -> ... k", (2, 3, 5), (3, 5), (2, 3, 5), unordered="...")
    assert shared.letters == (".1", ".0", "k")
    assert shared.unordered == {".1", ".0"}
    assert shared_axes("... a b -> ... a b", (2, 3, 5), (2, 3, 5)).letters == (".0", "a", "b")
    assert shared_axes("... k -> ... k", (2, 3), (2, 3), unordered="k").unordered == {"k"}
    assert shared_axes("... k -> ... k", (2, 3), (2, 3), unordered="*").unordered == {".0", "k"}


@pytest.mark.parametrize(("axes", "dims"), [("n h -> n h", (2,)), ("n -> n", (2, 3)), ("... a b -> a", (2,))])
def test_operand_rank_that_differs_from_the_axes_is_a_rank_error(axes: str, dims: Dims) -> None:
    with pytest.raises(RankError, match=f"do not fit a tensor of rank {len(dims)}"):
        shared_axes(axes, dims, dims)


def test_axes_parse_as_groups_per_slot() -> None:
    assert parse_axes("n (h w)  c, _ ,1 ... -> n0 (), o") == (
        ((("n",), ("h", "w"), ("c",)), None, ((), ("...",))),
        ((("n0",), ()), (("o",),)),
    )


def test_split_letter_is_whole_in_a_slot_of_size_1() -> None:
    rows = shared_axes("n k, n k -> n k", (2, 105), (2, 1), (2, 105), unordered="k")
    assert rows.slot_layout(FLATTENED, 0) == (AxisPart(0, 1, 2), AxisPart(1, 1, 3), AxisPart(1, 3, 35))
    assert rows.slot_layout(FLATTENED, 1) == source_layout((2, 1))


def test_stride_of_a_letter_part_includes_inner_letters() -> None:
    joined = shared_axes("n k c -> n (k c)", (2, 15, 7), (2, 105), unordered="k")
    layout = (LetterPart("n"), LetterPart("k", 1, 3), LetterPart("k", 3, 5), LetterPart("c"))
    assert joined.slot_layout(layout, ~0) == (
        AxisPart(0, 1, 2),
        AxisPart(1, 7, 3),
        AxisPart(1, 21, 5),
        AxisPart(1, 1, 7),
    )
    assert (
        joined.operator_layout((AxisPart(0, 1, 2), AxisPart(1, 7, 3), AxisPart(1, 21, 5), AxisPart(1, 1, 7)), ~0)
        == layout
    )


@pytest.mark.parametrize(("size", "other_size"), [(20, 7), (21, 0)])
def test_axis_not_divisible_by_its_letters_is_a_rank_error(size: int, other_size: int) -> None:
    with pytest.raises(RankError, match=f"an axis of size {size} cannot be split into a b"):
        shared_axes("(a b) -> b", (size,), (other_size,))
    assert shared_axes("(a b) -> b", (21,), (7,)).slots[0].sizes == {"a": 3, "b": 7}


def test_only_letters_of_equal_size_may_be_split() -> None:
    assert shared_axes("n k -> n k", (2, 3), (2, 5), unordered="n k").unordered == {"n"}
    assert shared_axes("n k -> n k", (2, 3), (2, 1), unordered="n k").unordered == {"n", "k"}


def test_unit_has_size_1_in_every_slot() -> None:
    assert shared_axes("n k, n k -> n k", (1, 3), (1, 1), (1, 3), units=True).units == {"n"}
    assert not shared_axes("n k, n k -> n k", (1, 3), (1, 1), (1, 3)).units


def test_removed_unit_axis_is_not_restored() -> None:
    image = shared_axes("n h c, n h c -> n h c", (1, 5, 3), (1, 5, 3), (1, 5, 3), units=True)
    assert image.operator_layout((AxisPart(2, 1, 3), AxisPart(1, 1, 5)), 0) == (LetterPart("c"), LetterPart("h"))
    rows = shared_axes("h c, c -> h c", (5, 3), (3,), (5, 3))
    assert rows.operator_layout(source_layout((3,)), 1) == (LetterPart("h"), LetterPart("c"))


def test_input_layout_gives_the_same_output_layout() -> None:
    image = shared_axes("n h w c -> n h w c", (2, 5, 7, 3), (2, 5, 7, 3), unordered="*")
    for perm in ((0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3)):
        layout = layout_of_permutation((2, 5, 7, 3), perm)
        assert image.slot_layout(image.operator_layout(layout, 0) or (), ~0) == layout


def test_splitting_an_ordered_letter_is_rejected() -> None:
    flattened = (AxisPart(0, 1, 2), AxisPart(1, 1, 3), AxisPart(1, 3, 35))
    assert shared_axes("n k -> n k", (2, 105), (2, 105)).operator_layout(flattened, 0) is None
    assert shared_axes("n k -> n k", (2, 105), (2, 105), unordered="k").operator_layout(flattened, 0) == FLATTENED


def test_merged_letters_keep_the_order_of_each_slot() -> None:
    assert merge_letters([["n", "c"], ["n", "h", "c"]]) == ("n", "h", "c")
    assert merge_letters([["a", "b"], ["b", "a"]]) == ("a", "b")


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ("n h w", r"have no '->'; write operands -> results"),
        ("n ? -> n", r"cannot be parsed at '\?': expected a letter, a group"),
        ("n (h w -> n", r"cannot be parsed at '\(h w': '\)' is missing"),
        ("n h) -> n", r"cannot be parsed at '\)'"),
        ("n h h c -> n h c", "letter h names two axes of operand 0; give each axis its own letter"),
        ("n h -> n (h n)", "letter n names two axes of result 0"),
    ],
)
def test_axes_parse_errors_name_the_position(axes: str, text: str) -> None:
    with pytest.raises(AxesError, match=text):
        parse_axes(axes)
