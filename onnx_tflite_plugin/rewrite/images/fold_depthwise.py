"""Integer kernels of depthwise convolutions work on 16 channels at a time and cost most per position: 30 ns for 8 channels, 21 ns for
16 with VNNI and 25 ns without. Adjacent columns of an image become channels of a dense convolution (see
``fold_width``); most of its weights are 0; no two neighbors belong to one output channel, so that no processor
overflows. The sums are the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import Convolution
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.images.fold_width import Folding, Image, Match, Window, emit_folded, image_of
from onnx_tflite_plugin.rewrite.matching import BLOCK, CHANNELS_LAST, QuantizedConv, nodes_of, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, RewriteRule, require, require_match
from onnx_tflite_plugin.rewrite.weights.products import LEAST

_MOST_CHANNELS = 8
_POSITIONS = 500  # above which folding saves more than the Reshapes take


def pattern(model: ir.Model, _: RewriteOptions) -> Iterable[QuantizedConv]:
    """Yield the quantized convolutions."""
    return [unit for node in nodes_of(model.graph, "Conv") if (unit := QuantizedConv.of(node))]


def check(unit: QuantizedConv) -> Match:
    """Return the match with dense weights; its image has no value if the data must be transposed."""
    dense = _dense(unit)
    shape = require_match(sizes(unit.data.inputs[0]), "the rank of the image is unknown")
    last = [shape[0], *shape[2:], shape[1]]
    window = require_match(Window.of(dense, last), "the convolution is dilated, or a size dynamic")
    folding = _folding(window)
    image = image_of(unit.data)
    if image is None:
        require(_is_convolution_result(unit.data), "the image is not stored channels last")
        image = Image(None, last, None, [unit.data])
    return Match(dense, window, folding, image)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the folded dense convolution."""
    unit = match.unit
    if match.image.value is None:
        with editor.replacing(unit.conv):
            last = editor.emit("Transpose", unit.data.inputs[0], perm=CHANNELS_LAST)
        match = match._replace(image=match.image._replace(value=last))
    with editor.replacing(unit.conv):
        value = emit_folded(editor, match)
    editor.replace_value(unit.quantize.outputs[0], value)


fold_depthwise = RewriteRule(pattern, check, rewrite)


def _dense(unit: QuantizedConv) -> QuantizedConv:
    """Return the unit with weights [c, 1, y, x] as [c, c, y, x]. Raises Refusal unless they are symmetric int8 of few channels."""
    convolution, stored = require_match(Convolution.of(unit.conv)), require_match(unit.weights.integers)
    require(convolution.depthwise)
    require(convolution.features <= _MOST_CHANNELS, f"there are more than {_MOST_CHANNELS} channels")
    symmetric = stored.dtype == np.int8 and convolution.symmetric and not (stored == LEAST).any()
    require(symmetric, "the weights are not symmetric int8")
    own = np.eye(len(stored), dtype=np.int8).reshape(len(stored), len(stored), *[1] * (stored.ndim - 2))
    return unit._replace(weights=unit.weights._replace(integers=own * stored))


def _folding(window: Window) -> Folding:
    """Return the folding to as many channels as kernels work on. Raises Refusal if columns do not divide, or are few."""
    rows, across, channels = window.result
    require(window.strides == (1, 1), "the stride is not 1")
    require(rows * across >= _POSITIONS, f"fewer than {_POSITIONS} positions gain nothing")
    columns = 1 << ((BLOCK - 1) // channels).bit_length()
    return require_match(Folding.of(window, columns), f"{columns} columns do not divide the image")


def _is_convolution_result(data: ir.Node) -> bool:
    """True if a convolution computes the dequantized data: it works channels last in any case."""
    quantize = producer(data.inputs[0], "QuantizeLinear")
    return quantize is not None and producer(quantize.inputs[0], "Conv") is not None
