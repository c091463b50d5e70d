"""Of 8 bits, ONNX Runtime has a kernel for Sigmoid, a table of 256 results, and none for Tanh, which is dequantized and quantized
around. tanh(x) is 2 · sigmoid(2x) - 1: with the scales that the kernels of both have, 1/128 and 1/256, the integers are the same
but for their zero point.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.graph import Affine, Editor, only_user, producer, rewrite_nodes
from onnx_tflite_plugin.source.model import Array

_SCALE = 1 / 128  # of a TANH of 8 bits, around a zero point of 0, or 128 in uint8 (Prepare, kernels/activations.cc)
_EIGHT_BITS: dict[ir.DataType, np.dtype[np.int8] | np.dtype[np.uint8]] = {
    ir.DataType.INT8: np.dtype(np.int8),
    ir.DataType.UINT8: np.dtype(np.uint8),
}
_ERROR = 2e-4
"""Of a result, in quantization steps: three times what Sigmoid and Tanh are off at most, with AVX-512, AVX2 and SSE."""


def run(model: ir.Model) -> int:
    """Compute quantized Tanh as Sigmoid; returns how many."""
    return rewrite_nodes(model, "Tanh", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    dequantize, quantize = producer(node.inputs[0], "DequantizeLinear"), only_user(node.outputs[0], "QuantizeLinear")
    given, result = Affine.of(dequantize), Affine.of(quantize)
    if dequantize is None or quantize is None or given is None or result is None:
        return False
    stored, point = dequantize.inputs[0], result.zero_point
    dtype = None if stored is None or stored.dtype is None else _EIGHT_BITS.get(stored.dtype)
    if dtype is None or point.dtype not in _EIGHT_BITS.values() or not (given.per_tensor and result.per_tensor):
        return False
    middle = 0 if point.dtype == np.int8 else 128
    if result.scale.item() != _SCALE or point.item() != middle or not _same(given, dtype):
        return False
    with editor.replacing(node):
        value = editor.emit("DequantizeLinear", stored, given.scale * given.scale.dtype.type(2), given.zero_point)
        value = editor.emit("Sigmoid", value)
        halved, least = result.scale / result.scale.dtype.type(2), np.full_like(point, point.item() - 128)
        value = editor.emit("QuantizeLinear", value, halved, least, like=quantize)
    editor.replace_value(quantize.outputs[0], value)
    return True


def _same(given: Affine, dtype: np.dtype[np.int8] | np.dtype[np.uint8]) -> bool:
    """Whether all 256 results are so far from halves that either function rounds them to the same integer."""
    integers: Array = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    x = ((integers - given.zero_point.item()) * given.scale.item()).clip(-100, 100)
    results = 256 / (1 + np.exp(-2 * x))
    below = results[results < 255.5 - _ERROR]  # all others are saturated
    return bool((np.abs(below - np.floor(below) - 0.5) > _ERROR).all())
