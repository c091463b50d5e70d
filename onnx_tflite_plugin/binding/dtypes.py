"""Dtypes and scales of operands and results, held against what the handler declares of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.declarations import Transparent
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import behaviour, fused_activation
from onnx_tflite_plugin.codes import named_by_the_file
from onnx_tflite_plugin.source.dtypes import FLOATS, HANDLES, INTEGER_RANGE, QUANTIZED
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.targets import Target


def odd_dtypes(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """The field of each operand or result whose dtype or scale its kernel does not have, relative to the operator, and why.

    ``opset``: as declared functions are told.
    """
    yield from _per_axis(bound, target, opset)
    yield from _scales_of_zero(bound, target, opset)
    yield from _results(bound, target, opset)
    yield from _bounds(bound, target, opset)
    yield from _rare(bound)


def _results(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Result 0 where it is of another dtype than the operands, both being float or quantized.

    Otherwise a QuantizeLinear or DequantizeLinear would be put in that the kernels know nothing of.
    """
    op = bound.op
    if named_by_the_file(op.code) or bound.handler.subgraphs or not op.outputs or op.outputs[0] is None:
        return
    result = _kind(op.outputs[0]) or _unscaled(bound, op.outputs[0], target, opset)
    activations = _activations(bound, target, opset)
    scaled = any(map(_quantized, activations)) and not _rescales(bound, target, opset)
    computes = bound.handler.converts or (_quantized(op.outputs[0]) and not scaled)
    bare = next((t for t in activations if not _kind(t) and t.dtype in QUANTIZED), None) if computes else None
    if bare is not None and _unscaled(bound, bare, target, opset):
        yield f"inputs[{op.inputs.index(bare)}]", f"tensor {bare} is {_told(bare)}, and {op.code} computes with it"
        return
    first = next((t for t in activations if _kind(t)), None)
    if first is None and activations and _quantized(op.outputs[0]) and not bound.handler.converts:
        if _computes(bound, target, opset):
            reason = (
                f"tensor {op.outputs[0]} is {_told(op.outputs[0])}, and no operand of {op.code} is float or quantized"
            )
            yield "outputs[0]", reason
        return
    if first is None or not result:
        return
    converts = bound.handler.converts
    given = converts.get(_kind(first), converts.get("*", (_kind(first),)))
    if result not in given and "*" not in given:
        reason = f"tensor {op.outputs[0]} is {_told(op.outputs[0])}, where {op.code} has an operand of {_told(first)}"
        yield "outputs[0]", reason


