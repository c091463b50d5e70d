"""Consistency of operand and result dtypes and scales with handler declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from onnx_tflite_plugin.api.activations import activation_bounds
from onnx_tflite_plugin.api.layouts import Transparent
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import declared_behavior, fused_activation
from onnx_tflite_plugin.codes import has_custom_name
from onnx_tflite_plugin.source.dtypes import FLOATS, HANDLES, INTEGER_RANGE, QUANTIZED
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.targets import Target


def find_invalid_dtypes(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield (field, reason) for each tensor with an unsupported dtype or scale.

    Fields are relative to the operator. ``target`` and ``opset`` are passed to declarations that are functions.
    """
    yield from _check_per_axis(bound, target, opset)
    yield from _check_zero_scales(bound, target, opset)
    yield from _check_result_dtype(bound, target, opset)
    yield from _check_activation_bounds(bound, target, opset)
    yield from _check_rare_dtypes(bound)


def _check_result_dtype(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield an error if the dtype of output 0 does not follow from the operands.

    Only float and quantized tensors are compared. With a wrong dtype, the converter would insert a QuantizeLinear or
    DequantizeLinear that LiteRT does not compute.
    """
    op, result, result_dtypes = bound.op, bound.op.tensor(~0), bound.handler.result_dtypes
    if has_custom_name(op.code) or bound.handler.subgraphs or result is None:
        return
    operands = _non_weight_operands(bound, target, opset)
    unscaled = _find_unscaled_operand(bound, result, operands, target, opset)
    if unscaled is not None:
        reason = f"tensor {unscaled} is {_describe_dtype(unscaled)}, but {op.code} computes with real values"
        yield f"inputs[{op.inputs.index(unscaled)}]", reason
        return
    operand = next(filter(_is_real_valued, operands), None)
    if operand is None:
        may_compute_reals = operands and _is_quantized(result) and not result_dtypes
        if may_compute_reals and _computes_real_values(bound, target, opset):
            reason = f"tensor {result} is {_describe_dtype(result)}, but no operand of {op.code} is float or quantized"
            yield "outputs[0]", reason
        return
    # The description of a result that lacks its scale is never an allowed dtype.
    result_dtype = result.dtype if _is_real_valued(result) else _describe_missing_scale(bound, result, target, opset)
    allowed = result_dtypes.get(operand.dtype, result_dtypes.get("*", (operand.dtype,)))
    if result_dtype and result_dtype not in allowed and "*" not in allowed:
        reason = (
            f"tensor {result} is {_describe_dtype(result)}, but {op.code} has an operand of {_describe_dtype(operand)}"
        )
        yield "outputs[0]", reason


def _find_unscaled_operand(
    bound: Bound, result: Tensor, operands: Sequence[Tensor], target: Target, opset: int
) -> Tensor | None:
    """Return the first integer operand that lacks a scale the kernel needs.

    If another operand has a scale, a kernel that does not rescale needs no further scale.
    """
    has_scaled_operand = any(map(_is_quantized, operands)) and not _rescales(bound, target, opset)
    needs_scale = bound.handler.result_dtypes or (_is_quantized(result) and not has_scaled_operand)
    unscaled = next((t for t in operands if t.dtype in QUANTIZED and not _is_quantized(t)), None)
    if needs_scale and unscaled is not None and _describe_missing_scale(bound, unscaled, target, opset):
        return unscaled
    return None


def _check_activation_bounds(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield an error if an integer result has no scale, but activation bounds need it."""
    result = bound.op.tensor(~0)
    if (
        result is None
        or result.dtype not in QUANTIZED
        or result.quantization is not None
        or not bound.handler.activation
    ):
        return
    name = fused_activation(bound, target, opset)
    behavior = declared_behavior(bound, target, opset)
    moves = behavior is not None and behavior.moves_values
    if moves and any(limit is not None for limit in activation_bounds(name) or ()):
        yield "outputs[0]", f"tensor {result} is {_describe_dtype(result)}, but the bounds of {name} need a scale"


def _check_rare_dtypes(bound: Bound) -> Iterator[tuple[str, str]]:
    """Yield an error for each undeclared output of complex or resource dtype."""
    op, handler = bound.op, bound.handler
    if has_custom_name(op.code) or handler.subgraphs or handler.effects is not None:
        return
    operand_dtypes = {t.dtype for t in op.inputs if t is not None}
    # An operator that computes float from complex must declare its dtypes.
    complex_part_dtypes = FLOATS if any(dtype.startswith("complex") for dtype in operand_dtypes) else ()
    declares_dtypes = bool(handler.result_dtypes or handler.types)
    for k, tensor in enumerate(op.outputs):
        if tensor is None or tensor.dtype in operand_dtypes:
            continue
        is_complex_or_part = tensor.dtype.startswith("complex") or tensor.dtype in complex_part_dtypes
        if tensor.dtype in HANDLES or (is_complex_or_part and not declares_dtypes):
            yield f"outputs[{k}]", f"tensor {tensor} is {tensor.dtype}, but {op.code} has no {tensor.dtype} operand"


def stale_dtypes(bound: Bound, target: Target, opset: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield (tensor, correct dtype) if output 0 is float, but operands are quantized.

    A tensor is given as (subgraph, index). Old converters stored such outputs as float with a scale. Kernels that take
    the result's dtype from the operand, such as ADD (add.cc), compute integers with this scale.
    """
    result = bound.op.tensor(~0)
    if result is None or result.ignored_quantization is None or result.ignored_quantization.per_axis:
        return
    if not 0 < result.ignored_quantization.scale[0] < math.inf:
        return
    if bound.handler.result_dtypes or bound.handler.subgraphs or has_custom_name(bound.op.code):
        return
    operand = next(filter(_is_real_valued, _non_weight_operands(bound, target, opset)), None)
    zero_point = result.ignored_quantization.zero_point[0]
    if operand is not None and _is_quantized(operand) and _is_in_range(operand.dtype, zero_point):
        yield (result.subgraph, result.index), operand.dtype


def _non_weight_operands(bound: Bound, target: Target, opset: int) -> list[Tensor]:
    """Return the operands that are not weights; constants come last."""
    behavior = declared_behavior(bound, target, opset) if any(map(_is_quantized, bound.op.inputs)) else None
    weights = () if behavior is None else behavior.weight_slots
    operands = [t for slot, t in enumerate(bound.op.inputs) if t is not None and slot not in weights]
    return sorted(operands, key=lambda tensor: tensor.is_constant)


def _check_per_axis(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield an error for each tensor with per-axis scales that is not a weight.

    Kernels read only one of the scales.
    """
    op = bound.op
    has_quantized_inputs, has_quantized_outputs = (any(map(_is_quantized, side)) for side in (op.inputs, op.outputs))
    if bound.handler.result_dtypes and has_quantized_inputs != has_quantized_outputs:
        return  # operands of QUANTIZE and DEQUANTIZE may have per-axis scales
    for k, tensor in enumerate(op.outputs):
        if tensor is None or not _is_per_axis(tensor):
            continue
        if any(operand is not None and operand.quantization == tensor.quantization for operand in op.inputs):
            behavior = declared_behavior(bound, target, opset)
            if behavior is not None and behavior.moves_values:
                continue
        scales = len(tensor.quantization.scale) if isinstance(tensor.quantization, Quantization) else 0
        yield f"outputs[{k}]", f"tensor {tensor} has {scales} scales, but a computed tensor must have one"
    # Constants with per-axis scales may be moved and split, but elementwise kernels read one scale.
    elementwise = isinstance(bound.handler.layout, Transparent) and not bound.handler.result_dtypes
    candidates = [t for t in op.inputs if t is not None and (elementwise or not t.is_constant) and _is_per_axis(t)]
    for tensor in _non_weight_operands(bound, target, opset) if candidates else ():
        if tensor in candidates:
            where = f"inputs[{op.inputs.index(tensor)}]"
            yield where, f"tensor {tensor} has per-axis scales, but is not a weight"


def _check_zero_scales(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield an error for each runtime tensor with a scale of 0 that the kernel needs."""
    op = bound.op
    sides = (("inputs", op.inputs), ("outputs", op.outputs))
    zero_scaled = [(f"{side}[{k}]", t) for side, tensors in sides for k, t in enumerate(tensors) if _has_zero_scale(t)]
    behavior = declared_behavior(bound, target, opset) if zero_scaled else None
    if behavior is not None and behavior.needs_scale:
        for where, tensor in zero_scaled:
            yield where, f"tensor {tensor} has a scale of 0, but {op.code} computes with the scale"


def _has_zero_scale(tensor: Tensor | None) -> bool:
    if tensor is None or tensor.is_constant or not _is_quantized(tensor):
        return False
    return isinstance(tensor.quantization, Quantization) and not any(tensor.quantization.scale)


def _is_in_range(dtype: str, number: int) -> bool:
    low, high = INTEGER_RANGE[dtype]
    return low <= number <= high


def _is_per_axis(tensor: Tensor) -> bool:
    return _is_quantized(tensor) and isinstance(tensor.quantization, Quantization) and tensor.quantization.per_axis


def _is_quantized(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype in QUANTIZED and tensor.quantization is not None


def _is_real_valued(tensor: Tensor) -> bool:
    """True for a float tensor, and for an integer tensor with a scale."""
    return tensor.dtype in FLOATS or _is_quantized(tensor)


def _describe_missing_scale(bound: Bound, tensor: Tensor, target: Target, opset: int) -> str:
    """Describe an integer tensor that lacks the scale that the kernel needs; else "".

    The kernel needs a scale if it computes on real values. A scale stored for a wider integer, such as int32, is ignored.
    """
    is_integer = "int" in tensor.dtype or tensor.dtype == "bool"
    may_lack_scale = tensor.dtype in QUANTIZED or (is_integer and not bound.handler.result_dtypes)
    if not may_lack_scale:
        return ""
    return _describe_dtype(tensor) if _computes_real_values(bound, target, opset) or bound.handler.activation else ""


def _computes_real_values(bound: Bound, target: Target, opset: int) -> bool:
    """True if the kernel computes on real values of quantized tensors."""
    behavior = declared_behavior(bound, target, opset)
    return behavior is not None and behavior.computes_real_values


def _rescales(bound: Bound, target: Target, opset: int) -> bool:
    """True if the kernel multiplies by the operands' scales.

    The kernel then reads a missing scale as 0.
    """
    behavior = declared_behavior(bound, target, opset)
    return behavior is not None and behavior.rescales


def _describe_dtype(tensor: Tensor) -> str:
    if _is_quantized(tensor):
        return f"quantized {tensor.dtype}"
    return f"{tensor.dtype} without a scale" if tensor.dtype in QUANTIZED else tensor.dtype
