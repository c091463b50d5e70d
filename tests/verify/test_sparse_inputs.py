"""Operands of sparse tensors, drawn so that kernels can read them, and told from what only looks like them."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.inputs.sparse import sparse
from tests.helpers.verify_graphs import operator, slot, subgraph

PLACES, SIZES = slot(0, "int32", (23, 3)), slot(1, "int32", (3,))
VALUES, REST, RESULT = slot(2, shape=(23,)), slot(3, shape=()), slot(4, shape=(2, 3, 5))


def sizes_tensor(*sizes: int) -> Tensor:
    return slot(1, "int32", (3,), values=np.array(sizes, np.int32))


def of(tensor: Tensor, op: Operator) -> Array | None:
    return sparse(np.random.default_rng(0), subgraph(op), tensor, tensor.shape)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_places_lie_within_the_sizes_in_the_order_of_a_dense_tensor(dtype: str) -> None:
    places, sizes = slot(0, dtype, (23, 3)), slot(1, dtype, (3,), values=np.array([29, 31, 37], dtype))
    for op in (operator([places, sizes, VALUES, REST], [RESULT]), operator([VALUES, places, sizes, VALUES], [RESULT])):
        drawn = of(places, op)
        assert drawn is not None
        assert (drawn.shape, drawn.dtype.name) == ((23, 3), dtype)
        assert (drawn.min(0) >= 0).all()
        assert (drawn.max(0) < (29, 31, 37)).all()
        assert (drawn.max(0) > 18).all()
        assert (np.diff(np.ravel_multi_index(tuple(drawn.T), (29, 31, 37))) >= 0).all()


@pytest.mark.parametrize(
    ("result", "sizes"),
    [
        (slot(4, shape=(2, 3, 5)), [2, 3, 5]),
        (slot(4, shape=(7, None, 2, 9)), [7, 5, 2]),
        (slot(4, shape=(11,)), [11, 5, 5]),
    ],
)
def test_sizes_that_are_drawn_are_those_of_the_result_and_5_where_it_tells_none(
    result: Tensor, sizes: list[int]
) -> None:
    drawn = of(SIZES, operator([PLACES, SIZES, VALUES, REST], [None, result]))
    assert drawn is not None
    assert (drawn.tolist(), drawn.dtype) == (sizes, np.int32)


@pytest.mark.parametrize(
    "slots",
    [
        [PLACES, slot(1, "int32", (5,)), VALUES, REST],
        [PLACES, SIZES, VALUES, slot(3, shape=(7,))],
        [PLACES, SIZES, VALUES],
        [PLACES, SIZES, VALUES, VALUES, slot(5, shape=(3,))],
        [PLACES, slot(1, "float32", (3,)), VALUES, REST],
        [slot(0, "float32", (23, 3)), SIZES, VALUES, REST],
        [slot(0, "int32", (23,)), slot(1, "int32", ()), slot(2, shape=(23,)), REST],
        [slot(0, "int32", (23, 0)), slot(1, "int32", (0,)), VALUES, REST],
        [PLACES, None, SIZES, VALUES, REST],
    ],
    ids=["other axes", "no values", "one value", "other bounds", "sizes in float", "places in float", "a vector", "no axes", "none"],
)  # fmt: skip
def test_what_is_no_sparse_tensor_is_drawn_otherwise(slots: list[Tensor | None]) -> None:
    for k in (0, 1):
        tensor = slots[k]
        assert tensor is None or of(tensor, operator(slots, [RESULT])) is None


@pytest.mark.parametrize("sizes", [(2, 0, 5), (2, -3, 5), (1 << 20, 1 << 20, 2), (2, 3)])
def test_sizes_that_hold_no_place_or_too_many_or_are_not_whole_in_number_are_left_alone(sizes: tuple[int, ...]) -> None:
    assert of(PLACES, operator([PLACES, sizes_tensor(*sizes), VALUES, REST], [RESULT])) is None


def test_an_axis_of_one_place_holds_one() -> None:
    drawn = of(PLACES, operator([PLACES, sizes_tensor(1, 31, 1), VALUES, REST], [RESULT]))
    assert drawn is not None
    assert drawn.max(0).tolist()[::2] == [0, 0]
    assert drawn.max() > 15
