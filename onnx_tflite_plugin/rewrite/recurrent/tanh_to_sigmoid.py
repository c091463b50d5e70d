"""Compute a quantized Tanh as a Sigmoid.

ONNX Runtime has an 8-bit kernel for Sigmoid, which reads results from a table of 256 entries, but none for Tanh. It computes Tanh in float
between DequantizeLinear and QuantizeLinear. tanh(x) equals 2 * sigmoid(2x) - 1. LiteRT's result scales are 1/128 for TANH and 1/256
for LOGISTIC, so the quantized results differ only in their zero point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import Affine, only_user, producer
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_TANH_SCALE = 1 / 128  # result scale of LiteRT's 8-bit TANH; zero point 0, or 128 for uint8 (kernels/activations.cc)
_EIGHT_BITS = {"int8": (-128, 0), "uint8": (0, 128)}
"""The lowest and the middle value of each 8-bit dtype."""
_MAX_ERROR = 2e-4
"""Tolerance in quantization steps: three times the maximum error of Sigmoid and Tanh with AVX-512, AVX2 and SSE."""


class Match(NamedTuple):
    """A Tanh of the tensor ``quantized``, with the parameters of operand and result."""

    quantized: ir.Value
    quantize: ir.Node
    operand: Affine
    result: Affine


def check(tanh: ir.Node) -> Match:
    """Return the match if Sigmoid and Tanh round all 256 results to the same integers."""
    dequantize = require_match(producer(tanh.inputs[0], "DequantizeLinear"))
    quantize = require_match(only_user(tanh.outputs[0], "QuantizeLinear"), "the result is not quantized")
    operand, result = require_match(Affine.of(dequantize)), require_match(Affine.of(quantize))
    quantized, zero_point = require_match(dequantize.inputs[0]), result.zero_point
    dtype = "" if quantized.dtype is None else quantized.dtype.name.lower()
    minimum, _ = require_match(_EIGHT_BITS.get(dtype), "the operand does not have 8 bits")
    _, middle = require_match(_EIGHT_BITS.get(zero_point.dtype.name), "the result does not have 8 bits")
    require(operand.per_tensor and result.per_tensor, "the scale of the operand or result is per-axis")
    require(result.scale.item() == _TANH_SCALE and zero_point.item() == middle, "the scale of the result is not 1/128")
    require(
        _rounds_equally(operand, minimum),
        "a result is so close to halfway between two integers that Sigmoid may round it differently",
    )
    return Match(quantized, quantize, operand, result)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit a Sigmoid of the tensor, dequantized with twice the scale."""
    quantized, quantize, operand, result = match
    zero_point = result.zero_point
    with editor.replacing(require_match(producer(quantize.inputs[0], "Tanh"))):
        double_scale = operand.scale * operand.scale.dtype.type(2)
        value = editor.emit("DequantizeLinear", quantized, double_scale, operand.zero_point)
        value = editor.emit("Sigmoid", value)
        half_scale = result.scale / result.scale.dtype.type(2)
        lower_zero_point = np.full_like(zero_point, zero_point.item() - 128)
        value = editor.emit("QuantizeLinear", value, half_scale, lower_zero_point, like=quantize)
    editor.replace_value(quantize.outputs[0], value)


tanh_to_sigmoid = RewriteRule(nodes("Tanh"), check, rewrite)


def _rounds_equally(operand: Affine, minimum: int) -> bool:
    """True if Sigmoid and Tanh round all 256 results to the same integers.

    This is the case if no result is close to halfway between two integers.
    """
    integers: Array = np.arange(minimum, minimum + 256)
    x = ((integers - operand.zero_point.item()) * operand.scale.item()).clip(-100, 100)
    results = 256 / (1 + np.exp(-2 * x))
    unsaturated = results[results < 255.5 - _MAX_ERROR]
    return bool((np.abs(unsaturated - np.floor(unsaturated) - 0.5) > _MAX_ERROR).all())
