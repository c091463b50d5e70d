"""Rows that are all split into the same columns are split after these."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from passes_networks import Applied, Draw, Network

from conformance.builder import TensorRef
from conformance.models import constant, tensor

ROWS = 5


def parted(widths: Sequence[Sequence[int]] = ((7, 2, 3),) * ROWS, axis: int = 1, dtype: str = "float32") -> Draw:
    """As many rows as there are ``widths``, each split into columns of these."""

    def draw(net: Network) -> tuple[TensorRef, ...]:
        count, width = len(widths), sum(widths[0])
        shape = (count, width) if axis else (count * width, 1)
        given = tensor(*shape, dtype=dtype)
        x = net.input(given)
        row = given.shaped(*((1, width) if axis else (width, 1)))
        made = []
        for part, lengths in zip(
            net.calls("SPLIT", [constant(0), x], *[row] * count, num_splits=count), widths, strict=True
        ):
            columns = [given.shaped(*((1, n) if axis else (n, 1))) for n in lengths]
            operands = [part, constant([*lengths]), constant(axis)]
            made += [
                net.like("LEAKY_RELU", column, alpha=0.5)
                for column in net.calls("SPLIT_V", operands, *columns, num_splits=len(lengths))
            ]
        return tuple(made)

    return draw


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_node_for_each_column_splits_all_rows(dtype: str) -> None:
    applied = Applied("columns_first", parted(dtype=dtype))
    assert applied.count == 1
    assert applied.equal
    assert len(applied.nodes("Split")) == 1 + 3


@pytest.mark.parametrize(
    "draw",
    [
        parted(((7, 2, 3),) * 4 + ((3, 2, 7),)),
        parted(((7, 2, 3),) * 3),
        parted(axis=0),
    ],
    ids=["one row has other columns", "no more rows than columns", "the same axis"],
)
def test_else_each_row_is_split_by_itself(draw: Draw) -> None:
    assert Applied("columns_first", draw).count == 0


def test_a_row_that_is_read_whole_is_made() -> None:
    def draw(net: Network) -> tuple[TensorRef, ...]:
        rows = net.calls("SPLIT", [constant(0), net.input(tensor(5, 6))], *[tensor(1, 6)] * 5, num_splits=5)
        halves = [
            half for row in rows for half in net.calls("SPLIT", [constant(1), row], *[tensor(1, 3)] * 2, num_splits=2)
        ]
        return net.like("NEG", rows[2]), *(net.like("NEG", half) for half in halves)

    assert Applied("columns_first", draw).count == 0
