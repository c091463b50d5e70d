"""Shapes of inputs and number of runs, for fixed and dynamic dimensions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.models import Net, constant, random_array, tensor
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Array, Signature, Tensor
from onnx_tflite_plugin.verify.arguments import MAX_ELEMENTS, affordable_runs
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.verify_graphs import entry_of, model, operator, slot, subgraph


def sizes(
    *inputs: tuple[Tensor, list[int | str | None]],
    outputs: tuple[tuple[Tensor, list[int | str | None]], ...] = (),
    orders: dict[str, tuple[int, ...]] | None = None,
) -> InputSizes:
    """Return input sizes for tensors and their ONNX dimensions.

    The dimension ``None`` is dynamic and has no name.
    """
    infos = [
        [helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, dims) for tensor, dims in side]
        for side in (inputs, outputs)
    ]
    entry = entry_of(subgraph(inputs=[t for t, _ in inputs], outputs=[t for t, _ in outputs]))
    values = {name: TensorValue(name, 0, 0, order=order) for name, order in (orders or {}).items()}
    interface: Any = SimpleNamespace(inputs=infos[0], outputs=infos[1], values=values)
    return InputSizes(entry, interface)


def test_given_arrays_must_match_fixed_dimensions() -> None:
    input_sizes = sizes((slot(0, shape=(None, 3, 5)), [7, "n", 5]), (slot(1, shape=(2, 3)), [2, 3, 1])).as_converted()
    assert [tensor.dims for tensor in input_sizes.inputs] == [(7, None, 5), (2, 3)]


def test_resized_dimensions_with_equal_names_have_equal_sizes() -> None:
    input_sizes = sizes(
        (slot(0, shape=(3, 5, 0)), ["batch", "n", "k"]),
        (slot(1, shape=(7, 2)), ["batch", 2]),
        (slot(2, shape=(2, 2)), [2, 2]),
        (slot(3, shape=(2, 2)), ["a", 2, 2]),
        (slot(4, shape=(1, 11)), [None, None]),
    )
    assert input_sizes.other_sizes(0) == {"t0": (4, 6, 2), "t1": (4, 2), "t4": (2, 12)}
    assert input_sizes.other_sizes(64) == {"t0": (4, 65, 65), "t1": (4, 2), "t4": (2, 65)}


def test_sizes_use_file_layout_and_omit_the_axis_of_complex_pairs() -> None:
    input_sizes = sizes(
        (slot(0, shape=(2, 3, 5)), [5, 2, "n"]),
        (slot(1, "complex64", (2, 3)), ["m", 3, 2]),
        orders={"t0": (2, 0, 1)},
    )
    assert input_sizes.onnx_shapes(0) == {"t0": (2, 3, 5), "t1": (2, 3)}
    assert input_sizes.other_sizes(0) == {"t0": (2, 4, 5), "t1": (3, 3)}
    assert [tensor.dims for tensor in input_sizes.as_converted().inputs] == [(2, None, 5), (None, 3)]


def test_different_rank_keeps_the_sizes_of_the_file() -> None:
    input_sizes = sizes((slot(0, shape=(1, 5)), ["n", 5, 1]))
    assert (input_sizes.other_sizes(0), input_sizes.onnx_shapes(0), input_sizes.as_converted().inputs[0].dims) == (
        {},
        {},
        (1, 5),
    )


def test_shapes_combine_fixed_and_chosen_dimensions() -> None:
    input_sizes = sizes((slot(0, shape=(1, 0, 5)), [7, "n", "m"]), (slot(1, shape=(2,)), [2, 3]))
    assert input_sizes.onnx_shapes(0) == {"t0": (7, 1, 5)}
    assert input_sizes.onnx_shapes(64) == {"t0": (7, 64, 64)}


@pytest.mark.parametrize(
    ("stored", "dims", "is_dynamic"),
    [
        ((None, 3), ["n", 3], True),
        ((None, 3), [7, 3], True),
        ((2, 3), [2, 3], True),
        ((2, 3), ["n", 3], False),
        ((None, 3), ["n", "m"], False),
        ((2, 3), ["n", 3, 1], True),
    ],
)
def test_detects_dimensions_that_are_dynamic_in_both_models(
    stored: tuple[int | None, ...], dims: list[int | str | None], is_dynamic: bool
) -> None:
    assert sizes((slot(0, shape=stored), dims)).is_dynamic_in_file is is_dynamic


class TestBatchItems:
    """If LiteRT rejects a batch, its items run one by one."""

    BATCH: Array = np.arange(21).reshape(7, 3)
    BATCHED_INPUT = slot(0, shape=(1, 3)), ["n", 3]

    def split(
        self, *inputs: Any, dims: tuple[Any, ...] = ("n", 5), batch_result: Array | None = None
    ) -> list[list[Array]]:
        arrays = [self.BATCH, np.arange(2)][: len(inputs)]
        input_sizes = sizes(*inputs, outputs=((slot(9, shape=(1, 5)), [*dims]),))
        return input_sizes.split_batch(arrays, None if batch_result is None else [batch_result])

    def test_each_item_includes_inputs_without_a_batch_axis(self) -> None:
        rows = self.split(self.BATCHED_INPUT, (slot(1, shape=(2,)), [2]))
        assert [row[0].tolist() for row in rows] == [[row] for row in self.BATCH.tolist()]
        assert all(row[1].tolist() == [0, 1] for row in rows)

    def test_batch_size_comes_from_a_batched_input(self) -> None:
        input_sizes = sizes(
            (slot(1, shape=(2,)), [2]), self.BATCHED_INPUT, outputs=((slot(9, shape=(1, 5)), ["n", 5]),)
        )
        assert len(input_sizes.split_batch([np.arange(2), self.BATCH], None)) == 7

    def test_no_items_without_a_single_batch_axis(self) -> None:
        assert self.split((slot(0, shape=(1, 3)), ["n", "m"])) == []
        assert self.split((slot(0, shape=(1, 3)), [1, "m"])) == []
        assert self.split((slot(0, shape=(7, 3)), ["n", 3])) == []
        assert self.split(self.BATCHED_INPUT, dims=(7, 5)) == []
        assert self.split(self.BATCHED_INPUT, dims=()) == []

    @pytest.mark.parametrize(("shape", "rows"), [((7, 5), 0), ((3, 5), 0), ((7, 4), 7), ((35,), 0), ((7, 5, 1), 0)])
    def test_results_of_expected_or_other_rank_stay_unchanged(self, shape: tuple[int, ...], rows: int) -> None:
        assert len(self.split(self.BATCHED_INPUT, batch_result=np.zeros(shape))) == rows

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
    def test_one_result_without_a_batch_axis_prevents_splitting(self, dims: Any, shapes: Any, rows: int) -> None:
        input_sizes = sizes(
            self.BATCHED_INPUT, outputs=tuple((slot(k, shape=(1, 5)), side) for k, side in enumerate(dims, 8))
        )
        assert len(input_sizes.split_batch([self.BATCH], shapes and [np.zeros(shape) for shape in shapes])) == rows

    def test_inputs_may_not_have_larger_batches(self) -> None:
        assert self.split(self.BATCHED_INPUT, (slot(1, shape=(2,)), ["n"])) == []

    def test_different_batch_sizes_share_no_items(self) -> None:
        input_sizes = sizes(
            self.BATCHED_INPUT, (slot(1, shape=(1, 3)), ["m", 3]), outputs=((slot(9, shape=(1, 5)), ["n", 5]),)
        )
        assert input_sizes.split_batch([self.BATCH, self.BATCH[:2]], None) == []
        assert len(input_sizes.split_batch([self.BATCH, self.BATCH], None)) == 7


def test_input_in_file_layout_keeps_its_sizes() -> None:
    value: Any = TensorValue("t0", 0, 0, order=None)
    input_sizes = sizes((slot(0, shape=(2, 3)), [5, 7]))
    input_sizes.interface.values["t0"] = value  # type: ignore[index]
    assert input_sizes.onnx_shapes(0) == {"t0": (5, 7)}


@pytest.mark.parametrize("graph", [0, 1])
def test_only_main_graph_signatures_add_unnamed_tensors(graph: int) -> None:
    tensors = [slot(k, graph=graph) for k in range(4)]
    signature_graph = subgraph(
        operator(tensors[:2], tensors[2:], graph=graph), inputs=tensors[:2], outputs=tensors[2:], index=graph
    )
    graphs = [signature_graph] if graph == 0 else [subgraph(operator([slot(0)], [slot(1)])), signature_graph]
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
def test_dynamic_images_have_a_realistic_size(shape: tuple[int | None, ...], fixed: tuple[int, ...]) -> None:
    dims: list[int | str | None] = ["n" if size is None else size for size in shape]
    input_sizes = sizes((slot(0, shape=shape), dims))
    assert input_sizes.onnx_shapes(0)["t0"] == fixed
    assert input_sizes.onnx_shapes(1)["t0"] == tuple(1 if size is None else size for size in shape)


def test_submodel_inputs_have_their_sizes_in_the_whole_model() -> None:
    tensor = slot(0, shape=(1, None, 3))
    input_sizes = sizes((tensor, [1, "n", 3]))
    assert InputSizes(input_sizes.entry, input_sizes.interface, {0: (1, 11, 3)}).onnx_shapes(0) == {"t0": (1, 11, 3)}
    assert InputSizes(input_sizes.entry, input_sizes.interface, {0: (11, 3)}).onnx_shapes(0) == {"t0": (1, 1, 3)}


def flatten() -> bytes:
    """Flatten a batch after a reshape to the only size that the dense layer accepts."""
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


def test_submodel_is_verified_at_sizes_of_the_whole_model() -> None:
    submodel = otp.convert(flatten(), inputs_at=["y"], verify=True)
    assert submodel.verification is not None
    assert submodel.verification.ok


@pytest.mark.parametrize(
    ("dims", "runs"),
    [((7, None), 3), ((2, MAX_ELEMENTS // 4), 2), ((MAX_ELEMENTS,), 1), ((MAX_ELEMENTS, 5), 1), ((), 3)],
)
def test_large_inputs_and_outputs_run_fewer_times_and_at_least_once(dims: tuple[int | None, ...], runs: int) -> None:
    entry: Any = SimpleNamespace(inputs=(SimpleNamespace(dims=dims),), outputs=())
    assert affordable_runs(entry, 3) == runs


def test_audio_of_dynamic_length_is_long_enough() -> None:
    net = Net()
    row = net.call("EXPAND_DIMS", [net.input(tensor(None, None)), constant(np.int32(1))], tensor(None, 1, None))
    sound = net.call("EXPAND_DIMS", [row, constant(np.int32(3))], tensor(None, 1, None, 1))
    weights, bias = constant(random_array(3, 1, 500, 1)), constant(np.zeros(3, np.float32))
    result = tensor(None, 1, None, 3)
    net.output(net.call("CONV_2D", [sound, weights, bias], result, padding="VALID", stride_h=1, stride_w=160))
    verification = otp.verify(net.build(), otp.convert(net.build()))
    assert (verification.verdict, verification.operators) == ("agrees", 3)
