"""Random operands of sparse tensors: sorted indices, and a dense shape."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.inputs.sparse import draw_sparse
from tests.helpers.verify_graphs import operator, slot, subgraph

INDICES, DENSE_SHAPE = slot(0, "int32", (23, 3)), slot(1, "int32", (3,))
VALUES, DEFAULT_VALUE, RESULT = slot(2, shape=(23,)), slot(3, shape=()), slot(4, shape=(2, 3, 5))


def dense_shape(*sizes: int) -> Tensor:
    return slot(1, "int32", (3,), values=np.array(sizes, np.int32))


def draw_operand(tensor: Tensor, op: Operator) -> Array | None:
    return draw_sparse(np.random.default_rng(0), subgraph(op), tensor, tensor.shape)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_random_indices_are_in_bounds_and_row_major(dtype: str) -> None:
    indices, sizes = slot(0, dtype, (23, 3)), slot(1, dtype, (3,), values=np.array([29, 31, 37], dtype))
    for op in (
        operator([indices, sizes, VALUES, DEFAULT_VALUE], [RESULT]),
        operator([VALUES, indices, sizes, VALUES], [RESULT]),
    ):
        coordinates = draw_operand(indices, op)
        assert coordinates is not None
        assert (coordinates.shape, coordinates.dtype.name) == ((23, 3), dtype)
        assert (coordinates.min(0) >= 0).all()
        assert (coordinates.max(0) < (29, 31, 37)).all()
        assert (coordinates.max(0) > 18).all()
        assert (np.diff(np.ravel_multi_index(tuple(coordinates.T), (29, 31, 37))) >= 0).all()


@pytest.mark.parametrize(
    ("result", "sizes"),
    [
        (slot(4, shape=(2, 3, 5)), [2, 3, 5]),
        (slot(4, shape=(7, None, 2, 9)), [7, 5, 2]),
        (slot(4, shape=(11,)), [11, 5, 5]),
    ],
)
def test_random_dense_shape_matches_the_result_or_is_5(result: Tensor, sizes: list[int]) -> None:
    coordinates = draw_operand(DENSE_SHAPE, operator([INDICES, DENSE_SHAPE, VALUES, DEFAULT_VALUE], [None, result]))
    assert coordinates is not None
    assert (coordinates.tolist(), coordinates.dtype) == (sizes, np.int32)


@pytest.mark.parametrize(
    "slots",
    [
        [INDICES, slot(1, "int32", (5,)), VALUES, DEFAULT_VALUE],
        [INDICES, DENSE_SHAPE, VALUES, slot(3, shape=(7,))],
        [INDICES, DENSE_SHAPE, VALUES],
        [INDICES, DENSE_SHAPE, VALUES, VALUES, slot(5, shape=(3,))],
        [INDICES, slot(1, "float32", (3,)), VALUES, DEFAULT_VALUE],
        [slot(0, "float32", (23, 3)), DENSE_SHAPE, VALUES, DEFAULT_VALUE],
        [slot(0, "int32", (23,)), slot(1, "int32", ()), slot(2, shape=(23,)), DEFAULT_VALUE],
        [slot(0, "int32", (23, 0)), slot(1, "int32", (0,)), VALUES, DEFAULT_VALUE],
        [INDICES, None, DENSE_SHAPE, VALUES, DEFAULT_VALUE],
    ],
    ids=["different rank", "no values", "one value", "different bounds", "float shape", "float indices", "vector", "rank 0", "absent"],
)  # fmt: skip
def test_other_operands_are_not_treated_as_sparse(slots: list[Tensor | None]) -> None:
    for k in (0, 1):
        tensor = slots[k]
        assert tensor is None or draw_operand(tensor, operator(slots, [RESULT])) is None


@pytest.mark.parametrize("sizes", [(2, 0, 5), (2, -3, 5), (1 << 20, 1 << 20, 2), (2, 3)])
def test_skips_unusable_dense_shapes(sizes: tuple[int, ...]) -> None:
    assert draw_operand(INDICES, operator([INDICES, dense_shape(*sizes), VALUES, DEFAULT_VALUE], [RESULT])) is None


def test_axis_of_size_1_has_index_0() -> None:
    coordinates = draw_operand(INDICES, operator([INDICES, dense_shape(1, 31, 1), VALUES, DEFAULT_VALUE], [RESULT]))
    assert coordinates is not None
    assert coordinates.max(0).tolist()[::2] == [0, 0]
    assert coordinates.max() > 15
