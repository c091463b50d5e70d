"""Sizes of inputs that the ONNX model fixes or leaves open, in the order of the TFLite file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Signature, Tensor
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.verify_graphs import entry_of, model, operator, slot, subgraph


def sizes(
    *inputs: tuple[Tensor, list[int | str | None]],
    outputs: tuple[tuple[Tensor, list[int | str | None]], ...] = (),
    orders: dict[str, tuple[int, ...]] | None = None,
) -> InputSizes:
    """Each tensor with its dimensions in the ONNX model; those that have neither number nor name are None."""
    infos = [
        [helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, dims) for tensor, dims in side]
        for side in (inputs, outputs)
    ]
    entry = entry_of(subgraph(inputs=[t for t, _ in inputs], outputs=[t for t, _ in outputs]))
    values = {name: TensorValue(name, 0, 0, order=order) for name, order in (orders or {}).items()}
    pairs: Any = SimpleNamespace(inputs=infos[0], outputs=infos[1], values=values)
    return InputSizes(entry, pairs)


def test_given_arrays_must_fit_what_the_onnx_model_fixes() -> None:
    found = sizes((slot(0, shape=(None, 3, 5)), [7, "n", 5]), (slot(1, shape=(2, 3)), [2, 3, 1])).as_converted()
    assert [tensor.dims for tensor in found.inputs] == [(7, None, 5), (2, 3)]


def test_dynamic_sizes_are_one_more_than_is_stored_or_than_runs_and_alike_where_named_alike() -> None:
    found = sizes(
        (slot(0, shape=(3, 5, 0)), ["batch", "n", "k"]),
        (slot(1, shape=(7, 2)), ["batch", 2]),
        (slot(2, shape=(2, 2)), [2, 2]),
        (slot(3, shape=(2, 2)), ["a", 2, 2]),
        (slot(4, shape=(1, 11)), [None, None]),
    )
    assert found.other_sizes(0) == {"t0": (4, 6, 2), "t1": (4, 2), "t4": (2, 12)}
    assert found.other_sizes(64) == {"t0": (4, 65, 65), "t1": (4, 2), "t4": (2, 65)}


def test_sizes_are_told_in_the_file_s_order_and_complex_numbers_have_no_axis_of_pairs() -> None:
    found = sizes(
        (slot(0, shape=(2, 3, 5)), [5, 2, "n"]),
        (slot(1, "complex64", (2, 3)), ["m", 3, 2]),
        orders={"t0": (2, 0, 1)},
    )
    assert found.onnx_shapes(0) == {"t0": (2, 3, 5), "t1": (2, 3)}
    assert found.other_sizes(0) == {"t0": (2, 4, 5), "t1": (3, 3)}
    assert [tensor.dims for tensor in found.as_converted().inputs] == [(2, None, 5), (None, 3)]


def test_another_rank_leaves_the_file_s_sizes() -> None:
    found = sizes((slot(0, shape=(1, 5)), ["n", 5, 1]))
    assert (found.other_sizes(0), found.onnx_shapes(0), found.as_converted().inputs[0].dims) == ({}, {}, (1, 5))


def test_fixed_sizes_are_the_onnx_model_s_and_open_ones_what_runs() -> None:
    found = sizes((slot(0, shape=(1, 0, 5)), [7, "n", "m"]), (slot(1, shape=(2,)), [2, 3]))
    assert found.onnx_shapes(0) == {"t0": (7, 1, 5)}
    assert found.onnx_shapes(64) == {"t0": (7, 64, 64)}


@pytest.mark.parametrize(
    ("stored", "dims", "reported"),
    [
        ((None, 3), ["n", 3], True),
        ((None, 3), [7, 3], True),
        ((2, 3), [2, 3], True),
        ((2, 3), ["n", 3], False),
        ((None, 3), ["n", "m"], False),
        ((2, 3), ["n", 3, 1], True),
    ],
)
def test_whether_the_file_leaves_open_what_the_onnx_model_does(
    stored: tuple[int | None, ...], dims: list[int | str | None], reported: bool
) -> None:
    assert sizes((slot(0, shape=stored), dims)).dynamic_in_file is reported


class TestRows:
    """A batch that LiteRT makes something else of is run row by row."""

    BATCH: Array = np.arange(21).reshape(7, 3)
    ONE = slot(0, shape=(1, 3)), ["n", 3]

    def of(self, *inputs: Any, dims: tuple[Any, ...] = ("n", 5), whole: Array | None = None) -> list[list[Array]]:
        arrays = [self.BATCH, np.arange(2)][: len(inputs)]
        found = sizes(*inputs, outputs=((slot(9, shape=(1, 5)), [*dims]),))
        return found.rows(arrays, None if whole is None else [whole])

    def test_each_row_with_what_has_no_axis_for_it(self) -> None:
        rows = self.of(self.ONE, (slot(1, shape=(2,)), [2]))
        assert [row[0].tolist() for row in rows] == [[row] for row in self.BATCH.tolist()]
        assert all(row[1].tolist() == [0, 1] for row in rows)

    def test_the_number_of_rows_is_that_of_an_input_that_has_them(self) -> None:
        found = sizes((slot(1, shape=(2,)), [2]), self.ONE, outputs=((slot(9, shape=(1, 5)), ["n", 5]),))
        assert len(found.rows([np.arange(2), self.BATCH], None)) == 7

    def test_another_open_size_or_more_than_one_row_or_no_axis_in_the_result_leaves_none(self) -> None:
        assert self.of((slot(0, shape=(1, 3)), ["n", "m"])) == []
        assert self.of((slot(0, shape=(1, 3)), [1, "m"])) == []
        assert self.of((slot(0, shape=(7, 3)), ["n", 3])) == []
        assert self.of(self.ONE, dims=(7, 5)) == []
        assert self.of(self.ONE, dims=()) == []

    @pytest.mark.parametrize(("shape", "rows"), [((7, 5), 0), ((3, 5), 0), ((7, 4), 7), ((35,), 0), ((7, 5, 1), 0)])
    def test_results_that_fit_or_are_of_another_rank_are_as_they_are(self, shape: tuple[int, ...], rows: int) -> None:
        assert len(self.of(self.ONE, whole=np.zeros(shape))) == rows

    @pytest.mark.parametrize(
        ("dims", "shapes", "rows"),
        [
            ((["n", 5], ["n", 5]), None, 7),
            ((["n", 5], [7, 5]), None, 0),
            ((["n", 5], ["n", 5]), ((7, 5), (7, 5)), 0),
            ((["n", 5], ["n", 5]), ((7, 5), (7, 4)), 7),
            ((["n", 5], ["n", 5]), ((7, 4), (35,)), 0),
        ],
    )
    def test_of_several_results_each_must_have_the_axis_and_one_that_lacks_it_is_enough(
        self, dims: Any, shapes: Any, rows: int
    ) -> None:
        found = sizes(self.ONE, outputs=tuple((slot(k, shape=(1, 5)), side) for k, side in enumerate(dims, 8)))
        assert len(found.rows([self.BATCH], shapes and [np.zeros(shape) for shape in shapes])) == rows

    def test_of_several_inputs_none_may_have_more_rows(self) -> None:
        assert self.of(self.ONE, (slot(1, shape=(2,)), ["n"])) == []

    def test_batches_of_other_numbers_of_rows_have_none_in_common(self) -> None:
        found = sizes(self.ONE, (slot(1, shape=(1, 3)), ["m", 3]), outputs=((slot(9, shape=(1, 5)), ["n", 5]),))
        assert found.rows([self.BATCH, self.BATCH[:2]], None) == []
        assert len(found.rows([self.BATCH, self.BATCH], None)) == 7


def test_an_input_that_the_onnx_model_has_in_the_file_s_order_keeps_its_sizes() -> None:
    value: Any = TensorValue("t0", 0, 0, order=None)
    made = sizes((slot(0, shape=(2, 3)), [5, 7]))
    made.pairs.values["t0"] = value  # type: ignore[index]
    assert made.onnx_shapes(0) == {"t0": (5, 7)}


@pytest.mark.parametrize("graph", [0, 1])
def test_only_a_signature_of_the_main_graph_leaves_anything_to_the_graph_s_order(graph: int) -> None:
    ends = [slot(k, graph=graph) for k in range(4)]
    own = subgraph(operator(ends[:2], ends[2:], graph=graph), inputs=ends[:2], outputs=ends[2:], index=graph)
    graphs = [own] if graph == 0 else [subgraph(operator([slot(0)], [slot(1)])), own]
    entry = structure.entry(model(*graphs, signatures=[Signature("s", graph, {"b": 1}, {"d": 3})]), "s")
    assert entry.input_names == (("t0", "b") if graph == 0 else ("b",))
    assert entry.output_names == (("t2", "d") if graph == 0 else ("d",))


# --- plausible sizes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "fixed"),
    [
        ((1, None, None, 3), (1, 224, 224, 3)),
        ((None, None, 7, 1), (1, 224, 7, 1)),
        ((1, None, None, 5), (1, 1, 1, 5)),
        ((1, None, 3), (1, 1, 3)),
    ],
    ids=["image", "gray image of fixed width", "features", "sequence"],
)
def test_images_of_dynamic_size_are_as_large_as_images_are(
    shape: tuple[int | None, ...], fixed: tuple[int, ...]
) -> None:
    dims: list[int | str | None] = ["n" if size is None else size for size in shape]
    found = sizes((slot(0, shape=shape), dims))
    assert found.onnx_shapes(0)["t0"] == fixed
    assert found.onnx_shapes(1)["t0"] == tuple(1 if size is None else size for size in shape)


def test_sizes_of_a_part_are_those_that_its_first_tensors_have_in_the_whole_model() -> None:
    tensor = slot(0, shape=(1, None, 3))
    made = sizes((tensor, [1, "n", 3]))
    assert InputSizes(made.entry, made.pairs, {0: (1, 11, 3)}).onnx_shapes(0) == {"t0": (1, 11, 3)}
    assert InputSizes(made.entry, made.pairs, {0: (11, 3)}).onnx_shapes(0) == {"t0": (1, 1, 3)}


def flatten() -> bytes:
    """A batch of rows, flattened after a reshape to the only size that the dense layer takes."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (None, 35)), g.tensor("y", (None, None, 7))
    flat, z = g.tensor("flat", (None, 35)), g.tensor("z", (None, 3))
    g.operator("RESHAPE", [x, g.constant("rows", np.array([-1, 5, 7], np.int32))], [y])
    g.operator("RESHAPE", [y, g.constant("row", np.array([-1, 35], np.int32))], [flat])
    weights = g.constant("w", np.linspace(-1, 1, 105, dtype=np.float32).reshape(3, 35))
    g.operator("FULLY_CONNECTED", [flat, weights, None], [z])
    g.output(z)
    return model.build()


def test_a_part_is_verified_at_sizes_that_only_the_whole_model_fixes() -> None:
    part = otp.convert(flatten(), inputs_at=["y"], verify=True)
    assert part.verification is not None
    assert part.verification.ok
