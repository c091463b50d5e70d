"""Copies of a model with other shapes or dtypes of some tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from onnx_tflite_plugin.source.model import Dims, Model, Subgraph, Tensor


def resize_tensor(tensor: Tensor, dims: Dims) -> Tensor:
    """Return the tensor with other dims; a dynamic size is stored as 1."""
    if dims == tensor.dims:
        return tensor
    return replace(tensor, shape=tuple(1 if n is None else n for n in dims), dims=dims, has_rank=True)


def with_dims(model: Model, dims: Mapping[Tensor, Dims]) -> Model:
    """Return the model with other shapes of some tensors, in all subgraphs."""
    return with_tensors(model, {t: replace(resize_tensor(t, sizes), has_rank=True) for t, sizes in dims.items()})


def with_tensors(model: Model, changed: Mapping[Tensor, Tensor]) -> Model:
    """Return the model with some tensors replaced, in all subgraphs."""
    if not changed:
        return model
    affected = {tensor.subgraph for tensor in changed}
    graphs = [_replace_tensors(graph, changed) if graph.index in affected else graph for graph in model.subgraphs]
    return replace(model, subgraphs=tuple(graphs))


def with_dtypes(model: Model, dtypes: Mapping[tuple[int, int], str]) -> Model:
    """Return the model with other dtypes of some tensors, given by subgraph and index."""

    def other(tensor: Tensor) -> Tensor:
        dtype = dtypes.get((tensor.subgraph, tensor.index))
        parameters = tensor.quantization or tensor.ignored_quantization
        return replace(tensor, dtype=dtype, quantization=parameters, ignored_quantization=None) if dtype else tensor

    graphs = [_replace_tensors(graph, {tensor: other(tensor) for tensor in graph.tensors}) for graph in model.subgraphs]
    return replace(model, subgraphs=tuple(graphs))


def _replace_tensors(main: Subgraph, changed: Mapping[Tensor, Tensor]) -> Subgraph:
    """Return the subgraph with some tensors replaced."""

    def all_of(tensors: Collection[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else changed.get(tensor, tensor) for tensor in tensors)

    def some(tensors: Collection[Tensor]) -> tuple[Tensor, ...]:
        return tuple(changed.get(tensor, tensor) for tensor in tensors)

    operators = tuple(
        replace(op, inputs=all_of(op.inputs), outputs=all_of(op.outputs), intermediates=all_of(op.intermediates))
        for op in main.operators
    )
    return replace(
        main, tensors=some(main.tensors), inputs=some(main.inputs), outputs=some(main.outputs), operators=operators
    )


def with_main(model: Model, main: Subgraph) -> Model:
    """Return the model with another main subgraph."""
    return replace(model, subgraphs=(*model.subgraphs[: model.root], main, *model.subgraphs[model.root + 1 :]))
