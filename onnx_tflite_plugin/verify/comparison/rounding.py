"""Rounding of LiteRT's operators, and results that are undefined in C++."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.criteria import GROUP_MEAN, STEPPED, Tolerance
from onnx_tflite_plugin.verify.runtimes.dequantized import is_quantized
from onnx_tflite_plugin.verify.runtimes.structure import is_dynamic_range, operands

_SMALLEST_NORMAL = 2.0**-126  # of float32
_UNDEFINED_FACTOR = 2.0**31  # from this rescaling factor on, the kernel's shift of a 32-bit integer is undefined
_UNDEFINED_SUM_FACTOR = 2.0**19  # the same limit for an operand of a sum


def weight_scale(operator: Operator, block_scales: Mapping[int, float]) -> float:
    """Return the largest weight scale of a dynamic-range operator; 0 for others.

    ``block_scales``: index of a blockwise quantized tensor -> its largest scale.
    """
    if not is_dynamic_range(operator):
        return 0.0
    scale_vectors = [
        t.quantization.scale
        for t in operator.inputs
        if t is not None and t.is_constant and is_quantized(t) and isinstance(t.quantization, Quantization)
    ]
    largest_block_scales = [block_scales.get(t.index, 0.0) for t in operator.inputs if t is not None]
    return max((*largest_block_scales, *map(max, scale_vectors)), default=0.0)


def undecided_reason(operators: Sequence[Operator], comparison: Comparison) -> str:
    """Return the reason why a submodel that matches no reference may be correct.

    Return an empty text if the submodel is wrong.
    """
    if any(_has_undefined_shift(op) for op in operators):
        return "LiteRT's rescaling factor exceeds the kernel's shift, so its result is undefined in C++"
    if any(_is_finer_than_float32(op) for op in operators):
        return "one step of the int16 result is smaller than the rounding error of float32 sums"
    roundings = sum(map(is_requantizing, operators))
    is_small = (
        comparison.unit == "step" and comparison.max_error <= 2 * roundings and comparison.mean_error <= GROUP_MEAN
    )
    if roundings > 1 and is_small:
        return f"{roundings} operators round, and the ONNX model does not hold the tensors between them"
    return ""


def is_requantizing(operator: Operator) -> bool:
    """True if the operator rounds: no operand has a result's scale and zero point."""
    scales = {_parameters(t) for t in operator.inputs if t is not None and not t.is_constant}
    return any(t is not None and is_quantized(t) and _parameters(t) not in scales for t in operator.outputs)


def _parameters(tensor: Tensor) -> tuple[object, ...]:
    """Return scale and zero point; empty for a tensor that is not quantized."""
    quantization = tensor.quantization
    return (quantization.scale, quantization.zero_point) if isinstance(quantization, Quantization) else ()


def _has_undefined_shift(operator: Operator) -> bool:
    """True if a rescaling factor exceeds the kernel's shift.

    The limit is 2^31 (MultiplyByQuantizedMultiplier, internal/common.cc). A quantized attention mask of -1e36 exceeds it.
    For an operand of a sum or difference, the limit is 2^19 (MultiplyByQuantizedMultiplierSmallerThanOneExp,
    internal/optimized/integer_ops/sub.h). A difference that was zero on the calibration data exceeds it.
    """
    operand_scales, result_scales = (
        [t.quantization.scale[0] for t in tensors if t is not None and isinstance(t.quantization, Quantization)]
        for tensors in (operator.inputs, operator.outputs)
    )
    overflows = (
        np.prod(operand_scales) >= _UNDEFINED_FACTOR * scale or max(operand_scales) >= _UNDEFINED_SUM_FACTOR * scale
        for scale in result_scales
    )
    return bool(operand_scales) and any(overflows)


def _is_finer_than_float32(operator: Operator) -> bool:
    """True if the result's step is at most the product of two int16 operands' steps."""
    operands = [t for t in operator.inputs if t is not None and t.dtype == "int16" and is_quantized(t)]
    results = [t for t in operator.outputs if t is not None and is_quantized(t)]
    steps = [t.quantization.scale[0] for t in operands if isinstance(t.quantization, Quantization)]
    return len(steps) > 1 and any(
        float(np.prod(steps)) >= t.quantization.scale[0] for t in results if isinstance(t.quantization, Quantization)
    )


def inherited_step(
    tensor: Tensor, producers: Mapping[int, Operator], tolerance: Tolerance, exact_tensors: Collection[int] = ()
) -> float:
    """Return the step of the quantized tensor upstream of a tensor; 0 if none.

    The error of a dequantized result cannot be smaller than one step. The search goes upstream through operators with a
    single computed operand. It ends at tensors that both runtimes read as inputs
    (``exact_tensors``, by index).
    """
    visited = set()
    while tensor.index not in visited:
        visited.add(tensor.index)
        quantization = tensor.quantization
        if isinstance(quantization, Quantization) and tensor.dtype in STEPPED:
            return max(quantization.scale) * tolerance.of_dtype(tensor.dtype)
        sources = list(operands(producers[tensor.index])) if tensor.index in producers else []
        if len(sources) != 1 or not tensor.dtype.startswith("float") or sources[0].index in exact_tensors:
            return 0.0
        tensor = sources[0]
    return 0.0


def measure_summation(operand: Array, result: Array) -> float:
    """Return the rounding error of a float32 sum or mean that is added term by term.

    LiteRT's reductions add term by term, so the mean of a large image with many equal values is wrong by 1e-4. Return 0 if
    the result is not a reduction of the operand.
    """
    axes = _reduced_axes(operand.shape, result.shape)
    if not axes or operand.dtype != np.float32 or result.dtype != np.float32 or not operand.size:
        return 0.0
    remaining_axes = [axis for axis in range(operand.ndim) if axis not in axes]
    terms = np.transpose(operand, (*axes, *remaining_axes)).reshape(prod(operand.shape[axis] for axis in axes), -1)
    exact_sum, float_sum = terms.sum(0, np.float64), np.zeros(terms.shape[1], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for row in terms:
            float_sum += row
        error = float(np.abs(float_sum - exact_sum).max()) / max(float(np.abs(exact_sum).max()), _SMALLEST_NORMAL)
        largest = float(np.abs(result).max())
    return error * largest if np.isfinite((error, largest)).all() else 0.0


def _reduced_axes(shape: Sequence[int], result_shape: Sequence[int]) -> list[int]:
    """Return the axes of an operand that a result lacks, or has with size 1.

    Return an empty list if the result is not a reduction of the operand.
    """
    if len(shape) == len(result_shape):
        is_reduction = all(size in (old_size, 1) for old_size, size in zip(shape, result_shape, strict=True))
        return [axis for axis, size in enumerate(result_shape) if size != shape[axis]] if is_reduction else []
    unmatched_sizes = [*result_shape]
    axes = []
    for axis, size in enumerate(shape):
        if unmatched_sizes and unmatched_sizes[0] == size:
            unmatched_sizes.pop(0)
        else:
            axes.append(axis)
    return [] if unmatched_sizes else axes
