"""Copies of a model with replaced tensors: every operator uses the new tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.normalize.changes import resize_tensor, with_dims, with_dtypes, with_main
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model


def three_subgraph_model(main_index: int) -> Model:
    """Return a model of three subgraphs of one operator each; ``root`` is the main one.

    Each operator has an absent operand and an intermediate tensor.
    """
    model = ModelBuilder()
    for k in range(3):
        g = model.main if k == 0 else model.subgraph(f"graph {k}")
        x, y, intermediate = (
            g.input("x", (2, 3)),
            g.tensor("y", (2, 3), quantization=quant(0.5, 3)),
            g.tensor("z", (5,)),
        )
        g.operator("ADD", [x, None, x], [y, None], intermediates=[intermediate, None])
        g.output(y)
    return replace(read(model.build()), root=main_index)


def test_dynamic_sizes_are_stored_as_1() -> None:
    tensor = three_subgraph_model(0).main.inputs[0]
    assert resize_tensor(tensor, (2, 3)) is tensor
    resized = resize_tensor(tensor, (None, 7, 3))
    assert (resized.dims, resized.shape, resized.has_rank) == ((None, 7, 3), (1, 7, 3), True)
    without_rank = replace(tensor, shape=(), dims=(), has_rank=False)
    assert resize_tensor(without_rank, ()) is without_rank


@pytest.mark.parametrize("main_index", [0, 1, 2])
def test_resized_tensors_replace_those_of_the_main_subgraph(main_index: int) -> None:
    model = three_subgraph_model(main_index)
    x, y, z = model.main.tensors
    changed = with_dims(model, {x: (7, 3), y: (7, 3), z: (11,)})
    tensors = changed.main.tensors
    assert [tensor.dims for tensor in tensors] == [(7, 3), (7, 3), (11,)]
    (op,) = changed.main.operators
    assert (changed.main.inputs, changed.main.outputs) == ((tensors[0],), (tensors[1],))
    assert (op.inputs, op.outputs, op.intermediates) == (
        (tensors[0], None, tensors[0]),
        (tensors[1], None),
        (tensors[2], None),
    )
    other_indices = [k for k in range(3) if k != main_index]
    assert [changed.subgraphs[k] for k in other_indices] == [model.subgraphs[k] for k in other_indices]
    assert len(changed.subgraphs) == 3
    assert with_main(changed, model.main).subgraphs == model.subgraphs


def test_tensor_derived_as_scalar_has_a_rank() -> None:
    model = three_subgraph_model(0)
    without_rank = replace(model.main.inputs[0], shape=(), dims=(), has_rank=False)
    scalar = with_main(model, replace(model.main, inputs=(without_rank,)))
    assert with_dims(scalar, {without_rank: ()}).main.inputs[0].has_rank


def test_changed_dtype_restores_the_ignored_scale() -> None:
    """This holds in every subgraph."""
    model = three_subgraph_model(0)
    changed = with_dtypes(model, {(1, 1): "int8"})
    before, after = model.subgraphs[1].outputs[0], changed.subgraphs[1].outputs[0]
    assert before.quantization is None
    assert before.ignored_quantization is not None
    assert (after.dtype, after.quantization, after.ignored_quantization) == ("int8", before.ignored_quantization, None)
    changed_again = with_dtypes(changed, {(1, 1): "uint8"}).subgraphs[1].outputs[0]
    assert (changed_again.dtype, changed_again.quantization) == ("uint8", before.ignored_quantization)
    assert [changed.subgraphs[k].tensors for k in (0, 2)] == [model.subgraphs[k].tensors for k in (0, 2)]
    assert [tensor.dtype for tensor in changed.subgraphs[1].tensors] == ["float32", "int8", "float32"]
