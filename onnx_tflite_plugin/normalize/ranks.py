"""Derivation of ranks and dynamic sizes that the file does not store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.layouts import Transparent
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.consistency import lacks_rank
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.constraints import default_axes
from onnx_tflite_plugin.normalize.changes import resize_tensor, with_dims
from onnx_tflite_plugin.normalize.derivation import MAX_TRIED_RANK, ShapeDerivation, candidate_ranks
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Tensor
from onnx_tflite_plugin.targets import target_named

Results = Mapping[Tensor, tuple[Dims, Array | None]]
TARGET = target_named("generic")  # ranks are the same for all targets; this one refuses the fewest operators


def complete_shapes(model: Model, host: Host) -> Model:
    """Return the model with derived shapes in place of missing shapes."""
    dims = missing_shapes(ShapeDerivation(model, host, TARGET, ""))
    return with_dims(model, dims) if dims else model


def missing_shapes(derivation: ShapeDerivation) -> dict[Tensor, Dims]:
    """Return derived shapes of results with missing ranks or dynamic sizes.

    Tools that insert QUANTIZE and DEQUANTIZE may store the sizes of one run without marking dynamic sizes.
    """
    dims: dict[Tensor, Dims] = {}
    size_values: dict[Tensor, Array] = {}
    for op in derivation.model.main.operators:
        without_rank = [tensor for tensor in op.outputs if tensor is not None and lacks_rank(tensor)]
        incomplete = [*without_rank, *(t for t in op.outputs if t is not None and _lacks_dynamic_sizes(t, op, dims))]
        operands = _broadcast_operands(derivation, op, dims) if incomplete else []
        if operands:
            broadcast = {tensor: _broadcast_dims(tensor, operands) for tensor in incomplete}
            dims.update(
                (tensor, broadcast_dims)
                for tensor, broadcast_dims in broadcast.items()
                if lacks_rank(tensor) or broadcast_dims != tensor.dims
            )
        elif incomplete:
            results = _try_ranks(derivation, op, dims, size_values)
            dims.update(
                (tensor, _mark_dynamic(tensor, results[tensor][0])) for tensor in incomplete if tensor in results
            )
            size_values.update((tensor, value) for tensor, (_, value) in results.items() if value is not None)
    return dims


def _lacks_dynamic_sizes(tensor: Tensor, op: Operator, dims: Mapping[Tensor, Dims]) -> bool:
    """True if a result has no dynamic size though an operand has one."""
    operands = (dims.get(t, t.dims) for t in op.inputs if t is not None)
    return tensor.is_static and bool(tensor.shape) and any(None in shape for shape in operands)


def _mark_dynamic(tensor: Tensor, derived: Dims) -> Dims:
    """Return the stored shape with the dynamic sizes of the derived shape."""
    if len(derived) != tensor.rank:
        return tensor.dims if tensor.has_rank else derived
    pairs = zip(derived, tensor.dims, strict=True)
    return tuple(None if size is None else stored_size for size, stored_size in pairs)


def _broadcast_dims(tensor: Tensor, operands: Sequence[Tensor]) -> Dims:
    """Return the broadcast shape; stored sizes that contradict it are kept."""
    dims, expected = broadcast_shape([t.dims for t in operands]), broadcast_shape([t.shape for t in operands])
    if len(dims) != tensor.rank:
        return tensor.dims if tensor.has_rank else dims
    return tuple(
        size if expected_size == stored_size else stored_size
        for size, expected_size, stored_size in zip(dims, expected, tensor.dims, strict=True)
    )


def _broadcast_operands(derivation: ShapeDerivation, op: Operator, dims: Mapping[Tensor, Dims]) -> list[Tensor]:
    """Return the resized operands that broadcast; empty if an operand has no rank."""
    operands = tuple(
        None if tensor is None else resize_tensor(tensor, dims.get(tensor, tensor.dims)) for tensor in op.inputs
    )
    try:
        bound = derivation.bind(replace(op, inputs=operands))
    except (ConversionError, Failed, Refusal):
        return []
    if (
        not bound.declared.aligned
        or not isinstance(bound.declared.layout, Transparent)
        or bound.handler.result_shape is not None
    ):
        return []
    aligned = [bound.op[slot] for slot in default_axes(bound) if slot >= 0]
    return aligned if all(tensor.has_rank for tensor in aligned) else []


def broadcast_shape(shapes: Sequence[Dims]) -> Dims:
    """Return the broadcast shape; an axis of only dynamic sizes and 1 is dynamic."""
    rank = max(map(len, shapes))
    axis_sizes = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(
        next((size for size in sizes if size not in (1, None)), None if None in sizes else 1) for sizes in axis_sizes
    )


def _try_ranks(
    derivation: ShapeDerivation, op: Operator, dims: Mapping[Tensor, Dims], size_values: Mapping[Tensor, Array]
) -> Results:
    """Return the results at the first rank that inference confirms; empty if none is."""
    has_ranks = all(tensor.has_rank for tensor in op.outputs if tensor is not None)
    for rank in (MAX_TRIED_RANK,) if has_ranks else candidate_ranks(op, dims):
        try:
            results = derivation.results(op, dims, size_values, rank)
        except (ConversionError, Failed, Refusal):
            continue
        if all(len(shape) == rank for tensor, (shape, _) in results.items() if not tensor.has_rank):
            return results
    return {}
