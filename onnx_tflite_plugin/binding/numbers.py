"""Numbers in a file that no kernel computes with: what it makes of them is undefined, so they are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.source.dtypes import QUANTIZED

BIAS_LIMIT = 2**47
"""What a 64 bit sum may reach before it is rescaled (MultiplyByQuantizedMultiplier, internal/common.cc)."""


def odd_numbers(bound: Bound) -> Iterator[tuple[str, str]]:
    """The field of each number that no kernel computes with, relative to the operator, and why."""
    yield from _options(bound)
    yield from _biases(bound)


def _options(bound: Bound) -> Iterator[tuple[str, str]]:
    """Options that are not numbers, or are infinite where what they scale or bound are integers."""
    quantized = any(t is not None and t.dtype in QUANTIZED and t.quantization is not None for t in bound.op.inputs)
    for name, value in bound.op.options.items():
        if isinstance(value, float) and (math.isnan(value) or (quantized and math.isinf(value))):
            yield f"{bound.op.options.table}.{name}", f"it is {value}"


def _biases(bound: Bound) -> Iterator[tuple[str, str]]:
    for slot, tensor in enumerate(bound.op.inputs):
        if tensor is None or not tensor.constant or tensor.dtype != "int64" or tensor.quantization is None:
            continue
        largest = int(np.abs(tensor.array.astype(np.float64)).max(initial=0))
        if largest > BIAS_LIMIT:
            yield f"inputs[{slot}]", f"tensor {tensor} holds {largest}, and sums are below 2 to the 47th"
