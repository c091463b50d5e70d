"""Options and quantization parameters whose effect is undefined."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.source.dtypes import QUANTIZED

BIAS_LIMIT = 2**47
"""Largest 64-bit sum before rescaling (MultiplyByQuantizedMultiplier, internal/common.cc)."""


def find_invalid_parameters(bound: Bound) -> Iterator[tuple[str, str]]:
    """Yield (field of the operator, reason) for each value that no kernel supports."""
    yield from _check_options(bound)
    yield from _check_biases(bound)


def _check_options(bound: Bound) -> Iterator[tuple[str, str]]:
    """Yield an error for each option that is NaN, or infinite in a quantized operator."""
    quantized = any(t is not None and t.dtype in QUANTIZED and t.quantization is not None for t in bound.op.inputs)
    for name, value in bound.op.options.items():
        if isinstance(value, float) and (math.isnan(value) or (quantized and math.isinf(value))):
            yield f"{bound.op.options.table}.{name}", f"the value is {value}"


def _check_biases(bound: Bound) -> Iterator[tuple[str, str]]:
    """Yield an error for each int64 bias that is too large for the kernels' sum."""
    for slot, tensor in enumerate(bound.op.inputs):
        if tensor is None or not tensor.is_constant or tensor.dtype != "int64" or tensor.quantization is None:
            continue
        largest = int(np.abs(tensor.array.astype(np.float64)).max(initial=0))
        if largest > BIAS_LIMIT:
            yield f"inputs[{slot}]", f"tensor {tensor} holds {largest}, but sums must be below 2^47"
