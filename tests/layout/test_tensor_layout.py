"""Layouts as permutations of elements: conversions equal NumPy's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
import pytest

from conformance.models import Net, Spec, constant
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.layout.tensor_layout import (
    AxisPart,
    LayoutConversion,
    TensorLayout,
    coalesce,
    drop_unit_axes,
    element_count,
    format_layout,
    format_transposition,
    has_adjacent_parts,
    intermediate_layouts,
    layout_of_permutation,
    layout_permutation,
    physical_shape,
    plan_conversion,
    source_layout,
)
from onnx_tflite_plugin.verify import verify


def random_inner_sizes(dims: Sequence[int], rng: random.Random) -> list[int]:
    """Return the inner size at which each axis may be split in two; 1 for no split."""
    return [rng.choice([1, *(n for n in range(2, size) if size % n == 0)]) for size in dims]


def random_layout(dims: Sequence[int], inner_sizes: Sequence[int], rng: random.Random) -> TensorLayout:
    """Return the axes in random order, some split in two."""
    parts: list[AxisPart] = []
    for axis, (size, inner) in enumerate(zip(dims, inner_sizes, strict=True)):
        is_split = inner > 1 and rng.random() < 0.7
        parts += (
            [AxisPart(axis, inner, size // inner), AxisPart(axis, 1, inner)] if is_split else [AxisPart(axis, 1, size)]
        )
    rng.shuffle(parts)
    return tuple(parts)


def elements(layout: TensorLayout, dims: Sequence[int]) -> np.ndarray:
    """Return the source index of each element, in the order of a layout."""
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    indices = np.zeros((), np.int64)
    for part in layout:
        step = np.arange(part.size or 0) * part.stride * (strides[part.axis] if part.axis >= 0 else 0)
        indices = indices[..., None] + step
    return indices.reshape(-1)


@pytest.mark.parametrize("seed", range(60))
def test_coalesce_keeps_the_order_of_elements(seed: int) -> None:
    rng = random.Random(seed)
    dims = [rng.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(rng.randint(1, 4))]
    layout = random_layout(dims, random_inner_sizes(dims, rng), rng)
    np.testing.assert_array_equal(elements(coalesce(layout), dims), elements(layout, dims))
    np.testing.assert_array_equal(elements(drop_unit_axes(layout), dims), elements(layout, dims))


@pytest.mark.parametrize("same_splits", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_conversion_places_elements_as_the_layout_requires(seed: int, same_splits: bool) -> None:
    """Layouts may split an axis at sizes that do not divide each other."""
    rng = random.Random(seed)
    dims = [rng.choice((1, 2, 3, 4, 6, 12)) for _ in range(rng.randint(1, 4))]
    inner_sizes = random_inner_sizes(dims, rng)
    start, end = (
        coalesce(random_layout(dims, inner_sizes if same_splits else random_inner_sizes(dims, rng), rng)) for _ in "ab"
    )
    intermediate = intermediate_layouts(start, end)
    assert not (same_splits and intermediate)
    array = elements(start, dims).reshape([size or 0 for size in physical_shape(start)])
    for source, target in pairwise((start, *intermediate, end)):
        conversion = plan_conversion(source, target)
        if conversion.split is not None:
            array = array.reshape(conversion.split)  # type: ignore[arg-type]
        if conversion.perm is not None:
            array = array.transpose(conversion.perm)
        if conversion.shape is not None:
            array = array.reshape(conversion.shape)  # type: ignore[arg-type]
    assert array.shape == physical_shape(end)
    np.testing.assert_array_equal(array.reshape(-1), elements(end, dims))


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (2, 29), (4, 6), (2, 4)])
def test_double_channel_shuffle_matches_litert(rows: int, columns: int) -> None:
    net, flat = Net(), Spec((2, rows * columns))
    x = net.input(flat)
    for _ in "ab":
        x = net.call("RESHAPE", [x, constant([2, rows, columns])], Spec((2, rows, columns)))
        x = net.call("TRANSPOSE", [x, constant([0, 2, 1])], Spec((2, columns, rows)))
        x = net.call("RESHAPE", [net.call("ABS", [x], Spec((2, columns, rows))), constant([2, rows * columns])], flat)
    net.output(x)
    data = net.build()
    assert verify(data, convert(data)).ok


def test_coalesce_does_not_merge_parts_with_gaps() -> None:
    assert coalesce([AxisPart(0, 6, 2), AxisPart(0, 1, 2)]) == (AxisPart(0, 6, 2), AxisPart(0, 1, 2))
    assert coalesce([AxisPart(0, 2, 6), AxisPart(0, 1, 2)]) == (AxisPart(0, 1, 12),)
    assert coalesce([AxisPart(0, 3, 0), AxisPart(0, 1, 3)]) == (AxisPart(0, 3, 0), AxisPart(0, 1, 3))


def test_coalesce_drops_parts_of_size_1() -> None:
    assert coalesce([AxisPart(0, 6, 1), AxisPart(0, 1, 6)]) == (AxisPart(0, 1, 6),)
    assert coalesce([AxisPart(0, 1, 1), AxisPart(0, 1, 6)]) == (AxisPart(0, 1, 6),)
    assert coalesce([AxisPart(0, 1, 6), AxisPart(0, 6, 1)]) == (AxisPart(0, 1, 6),)
    assert coalesce([AxisPart(1, 1, 1), AxisPart(0, 6, 1)]) == (AxisPart(1, 1, 1), AxisPart(0, 1, 1))
    assert coalesce([AxisPart(0, 7, 3), AxisPart(0, 1, None)]) == (AxisPart(0, 7, 3), AxisPart(0, 1, None))
    assert coalesce([AxisPart(0, 1, 5), AxisPart(1, 3, 1), AxisPart(1, 1, 3)]) == (AxisPart(0, 1, 5), AxisPart(1, 1, 3))


def test_parts_of_an_axis_are_adjacent_if_no_other_axis_is_between() -> None:
    assert has_adjacent_parts((AxisPart(0, 1, 3), AxisPart(0, 3, 5), AxisPart(1, 1, 7)))
    assert not has_adjacent_parts((AxisPart(0, 1, 3), AxisPart(1, 1, 7), AxisPart(0, 3, 5)))
    assert not has_adjacent_parts((AxisPart(2, 1, 2), AxisPart(0, 1, 3), AxisPart(1, 1, 7), AxisPart(0, 3, 5)))
    assert has_adjacent_parts(())


def test_size_dynamic_in_one_layout_needs_no_conversion() -> None:
    start: TensorLayout = (AxisPart(0, 1, 55), AxisPart(1, 1, None))
    end: TensorLayout = (AxisPart(0, 1, None), AxisPart(1, 1, 5))
    assert plan_conversion(start, end) == plan_conversion(end, start) == LayoutConversion(None, None, None)
    assert plan_conversion(start, tuple(reversed(end))) != LayoutConversion(None, None, None)


def test_axis_is_split_at_the_boundaries_of_both_layouts() -> None:
    start: TensorLayout = (AxisPart(0, 1, 210),)
    end: TensorLayout = (AxisPart(0, 1, 7), AxisPart(0, 7, 3), AxisPart(0, 21, 2), AxisPart(0, 42, 5))
    assert plan_conversion(start, end) == LayoutConversion((5, 2, 3, 7), (3, 2, 1, 0), (210,))
    assert plan_conversion(end, start) == LayoutConversion((7, 3, 2, 5), (3, 2, 1, 0), (210,))


def test_format_layout_shows_stride_and_size_of_split_axes() -> None:
    permuted, split = (
        (AxisPart(0, 1, 2), AxisPart(2, 1, 5), AxisPart(1, 1, None)),
        (AxisPart(0, 1, 2), AxisPart(1, 3, 7), AxisPart(1, 1, 3)),
    )
    assert (format_layout(permuted), layout_permutation(permuted)) == ("0,2,1", (0, 2, 1))
    assert (format_layout(split), layout_permutation(split)) == ("0/1x2,1/3x7,1/1x3", None)


def test_products_with_a_dynamic_size_are_dynamic() -> None:
    assert physical_shape((AxisPart(0, 1, 2), AxisPart(1, 7, None), AxisPart(1, 1, 7), AxisPart(2, 1, 3))) == (
        2,
        None,
        3,
    )
    assert coalesce([AxisPart(0, 7, None), AxisPart(0, 1, 7)]) == (AxisPart(0, 1, None),)
    assert (element_count((2, None, 3)), element_count((2, None, 3), dynamic_size=11)) == (6, 66)


def test_transposing_a_unit_axis_is_a_reshape() -> None:
    assert plan_conversion(source_layout((1, 5, 3)), layout_of_permutation((1, 5, 3), (1, 0, 2))) == LayoutConversion(
        None, None, (5, 1, 3)
    )
    assert plan_conversion(source_layout((2, 5, 3)), layout_of_permutation((2, 5, 3), (2, 0, 1))) == LayoutConversion(
        None, (2, 0, 1), None
    )
    assert plan_conversion(source_layout((2, 5)), (AxisPart(1, 1, 5), AxisPart(0, 1, 2))) == LayoutConversion(
        None, (1, 0), None
    )
    assert plan_conversion(source_layout((1, 1, 3)), layout_of_permutation((1, 1, 3), (1, 0, 2))) == LayoutConversion(
        None, None, None
    )
    assert plan_conversion(source_layout((5, 1)), source_layout((5,))) == LayoutConversion(None, None, (5,))
    assert plan_conversion(source_layout((5,)), source_layout((5, 1))) == LayoutConversion(None, None, (5, 1))


def test_transposition_of_split_axes_is_the_permutation_of_the_node() -> None:
    start = (AxisPart(0, 1, 3), AxisPart(1, 1, 2), AxisPart(1, 2, 32), AxisPart(2, 1, 64))
    assert format_transposition(start, source_layout((3, 64, 64))) == "[3, 2, 32, 64] -> 0,2,1,3"


def test_transposition_of_whole_axes_has_both_layouts() -> None:
    dims = (1, 5, 7, 3)
    assert format_transposition(source_layout(dims), layout_of_permutation(dims, [0, 3, 1, 2])) == "0,1,2,3 -> 0,3,1,2"
