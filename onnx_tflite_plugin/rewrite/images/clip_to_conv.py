"""Insert a depthwise convolution with weights of 1 before a Clip, Max or Min.

ONNX Runtime computes convolutions, and sums and activations between them, in a blocked layout. It does not support Clip, Max and
Min in this layout, and converts the tensor to the plain layout and back. The rule emits a Clip right after the new convolution. ONNX
Runtime fuses both, so the tensor stays in the blocked layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import DIVISOR, constant, only_user, producer, sizes
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match
from onnx_tflite_plugin.source.model import Array

_FUSED_WITH_CONV = ("HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
_BLOCKED_OPERATORS = frozenset({"Add", "AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "Resize"})
"""Operators after the Clip, Max or Min that support the blocked layout."""


class Match(NamedTuple):
    """A Clip, Max or Min of an image.

    ``bounds``: minimum and maximum, as operands of Clip.
    """

    clip: ir.Node
    image: ir.Value
    channels: int
    bounds: Sequence[ir.Value | Array | None]


def check(clip: ir.Node) -> Match:
    """Return the match if a node clips a float image in the blocked layout.

    The nodes before and after it must support the layout, and the bounds must be constant.
    """
    image, bounds = require_match(clip.inputs[0]), _bounds(clip)
    require(only_user(image, clip.op_type), "the image before the bounds has other users")
    shape = require_match(sizes(clip.outputs[0]), "the rank of the image is unknown")
    require(len(shape) == 4 and shape[2:] != [1, 1], "the tensor is not an image, or is a single pixel")
    channels = shape[1]
    require(channels and channels % DIVISOR == 0, f"the number of channels is not a multiple of {DIVISOR}")
    _require_blocks_before(image, shape)
    users = {use.node.op_type for use in clip.outputs[0].uses()}
    require(clip.outputs[0].dtype == ir.DataType.FLOAT and "QuantizeLinear" not in users, "the result is quantized")
    require(users & _BLOCKED_OPERATORS, "no operator in the blocked layout reads the result")
    return Match(clip, image, channels or 0, bounds)


def rewrite(editor: Editor, match: Match) -> None:
    """Emit the depthwise convolution and a Clip after it."""
    clip, image, channels, bounds = match
    with editor.replacing(clip):
        value = editor.emit(
            "Conv", image, np.ones((channels, 1, 1, 1), np.float32), kernel_shape=[1, 1], group=channels
        )
        value = editor.emit("Clip", value, *bounds)
    editor.replace_value(clip.outputs[0], value)


clip_to_conv = RewriteRule(nodes("Clip", "Max", "Min"), check, rewrite)


def _bounds(clip: ir.Node) -> Sequence[ir.Value | Array | None]:
    """Return minimum and maximum of a Clip, Max or Min, as operands of Clip.

    Raises Refusal if a bound is not constant, or if the bound of a Max or Min is not a scalar.
    """
    bounds = list(clip.inputs[1:])
    if clip.op_type == "Clip":
        require(all(value is None or constant(value) is not None for value in bounds), "a bound is not constant")
        return bounds
    constant_bound = require_match(constant(bounds[0]) if len(bounds) == 1 else None)
    require(constant_bound.size == 1, "the bound is not a scalar")
    bound = np.asarray(constant_bound.reshape(()))
    return [bound] if clip.op_type == "Max" else [None, bound]


def _require_blocks_before(image: ir.Value, shape: list[int | None]) -> None:
    """Raise Refusal unless an image is in the blocked layout.

    The image must be the activation of a convolution, or a sum with a convolution's result.
    """
    require(image.dtype in (None, ir.DataType.FLOAT), "the image is not float")
    if activation := producer(image, *_FUSED_WITH_CONV):
        require(producer(activation.inputs[0], "Conv"), "the operand of the activation is not a convolution")
        return
    add = require_match(producer(image, "Add"))
    are_images = all(sizes(value) in (shape, None) and constant(value) is None for value in add.inputs)
    require(are_images, "an operand of the sum is constant or broadcast")
    require(any(producer(value, "Conv") for value in add.inputs), "no operand of the sum is a convolution")
