"""Replace a Pad of channels in a residual connection with a 1 x 1 convolution.

ONNX Runtime computes convolutions and sums of their results in a blocked layout. A Pad is not supported in this layout, so
the image is converted before the Pad and after it. A convolution with an identity matrix as weights appends the zeros in
the blocked layout, and is fused with the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import DIVISOR, constant, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match

_MAX_CHANNELS = 128  # heuristic: for more channels the convolution costs more than two layout conversions


class Match(NamedTuple):
    """A Pad that adds ``before`` and ``after`` channels of zeros to ``channels``."""

    pad: ir.Node
    channels: int
    before: int
    after: int


def check(pad: ir.Node) -> Match:
    """Return the Pad if it appends channels to a float image before a residual sum."""
    before, after = _channel_padding(pad)
    add = require_match(only_user(pad.outputs[0], "Add"))
    shape = require_match(sizes(pad.inputs[0]), "the rank of the image is unknown")
    channels = require_match(shape[1], "the number of channels is unknown")
    require(channels and channels % DIVISOR == 0, f"the number of channels is not a multiple of {DIVISOR}")
    require(
        channels <= _MAX_CHANNELS,
        f"a convolution of more than {_MAX_CHANNELS} channels costs more than two layout conversions",
    )
    require(any(producer(value, "Conv") for value in add.inputs), "no operand of the sum is a convolution")
    return Match(pad, channels, before, after)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit a convolution by an identity matrix with rows of zeros."""
    pad, channels, before, after = match
    weights = np.zeros((before + channels + after, channels, 1, 1), np.float32)
    weights[before : before + channels, :, 0, 0] = np.eye(channels)
    with editor.replacing(pad):
        value = editor.emit("Conv", pad.inputs[0], weights, kernel_shape=[1, 1])
    editor.replace_value(pad.outputs[0], value)


pad_to_conv = RewriteRule(nodes("Pad"), check, rewrite)


def _channel_padding(pad: ir.Node) -> tuple[int, int]:
    """Return the numbers of zeros that a Pad adds before and after the channels.

    Raises Refusal if anything else is padded.
    """
    image = require_match(pad.inputs[0])
    pads = require_match(constant(pad.inputs[1]), "the pads are not constant")
    value = constant(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] is not None else np.zeros(())
    mode = pad.attributes.get("mode")
    require(image.dtype == ir.DataType.FLOAT, "the image is not float")
    require(pads.shape == (8,) and len(pad.inputs) <= 3, "the tensor is not an image with pads for all four axes")
    require(value is not None and not value.any(), "the padding value is not zero")
    require(mode is None or mode.as_string() == "constant", "the padding mode is not constant")
    require(not np.delete(pads, (1, 5)).any(), "height, width or batch are padded")
    before, after = int(pads[1]), int(pads[5])
    require(min(before, after) >= 0 and before + after > 0, "channels are cut off")
    return before, after
