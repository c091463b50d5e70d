"""Slices that are all of a tensor, side by side, are one Split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from passes_networks import Applied, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import constant, tensor

NAME = "slices_to_split"


def slices(
    net: Network, *bounds: tuple[int, int], axis: int = 2, shape: Sequence[int | None] = (2, 3, 7)
) -> tuple[TensorRef, ...]:
    """Parts from one place to another, each negated."""
    x, made = net.input(tensor(*shape)), []
    for begin, end in bounds:
        first = [begin if k == axis else 0 for k in range(len(shape))]
        size = [end - begin if k == axis else -1 for k in range(len(shape))]
        part = tensor(*(end - begin if k == axis else n for k, n in enumerate(shape)))
        cut = net.call("SLICE", [x, constant(first), constant(size)], part)
        made.append(net.call("NEG", [cut], part))
    return tuple(made)


@pytest.mark.parametrize("bounds", [((0, 4), (4, 7)), ((4, 5), (5, 7), (0, 4))])
def test_parts_side_by_side_are_one_node(bounds: Sequence[tuple[int, int]]) -> None:
    applied = Applied(NAME, lambda net: slices(net, *bounds))
    assert applied.count == 1
    assert applied.equal
    assert not applied.nodes("Slice")


def test_other_axes_may_be_of_any_size() -> None:
    applied = Applied(NAME, lambda net: slices(net, (0, 4), (4, 7), shape=(None, 3, 7)), batch=5)
    assert applied.count == 1
    assert applied.equal


@pytest.mark.parametrize(
    "bounds", [((0, 4), (5, 7)), ((0, 4), (3, 7)), ((0, 3), (3, 6)), ((1, 4), (4, 7)), ((0, 4), (0, 4), (4, 7))]
)
def test_parts_that_overlap_or_leave_something_out_stay(bounds: Sequence[tuple[int, int]]) -> None:
    assert Applied(NAME, lambda net: slices(net, *bounds)).count == 0


def test_parts_along_two_axes_stay() -> None:
    def draw(net: Network) -> tuple[TensorRef, ...]:
        x = net.input(tensor(2, 3, 7))
        halves = []
        for begin in ((0, 0, 0), (0, 0, 4)):
            part = tensor(2, 2, 4 if not begin[2] else 3)
            halves.append(net.call("SLICE", [x, constant([*begin]), constant([2, 2, part.shape[2] or 0])], part))
        return tuple(net.call("NEG", [half], net.spec(half)) for half in halves)

    assert Applied(NAME, draw).count == 0


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("y = Slice (x, k0, k4, k1, k1) z = Slice (x, k4, k7, k1)", 1),
        ("y = Slice (x, k0, k4, last, k1) z = Slice (x, k4, k7, k1)", 1),
        ("y = Slice (x, k0, k4, k1, k2) z = Slice (x, k4, k7, k1)", 0),
    ],
    ids=["one axis", "counted from the end", "every second"],
)
def test_parts_are_whole_and_of_one_axis(nodes: str, count: int) -> None:
    stored = {f"k{k}": np.array([k]) for k in (0, 1, 2, 4, 7)}
    model = parsed(f"(float[3,7] x) => (float[3,m] y, float[3,n] z) {{ {nodes} }}", last=np.array([-1]), **stored)
    assert apply("slices_to_split", model) == count