def _bounds(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Integers that pass through, bounded by an activation, without the scale that kernels divide its bounds by."""
    result = bound.op.tensor(~0)
    if (
        result is None
        or result.dtype not in QUANTIZED
        or result.quantization is not None
        or not bound.handler.activation
    ):
        return
    name = fused_activation(bound, target, opset)
    declared = behaviour(bound, target, opset)
    moves = declared is not None and declared.moves_values
    if moves and any(limit is not None for limit in activation_bounds(name) or ()):
        yield "outputs[0]", f"tensor {result} is {_told(result)}, and {name} has its bounds in steps of one"


def _rare(bound: Bound) -> Iterator[tuple[str, str]]:
    """Results of a dtype that only a few operators make, and say so: complex numbers, and resources."""
    op, handler = bound.op, bound.handler
    if named_by_the_file(op.code) or handler.subgraphs or handler.effects is not None:
        return
    given = {t.dtype for t in op.inputs if t is not None}
    parts = FLOATS if any(dtype.startswith("complex") for dtype in given) else ()  # which only who says so takes
    for k, tensor in enumerate(op.outputs):
        known = bool(handler.converts or handler.types)
        complex_ = tensor is not None and (tensor.dtype.startswith("complex") or tensor.dtype in parts) and not known
        odd = complex_ or (tensor is not None and tensor.dtype in HANDLES)
        if tensor is not None and odd and tensor.dtype not in given:
            yield f"outputs[{k}]", f"tensor {tensor} is {tensor.dtype}, which no operand of {op.code} is"


def stale_dtypes(bound: Bound, target: Target, opset: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Result 0 where the file says float of what has a scale and is computed from integers, as old converters wrote it.

    Kernels that take their result's dtype from the operand, as ADD's does (add.cc), compute integers of that scale.
    """
    result = bound.op.tensor(~0)
    if result is None or result.disregarded is None or result.disregarded.per_axis:
        return
    if not 0 < result.disregarded.scale[0] < math.inf:
        return
    if bound.handler.converts or bound.handler.subgraphs or named_by_the_file(bound.op.code):
        return
    first = next((t for t in _activations(bound, target, opset) if _kind(t)), None)
    if first is not None and _quantized(first) and _holds(first.dtype, result.disregarded.zero_point[0]):
        yield (result.subgraph, result.index), first.dtype


def _activations(bound: Bound, target: Target, opset: int) -> list[Tensor]:
    """The operands but for weights; those that are constants come last."""
    declared = behaviour(bound, target, opset) if any(map(_quantized, bound.op.inputs)) else None
    weights = () if declared is None else declared.weight_slots
    activations = [t for slot, t in enumerate(bound.op.inputs) if t is not None and slot not in weights]
    return sorted(activations, key=lambda tensor: tensor.constant)


def _per_axis(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Results with a scale for each coordinate, which only weights may have: kernels read one scale of all others."""
    op = bound.op
    sides = any(map(_quantized, op.inputs)), any(map(_quantized, op.outputs))
    if bound.handler.converts and sides[0] != sides[1]:  # what is quantized or dequantized may have a scale for each
        return
    for k, tensor in enumerate(op.outputs):
        if tensor is None or not _scaled_by_axis(tensor):
            continue
        if any(other is not None and other.quantization == tensor.quantization for other in op.inputs):
            declared = behaviour(bound, target, opset)
            if declared is not None and declared.moves_values:
                continue
        scales = len(tensor.quantization.scale) if isinstance(tensor.quantization, Quantization) else 0
        yield f"outputs[{k}]", f"tensor {tensor} has {scales} scales, and what is computed has one"
    # Constants with a scale for each are moved and taken apart, but what works on each element reads one scale of them.
    elementwise = isinstance(bound.handler.layout, Transparent) and not bound.handler.converts
    doubtful = [t for t in op.inputs if t is not None and (elementwise or not t.constant) and _scaled_by_axis(t)]
    for tensor in _activations(bound, target, opset) if doubtful else ():
        if tensor in doubtful:
            where = f"inputs[{op.inputs.index(tensor)}]"
            yield where, f"tensor {tensor} has a scale for each coordinate, and is no weight"


def _scales_of_zero(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Activations with a scale of 0, which stands for none, where the kernel computes with it."""
    op = bound.op
    sides = (("inputs", op.inputs), ("outputs", op.outputs))
    empty = [(f"{side}[{k}]", t) for side, tensors in sides for k, t in enumerate(tensors) if _scale_is_zero(t)]
    declared = behaviour(bound, target, opset) if empty else None
    if declared is not None and declared.needs_scale:
        for where, tensor in empty:
            yield where, f"tensor {tensor} has a scale of 0, and {op.code} computes with it"


def _scale_is_zero(tensor: Tensor | None) -> bool:
    if tensor is None or tensor.constant or not _quantized(tensor):
        return False
    return isinstance(tensor.quantization, Quantization) and not any(tensor.quantization.scale)


def _holds(dtype: str, number: int) -> bool:
    low, high = INTEGER_RANGE[dtype]
    return low <= number <= high


def _scaled_by_axis(tensor: Tensor) -> bool:
    return _quantized(tensor) and isinstance(tensor.quantization, Quantization) and tensor.quantization.per_axis


def _quantized(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype in QUANTIZED and tensor.quantization is not None


def _kind(tensor: Tensor) -> str:
    """The dtype of what is float or quantized, else nothing."""
    return tensor.dtype if tensor.dtype in FLOATS or _quantized(tensor) else ""


def _unscaled(bound: Bound, tensor: Tensor, target: Target, opset: int) -> str:
    """What an integer result without parameters is called where the kernel computes in float32, else nothing.

    One of more bits than any that is quantized has none, whatever the file says.
    """
    whole = "int" in tensor.dtype or tensor.dtype == "bool"
    integer = tensor.dtype in QUANTIZED or (whole and not bound.handler.converts)
    if not integer:
        return ""
    return _told(tensor) if _computes(bound, target, opset) or bound.handler.activation else ""


def _computes(bound: Bound, target: Target, opset: int) -> bool:
    """Whether the kernel computes with what integers stand for."""
    declared = behaviour(bound, target, opset)
    return declared is not None and declared.computes_real_values


def _rescales(bound: Bound, target: Target, opset: int) -> bool:
    """Whether the kernel multiplies by the scale of each operand, which is 0 of one that has none."""
    declared = behaviour(bound, target, opset)
    return declared is not None and declared.rescales


def _told(tensor: Tensor) -> str:
    if _quantized(tensor):
        return f"quantized {tensor.dtype}"
    return f"{tensor.dtype} without a scale" if tensor.dtype in QUANTIZED else tensor.dtype
