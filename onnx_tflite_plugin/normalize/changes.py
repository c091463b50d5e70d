"""Copies of a model with the shapes or dtypes of some tensors changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from onnx_tflite_plugin.source.model import Dims, Model, Subgraph, Tensor


def resize_tensor(tensor: Tensor, dims: Dims) -> Tensor:
    """Return the tensor with the given dims; a dynamic size is stored as 1."""
    if dims == tensor.dims:
        return tensor
    return replace(tensor, shape=tuple(1 if n is None else n for n in dims), dims=dims, has_rank=True)


def with_dims(model: Model, dims: Mapping[Tensor, Dims]) -> Model:
    """Return the model with the shapes of some tensors changed, in all subgraphs."""
    return with_tensors(model, {t: replace(resize_tensor(t, sizes), has_rank=True) for t, sizes in dims.items()})


def with_tensors(model: Model, replacements: Mapping[Tensor, Tensor]) -> Model:
    """Return the model with some tensors replaced, in all subgraphs."""
    if not replacements:
        return model
    affected = {tensor.subgraph for tensor in replacements}
    graphs = [_replace_tensors(graph, replacements) if graph.index in affected else graph for graph in model.subgraphs]
    return replace(model, subgraphs=tuple(graphs))


def with_dtypes(model: Model, dtypes: Mapping[tuple[int, int], str]) -> Model:
    """Return the model with the dtypes of some tensors changed.

    ``dtypes``: new dtypes by the tensor's subgraph and index.
    """

    def with_dtype(tensor: Tensor) -> Tensor:
        dtype = dtypes.get((tensor.subgraph, tensor.index))
        parameters = tensor.quantization or tensor.ignored_quantization
        return replace(tensor, dtype=dtype, quantization=parameters, ignored_quantization=None) if dtype else tensor

    graphs = [
        _replace_tensors(graph, {tensor: with_dtype(tensor) for tensor in graph.tensors}) for graph in model.subgraphs
    ]
    return replace(model, subgraphs=tuple(graphs))


def _replace_tensors(graph: Subgraph, replacements: Mapping[Tensor, Tensor]) -> Subgraph:
    """Return the subgraph with some tensors replaced."""

    def replace_optional(tensors: Collection[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else replacements.get(tensor, tensor) for tensor in tensors)

    def replace_each(tensors: Collection[Tensor]) -> tuple[Tensor, ...]:
        return tuple(replacements.get(tensor, tensor) for tensor in tensors)

    operators = tuple(
        replace(
            op,
            inputs=replace_optional(op.inputs),
            outputs=replace_optional(op.outputs),
            intermediates=replace_optional(op.intermediates),
        )
        for op in graph.operators
    )
    return replace(
        graph,
        tensors=replace_each(graph.tensors),
        inputs=replace_each(graph.inputs),
        outputs=replace_each(graph.outputs),
        operators=operators,
    )


def with_main(model: Model, main: Subgraph) -> Model:
    """Return the model with its main subgraph replaced."""
    return replace(model, subgraphs=(*model.subgraphs[: model.root], main, *model.subgraphs[model.root + 1 :]))
