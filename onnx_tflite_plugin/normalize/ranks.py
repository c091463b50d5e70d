"""Ranks of results of which the file tells none, as old converters write them, and sizes that are open without its saying so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.declarations import Transparent
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.consistency import lacks_rank
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import default_axes
from onnx_tflite_plugin.normalize.changes import sized_as, with_dims
from onnx_tflite_plugin.normalize.derivation import HIGHEST_RANK, Sizes, candidate_ranks
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Tensor
from onnx_tflite_plugin.targets import target_named

Results = Mapping[Tensor, tuple[Dims, Array | None]]
ANY = target_named("generic")  # which ranks results have is the same for all, and this one refuses least


def completed(model: Model, host: Host) -> Model:
    """The model with what its file does not tell of results' sizes; the same where nothing is missing."""
    dims = missing(Sizes(model, host, ANY, ""))
    return with_dims(model, dims) if dims else model


def missing(sizes: Sizes) -> dict[Tensor, Dims]:
    """Sizes of results that the file does not tell, where they follow from their operators: a rank, and which sizes are open.

    A tool that puts QUANTIZE and DEQUANTIZE into a file may write only the sizes that it saw, without ``shape_signature``.
    """
    dims: dict[Tensor, Dims] = {}
    numbers: dict[Tensor, Array] = {}
    for op in sizes.model.main.operators:
        lacking = [tensor for tensor in op.outputs if tensor is not None and lacks_rank(tensor)]
        untold = [*lacking, *(t for t in op.outputs if t is not None and _unsigned(t, op, dims))]
        operands = _aligned(sizes, op, dims) if untold else []
        if operands:
            told = {tensor: _told(tensor, operands) for tensor in untold}
            dims.update(
                (tensor, follows) for tensor, follows in told.items() if lacks_rank(tensor) or follows != tensor.dims
            )
        elif untold:
            results = _tried(sizes, op, dims, numbers)
            dims.update((tensor, _opened(tensor, results[tensor][0])) for tensor in untold if tensor in results)
            numbers.update((tensor, value) for tensor, (_, value) in results.items() if value is not None)
    return dims


def _unsigned(tensor: Tensor, op: Operator, dims: Mapping[Tensor, Dims]) -> bool:
    """Whether a result has no open size though an operand has one."""
    operands = (dims.get(t, t.dims) for t in op.inputs if t is not None)
    return tensor.static and bool(tensor.shape) and any(None in own for own in operands)


def _opened(tensor: Tensor, follows: Dims) -> Dims:
    """The sizes that follow; of those that the file gives, only which are open."""
    if len(follows) != tensor.rank:
        return tensor.dims if tensor.has_rank else follows
    return tuple(own if size is not None else None for size, own in zip(follows, tensor.dims, strict=True))


def _told(tensor: Tensor, operands: Sequence[Tensor]) -> Dims:
    """The sizes of what operands make together; those that the file gives, where they are other than the operands'."""
    dims, stored = broadcast_shape([t.dims for t in operands]), broadcast_shape([t.shape for t in operands])
    if len(dims) != tensor.rank:
        return tensor.dims if tensor.has_rank else dims
    return tuple(n if was == own else own for n, was, own in zip(dims, stored, tensor.dims, strict=True))


def _aligned(sizes: Sizes, op: Operator, dims: Mapping[Tensor, Dims]) -> list[Tensor]:
    """The operands that broadcast, in the sizes that they have by now; empty where there are none, or one has no rank."""
    operands = tuple(
        None if tensor is None else sized_as(tensor, dims.get(tensor, tensor.dims)) for tensor in op.inputs
    )
    try:
        bound = sizes.bound(replace(op, inputs=operands))
    except (ConversionError, Failed, Refused):
        return []
    if (
        not bound.declared.aligned
        or not isinstance(bound.declared.layout, Transparent)
        or bound.handler.sizes is not None
    ):
        return []
    aligned = [bound.op[slot] for slot in default_axes(bound) if slot >= 0]
    return aligned if all(tensor.has_rank for tensor in aligned) else []


def broadcast_shape(shapes: Sequence[Dims]) -> Dims:
    """Return the shape of shapes that are aligned from the right; a size is dynamic if one is and no other is above 1."""
    rank = max(map(len, shapes))
    rows = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(next((n for n in row if n not in (1, None)), None if None in row else 1) for row in rows)


def _tried(sizes: Sizes, op: Operator, dims: Mapping[Tensor, Dims], numbers: Mapping[Tensor, Array]) -> Results:
    """The results at the first rank that what the operator emits has as well; none where there is no such rank."""
    told = all(tensor.has_rank for tensor in op.outputs if tensor is not None)
    for rank in (HIGHEST_RANK,) if told else candidate_ranks(op, dims):
        try:
            results = sizes.results(op, dims, numbers, rank)
        except (ConversionError, Failed, Refused):
            continue
        if all(len(follows) == rank for tensor, (follows, _) in results.items() if not tensor.has_rank):
            return results
    return {}
