"""Kernels make features in blocks (of 8 with AVX2, of 16 with AVX-512): a convolution that has one takes as long as for a block
of them. Made channel by channel, and then added up by a convolution of 1 x 1, it takes a quarter.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.passes.channels.flow import LITTLE, Convolution
from onnx_tflite_plugin.passes.graph import BLOCK, Editor, producer, rewrite_nodes


def run(model: ir.Model) -> int:
    """Split float convolutions that have one feature; returns how many."""
    return rewrite_nodes(model, "Conv", _replace)


def _replace(editor: Editor, node: ir.Node) -> bool:
    convolution = Convolution.of(node)
    if convolution is None or not _gains(convolution):
        return False
    _, channels, *kernel = convolution.shape
    image, weights, *bias = node.inputs
    with editor.replacing(node):
        by_channel = editor.emit("Reshape", weights, [channels, 1, *kernel])
        value = editor.emit("Conv", image, by_channel, like=node, group=channels)
        ones = np.ones((1, channels, *[1] * len(kernel)), np.float32)
        value = editor.emit("Conv", value, ones, *bias)
    editor.replace_value(node.outputs[0], value)
    return True


def _gains(convolution: Convolution) -> bool:
    """Whether it is one of images, in whole blocks, that adds up more than one tap of a channel."""
    image, (features, channels, *kernel) = convolution.node.inputs[0], convolution.shape
    if image is None or image.dtype != ir.DataType.FLOAT or producer(image, "DequantizeLinear") is not None:
        return False
    blocks = features == 1 and len(kernel) == 2 and channels % (BLOCK // 2) == 0
    return blocks and math.prod(kernel) > 1 and convolution.multiplications() >= LITTLE
