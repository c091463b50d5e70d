"""Consistency of operand and result dtypes and scales with handler declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator

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
    op = bound.op
    if has_custom_name(op.code) or bound.handler.subgraphs or not op.outputs or op.outputs[0] is None:
        return
    # An integer result without the scale that it needs gets a description, which equals no allowed dtype.
    result_dtype = _float_or_quantized_dtype(op.outputs[0]) or _describe_missing_scale(
        bound, op.outputs[0], target, opset
    )
    operands = _non_weight_operands(bound, target, opset)
    has_scaled_operand = any(map(_is_quantized, operands)) and not _rescales(bound, target, opset)
    needs_operand_scale = bound.handler.result_dtypes or (_is_quantized(op.outputs[0]) and not has_scaled_operand)
    unscaled = next((t for t in operands if not _float_or_quantized_dtype(t) and t.dtype in QUANTIZED), None)
    if needs_operand_scale and unscaled is not None and _describe_missing_scale(bound, unscaled, target, opset):
        yield (
            f"inputs[{op.inputs.index(unscaled)}]",
            f"tensor {unscaled} is {_describe_dtype(unscaled)}, but {op.code} computes with real values",
        )
        return
    first = next((t for t in operands if _float_or_quantized_dtype(t)), None)
    if first is None and operands and _is_quantized(op.outputs[0]) and not bound.handler.result_dtypes:
        if _computes_real_values(bound, target, opset):
            reason = f"tensor {op.outputs[0]} is {_describe_dtype(op.outputs[0])}, but no operand of {op.code} is float or quantized"
            yield "outputs[0]", reason
        return
    if first is None or not result_dtype:
        return
    operand_dtype, result_dtypes = _float_or_quantized_dtype(first), bound.handler.result_dtypes
    allowed = result_dtypes.get(operand_dtype, result_dtypes.get("*", (operand_dtype,)))
    if result_dtype not in allowed and "*" not in allowed:
        reason = f"tensor {op.outputs[0]} is {_describe_dtype(op.outputs[0])}, but {op.code} has an operand of {_describe_dtype(first)}"
        yield "outputs[0]", reason


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
    for k, tensor in enumerate(op.outputs):
        is_declared = bool(handler.result_dtypes or handler.types)
        is_undeclared_complex = (
            tensor is not None
            and (tensor.dtype.startswith("complex") or tensor.dtype in complex_part_dtypes)
            and not is_declared
        )
        is_rare = is_undeclared_complex or (tensor is not None and tensor.dtype in HANDLES)
        if tensor is not None and is_rare and tensor.dtype not in operand_dtypes:
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
    first = next((t for t in _non_weight_operands(bound, target, opset) if _float_or_quantized_dtype(t)), None)
    if (
        first is not None
        and _is_quantized(first)
        and _is_in_range(first.dtype, result.ignored_quantization.zero_point[0])
    ):
        yield (result.subgraph, result.index), first.dtype


def _non_weight_operands(bound: Bound, target: Target, opset: int) -> list[Tensor]:
    """Return the operands that are not weights; constants come last."""
    behavior = declared_behavior(bound, target, opset) if any(map(_is_quantized, bound.op.inputs)) else None
    weights = () if behavior is None else behavior.weight_slots
    operands = [t for slot, t in enumerate(bound.op.inputs) if t is not None and slot not in weights]
    return sorted(operands, key=lambda tensor: tensor.is_constant)


def _check_per_axis(bound: Bound, target: Target, opset: int) -> Iterator[tuple[str, str]]:
    """Yield an error for each tensor with per-axis scales that is not a weight.

    For such tensors, kernels read only one scale.
    """
    op = bound.op
    quantized_sides = any(map(_is_quantized, op.inputs)), any(map(_is_quantized, op.outputs))
    if bound.handler.result_dtypes and quantized_sides[0] != quantized_sides[1]:
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


def _float_or_quantized_dtype(tensor: Tensor) -> str:
    """Return the dtype of a float or quantized tensor; otherwise ""."""
    return tensor.dtype if tensor.dtype in FLOATS or _is_quantized(tensor) else ""


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

    It reads a missing scale as 0.
    """
    behavior = declared_behavior(bound, target, opset)
    return behavior is not None and behavior.rescales


def _describe_dtype(tensor: Tensor) -> str:
    if _is_quantized(tensor):
        return f"quantized {tensor.dtype}"
    return f"{tensor.dtype} without a scale" if tensor.dtype in QUANTIZED else tensor.dtype
