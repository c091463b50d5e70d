"""Ranks that old converters do not store, and dynamic sizes that a file does not mark as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.declarations import Transparent
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.consistency import lacks_rank
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import default_axes
from onnx_tflite_plugin.normalize.changes import resize_tensor, with_dims
from onnx_tflite_plugin.normalize.derivation import HIGHEST_RANK, Sizes, candidate_ranks
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Tensor
from onnx_tflite_plugin.targets import target_named

Results = Mapping[Tensor, tuple[Dims, Array | None]]
TARGET = target_named("generic")  # ranks are the same for all targets; this one refuses the fewest operators


def complete_shapes(model: Model, host: Host) -> Model:
    """Return the model with shapes that its file does not store; the same object if none is missing."""
    dims = missing_shapes(Sizes(model, host, TARGET, ""))
    return with_dims(model, dims) if dims else model


def missing_shapes(sizes: Sizes) -> dict[Tensor, Dims]:
    """Return derived shapes of results that have no shape in the file: a rank, or dynamic sizes.

    Tools that insert QUANTIZE and DEQUANTIZE may write only the sizes they observed, without ``shape_signature``.
    """
    dims: dict[Tensor, Dims] = {}
    numbers: dict[Tensor, Array] = {}
    for op in sizes.model.main.operators:
        lacking = [tensor for tensor in op.outputs if tensor is not None and lacks_rank(tensor)]
        incomplete = [*lacking, *(t for t in op.outputs if t is not None and _lacks_dynamic_sizes(t, op, dims))]
        operands = _broadcast_operands(sizes, op, dims) if incomplete else []
        if operands:
            broadcast = {tensor: _broadcast_dims(tensor, operands) for tensor in incomplete}
            dims.update(
                (tensor, found) for tensor, found in broadcast.items() if lacks_rank(tensor) or found != tensor.dims
            )
        elif incomplete:
            results = _try_ranks(sizes, op, dims, numbers)
            dims.update(
                (tensor, _mark_dynamic(tensor, results[tensor][0])) for tensor in incomplete if tensor in results
            )
            numbers.update((tensor, value) for tensor, (_, value) in results.items() if value is not None)
    return dims


def _lacks_dynamic_sizes(tensor: Tensor, op: Operator, dims: Mapping[Tensor, Dims]) -> bool:
    """Return True if a result has no dynamic size though an operand has one."""
    operands = (dims.get(t, t.dims) for t in op.inputs if t is not None)
    return tensor.is_static and bool(tensor.shape) and any(None in own for own in operands)


def _mark_dynamic(tensor: Tensor, found: Dims) -> Dims:
    """Return the derived shape; if the file stores sizes, those, with dynamic ones marked."""
    if len(found) != tensor.rank:
        return tensor.dims if tensor.has_rank else found
    return tuple(own if size is not None else None for size, own in zip(found, tensor.dims, strict=True))


def _broadcast_dims(tensor: Tensor, operands: Sequence[Tensor]) -> Dims:
    """Return the broadcast shape of the operands, with the stored sizes where the file's differ from the operands'."""
    dims, stored = broadcast_shape([t.dims for t in operands]), broadcast_shape([t.shape for t in operands])
    if len(dims) != tensor.rank:
        return tensor.dims if tensor.has_rank else dims
    return tuple(n if was == own else own for n, was, own in zip(dims, stored, tensor.dims, strict=True))


def _broadcast_operands(sizes: Sizes, op: Operator, dims: Mapping[Tensor, Dims]) -> list[Tensor]:
    """Return the operands that broadcast, at their current shapes; empty if there are none or one has no rank."""
    operands = tuple(
        None if tensor is None else resize_tensor(tensor, dims.get(tensor, tensor.dims)) for tensor in op.inputs
    )
    try:
        bound = sizes.bind(replace(op, inputs=operands))
    except (ConversionError, Failed, Refusal):
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
    """Return the broadcast shape; a size is dynamic if one is and no other is above 1."""
    rank = max(map(len, shapes))
    rows = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(next((n for n in row if n not in (1, None)), None if None in row else 1) for row in rows)


def _try_ranks(sizes: Sizes, op: Operator, dims: Mapping[Tensor, Dims], numbers: Mapping[Tensor, Array]) -> Results:
    """Return the results at the first rank that the emitted nodes give, too; empty if there is no such rank."""
    has_ranks = all(tensor.has_rank for tensor in op.outputs if tensor is not None)
    for rank in (HIGHEST_RANK,) if has_ranks else candidate_ranks(op, dims):
        try:
            results = sizes.results(op, dims, numbers, rank)
        except (ConversionError, Failed, Refusal):
            continue
        if all(len(found) == rank for tensor, (found, _) in results.items() if not tensor.has_rank):
            return results
    return {}
