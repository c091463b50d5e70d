"""Tests of the factors that the axes of two shapes share."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from onnx_tflite_plugin.api.axes import constant_axes, format_axes, reshape_axes
from onnx_tflite_plugin.source.model import Dims


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, 3, 4), (6, 4), "a0 a1 a2 -> (a0 a1) a2"),
        ((6, 4), (2, 3, 4), "(a0 a1) a2 -> a0 a1 a2"),
        ((2, 6, 5), (4, 3, 5), "a0 (a1 a2) a3 -> (a0 a1) a2 a3"),
        ((4, 6), (2, 12), "(a0 a1) a2 -> a0 (a1 a2)"),
        ((4, 6), (3, 8), None),  # 8 and 6 elements: neither divides the other
        ((6, 4), (4, 6), None),
        # axes of size 1 may be absent from the other shape
        ((1, 3, 5), (3, 5), "1 a0 a1 -> a0 a1"),
        ((3, 5), (3, 1, 5), "a0 a1 -> a0 1 a1"),
        ((2, 1, 3), (6,), "a0 1 a1 -> (a0 a1)"),
        ((1, 6), (6, 1), "1 a0 -> a0 1"),
        ((1, 1), (1,), "a0 1 -> a0"),
        ((), (1,), " -> 1"),
        ((), (), " -> "),
        # an unknown size equals only itself
        ((None, 6), (None, 2, 3), "a0 (a1 a2) -> a0 a1 a2"),
        ((2, None, 1), (2, None), "a0 a1 1 -> a0 a1"),
        ((None, 6), (2, 3), None),
        ((6, 2), (None, 3), None),
        ((None, 6), (6, None), None),
        ((None, None), (None, None), None),
        # no elements
        ((0, 4), (0, 2, 2), "a0 (a1 a2) -> a0 a1 a2"),
        ((4, 0), (0, 4), None),
        ((0, 5), (3, 0), None),
        ((3, 0, 5), (5, 3, 0), None),
        ((2, 3), (6, 0), None),
        ((0, 3), (0,), None),
        # other numbers of elements
        ((2, 3), (7,), None),
        ((5,), (5, 2), None),
        ((5, 2), (5,), None),
    ],
)
def test_reshape_axes_relates_nested_axis_boundaries(before: Dims, after: Dims, expected: str | None) -> None:
    assert reshape_axes(before, after) == expected


def boundaries(shape: tuple[int, ...]) -> set[int]:
    """Return the number of elements at and below each axis."""
    return {math.prod(shape[k:]) for k in range(len(shape) + 1)}


def test_shapes_of_24_elements_are_related_if_boundaries_nest() -> None:
    shapes = [
        s
        for rank in (1, 2, 3)
        for s in itertools.product((1, 2, 3, 4, 6, 8, 12, 24), repeat=rank)
        if math.prod(s) == 24
    ]
    for before, after in itertools.product(shapes, shapes):
        axes = reshape_axes(before, after)
        combined = sorted(boundaries(before) | boundaries(after))
        assert (axes is not None) == all(high % low == 0 for low, high in itertools.pairwise(combined)), (before, after)
        if axes is None:
            continue
        left, right = (
            [re.findall(r"a\d+", axis) for axis in re.findall(r"\(.*?\)|\S+", side)] for side in axes.split("->")
        )
        assert [name for axis in left for name in axis] == [name for axis in right for name in axis]
        for groups, shape in ((left, before), (right, after)):
            assert all(axis or size == 1 for axis, size in zip(groups, shape, strict=True))


def test_format_axes_writes_underscore_for_slots_without_axes() -> None:
    assert format_axes([["a", "b"], None, ["c"]], ["b"], ["c", "a"]) == "a b, _, c -> b, c a"


@pytest.mark.parametrize(("values", "expected"), [([2, -1, 0, 2], (0, 2)), (-2, (1,)), ([], ()), (None, None)])
def test_constant_axes_are_normalized_sorted_and_unique(values: object, expected: tuple[int, ...] | None) -> None:
    class Op:
        def constant(self, slot: int) -> object:
            return None if values is None or slot != 1 else np.array(values, np.int32)

    assert constant_axes(Op(), 1, 3) == expected  # type: ignore[arg-type]
