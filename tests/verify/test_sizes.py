"""Sizes that are open and how batches are given row by row; numbers between integers and what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored
from onnx_tflite_plugin.verify.runtimes.structure import Entry

Dims = Sequence["int | str | None"]


def port(name: str, dims: Dims) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def sizes(
    inputs: Sequence[tuple[tuple[int, ...], Dims]], outputs: Sequence[Dims] = (), *values: TensorValue, **known: Any
) -> InputSizes:
    """``inputs``: what the file stores, and the sizes in the ONNX model; of outputs those alone."""
    tensors = [Tensor(0, k, f"x{k}", "float32", shape, known.get("dims", shape)) for k, (shape, _) in enumerate(inputs)]
    results = [Tensor(0, 10 + k, f"y{k}", "float32", (), ()) for k in range(len(outputs))]
    names = [tuple(t.name for t in side) for side in (tensors, results)]
    graph = Subgraph(0, "", (), tuple(tensors), tuple(results), ())
    entry = Entry(graph, graph.inputs, graph.outputs, *names)
    pairs: Any = SimpleNamespace(
        inputs=[port(f"x{k}", dims) for k, (_, dims) in enumerate(inputs)],
        outputs=[port(f"y{k}", dims) for k, dims in enumerate(outputs)],
        values={value.name: value for value in values},
    )
    return InputSizes(entry, pairs)


class TestOpenSizes:
    def test_a_size_is_one_more_than_stored_and_the_same_wherever_its_name_stands(self) -> None:
        found = sizes([((1, 5, 3), ("n", "h", 3)), ((7, 2), ("h", 2)), ((4,), (4,))]).open(0)
        assert found == {"x0": (2, 6, 3), "x1": (6, 2)}

    def test_sizes_that_are_too_small_to_run_are_larger_behind_the_batch(self) -> None:
        either = sizes([((1, 1, 3), ("n", "h", 3))])
        assert either.fixed(64) == {"x0": (1, 64, 3)}
        assert either.open(64) == {"x0": (2, 65, 3)}
        assert either.fixed(0) == {"x0": (1, 1, 3)}

    def test_no_size_is_run_at_0_and_the_onnx_model_s_go_first(self) -> None:
        assert sizes([((0, 3), ("n", 5))]).fixed(0) == {"x0": (1, 5)}

    def test_a_size_without_a_name_is_one_of_its_own(self) -> None:
        assert sizes([((1, 3), (None, 3)), ((2, 3), (None, 3))]).open(0) == {"x0": (2, 3), "x1": (3, 3)}

    def test_sizes_are_the_file_s_in_whatever_order_the_onnx_model_has_them(self) -> None:
        value = TensorValue("x0", 0, 0, order=(0, 3, 1, 2))
        found = sizes([((1, 5, 7, 3), (1, 3, "h", 7))], (), value)
        assert found.open(0) == {"x0": (1, 6, 7, 3)}
        assert found.as_converted().inputs[0].dims == (1, None, 7, 3)

    def test_another_rank_leaves_the_file_s_sizes(self) -> None:
        found = sizes([((1, 5), ("n", 5, 1))])
        assert (found.open(0), found.fixed(0), found.as_converted().inputs[0].dims) == ({}, {}, (1, 5))

    @pytest.mark.parametrize(("dims", "open_"), [((None, 5), True), ((1, 5), False)])
    def test_what_the_onnx_model_leaves_open_the_file_may_fix(self, dims: tuple[int | None, ...], open_: bool) -> None:
        assert sizes([((1, 5), ("n", 5))], dims=dims).open_in_file is open_


class TestRows:
    x, other = np.arange(6).reshape(2, 3), np.arange(5)

    def rows(
        self, dims: Dims = ("n", 3), result: Dims = ("n", 4), whole: Array | None = None, stored: int = 1
    ) -> list[list[Array]]:
        found = sizes([((5,), (5,)), ((stored, 3), dims)], [result])
        return found.rows([self.other, self.x], None if whole is None else [whole])

    def test_a_batch_that_is_not_taken_is_given_row_by_row(self) -> None:
        first, second = self.rows()
        assert [first[1].tolist(), second[1].tolist()] == [[[0, 1, 2]], [[3, 4, 5]]]
        assert first[0] is second[0] is self.other

    def test_only_a_batch_of_one_row_that_the_results_have_too(self) -> None:
        assert not self.rows(dims=("n", "m"))
        assert not self.rows(dims=(2, "m"))
        assert not self.rows(stored=2)
        assert not self.rows(result=(1, 4))
        assert not self.rows(result=())

    def test_only_where_the_rows_were_joined(self) -> None:
        assert not self.rows(result=("n", 4), whole=np.zeros((2, 4)))
        assert len(self.rows(result=("n", 4), whole=np.zeros((1, 8)))) == 2
        assert not self.rows(result=("n", 4), whole=np.zeros(8))


# --- integers and what they stand for ---------------------------------------------------------


def quantized(dtype: str, scale: Sequence[float], zero_point: Sequence[int], axis: int = 0) -> Tensor:
    return Tensor(0, 0, "t", dtype, (2, 3), (2, 3), quantization=Quantization(tuple(scale), tuple(zero_point), axis))


def test_integers_stand_for_their_distance_from_the_zero_point_in_steps() -> None:
    tensor = quantized("int8", [0.5], [3])
    stored = np.array([[-128, 3, 4], [5, 127, 0]], np.int8)
    floats = as_float(tensor, stored)
    assert floats.dtype == np.float32
    assert floats.tolist() == [[-65.5, 0, 0.5], [1, 62, -1.5]]
    np.testing.assert_array_equal(as_stored(tensor, floats), stored)


def test_each_channel_has_its_scale_along_its_axis() -> None:
    tensor = quantized("int16", [1, 2, 4], [0, 0, 0], axis=1)
    floats = as_float(tensor, np.ones((2, 3), np.int16))
    assert floats.tolist() == [[1, 2, 4]] * 2
    assert as_stored(tensor, floats).tolist() == [[1, 1, 1]] * 2


def test_floats_are_rounded_to_even_and_saturate() -> None:
    floats = np.array([[0.5, 1.5, -0.5], [1e9, -1e9, np.nan]], np.float32)
    stored = as_stored(quantized("uint8", [1.0], [10]), floats)
    assert stored.dtype == np.uint8
    assert stored.tolist() == [[10, 12, 10], [255, 0, 10]]


def test_what_has_no_scale_or_is_no_integer_stays() -> None:
    plain = Tensor(0, 0, "t", "int8", (3,), (3,))
    floats, integers = np.ones(3, np.float32), np.ones(3, np.int8)
    assert as_float(plain, integers) is integers
    assert as_stored(plain, floats) is floats
    assert as_float(quantized("int8", [0.5], [0]), floats) is floats
    assert as_stored(quantized("int8", [0.5], [0]), integers) is integers
    assert as_stored(quantized("float32", [0.5], [0]), floats) is floats
