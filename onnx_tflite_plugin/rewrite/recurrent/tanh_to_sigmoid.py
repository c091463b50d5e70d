"""ONNX Runtime has an 8-bit Sigmoid, a table of 256 results, but no 8-bit Tanh: it runs in float between
DequantizeLinear and QuantizeLinear. tanh(x) is 2 * sigmoid(2x) - 1: with the kernels' scales, 1/128 and 1/256, the
quantized values are equal except for their zero point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import Affine, only_user, producer
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_SCALE = 1 / 128  # of an 8-bit TANH, with a zero point of 0, or 128 in uint8 (Prepare, kernels/activations.cc)
_EIGHT_BITS = {"int8": (-128, 0), "uint8": (0, 128)}
"""The minimum and the middle value of each dtype."""
_ERROR = 2e-4
"""Error of a result in quantization steps: three times the maximum of Sigmoid and Tanh with AVX-512, AVX2 and SSE."""


class Match(NamedTuple):
    """A quantized Tanh: its operand with its quantization parameters, and the result's parameters."""

    stored: ir.Value
    quantize: ir.Node
    given: Affine
    result: Affine


def check(node: ir.Node) -> Match:
    """Return the match, if Sigmoid and Tanh round all 256 results to the same integers."""
    dequantize = require_match(producer(node.inputs[0], "DequantizeLinear"))
    quantize = require_match(only_user(node.outputs[0], "QuantizeLinear"), "the result is not quantized")
    given, result = require_match(Affine.of(dequantize)), require_match(Affine.of(quantize))
    stored, point = require_match(dequantize.inputs[0]), result.zero_point
    dtype = "" if stored.dtype is None else stored.dtype.name.lower()
    least, _ = require_match(_EIGHT_BITS.get(dtype), "the operand does not have 8 bits")
    _, middle = require_match(_EIGHT_BITS.get(point.dtype.name), "the result does not have 8 bits")
    require(given.per_tensor and result.per_tensor, "a scale is per axis")
    require(result.scale.item() == _SCALE and point.item() == middle, "the scale of the result is not 1/128")
    require(_is_same(given, least), "a result is so close to a half that Sigmoid might round it otherwise")
    return Match(stored, quantize, given, result)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit Sigmoid of the data with twice the scale."""
    stored, quantize, given, result = match
    point = result.zero_point
    with editor.replacing(require_match(producer(quantize.inputs[0], "Tanh"))):
        value = editor.emit("DequantizeLinear", stored, given.scale * given.scale.dtype.type(2), given.zero_point)
        value = editor.emit("Sigmoid", value)
        halved, least = result.scale / result.scale.dtype.type(2), np.full_like(point, point.item() - 128)
        value = editor.emit("QuantizeLinear", value, halved, least, like=quantize)
    editor.replace_value(quantize.outputs[0], value)


tanh_to_sigmoid = RewriteRule(nodes("Tanh"), check, rewrite)


def _is_same(given: Affine, least: int) -> bool:
    """True if all 256 results are so far from halves that either function rounds them to the same integer."""
    integers: Array = np.arange(least, least + 256)
    x = ((integers - given.zero_point.item()) * given.scale.item()).clip(-100, 100)
    results = 256 / (1 + np.exp(-2 * x))
    below = results[results < 255.5 - _ERROR]  # all others are saturated
    return bool((np.abs(below - np.floor(below) - 0.5) > _ERROR).all())
