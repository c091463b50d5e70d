"""Split a convolution of one output channel in two: depthwise, then 1 x 1.

The 1 x 1 convolution sums the channels of the depthwise result. Kernels compute output channels in blocks of 8 (AVX2) or 16
(AVX-512), so that one output channel takes as long as a full block. The two new convolutions together take a quarter of that time.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.rewrite.channels.padding import MIN_MULTIPLICATIONS, Convolution
from onnx_tflite_plugin.rewrite.editor import Editor
from onnx_tflite_plugin.rewrite.matching import BLOCK, producer
from onnx_tflite_plugin.rewrite.rule import RewriteRule, nodes, require, require_match


def check(node: ir.Node) -> Convolution:
    """Return the convolution if it is large, float, 2-D, and has one output channel."""
    convolution = require_match(Convolution.of(node), "the weights or the bias are not constant")
    image, (out_channels, channels, *kernel) = node.inputs[0], convolution.shape
    require(out_channels == 1)
    require(image is not None and image.dtype == ir.DataType.FLOAT, "the image is not float")
    require(producer(image, "DequantizeLinear") is None, "the convolution is quantized")
    require(len(kernel) == 2, "the convolution is not 2-D")
    require(channels % (BLOCK // 2) == 0, f"the number of input channels is not a multiple of {BLOCK // 2}")
    require(math.prod(kernel) > 1, "the kernel is 1 x 1")
    require(
        convolution.multiplications() >= MIN_MULTIPLICATIONS,
        f"the convolution has fewer than {MIN_MULTIPLICATIONS} multiplications, so a split saves too little time",
    )
    return convolution


def rewrite(editor: Editor, convolution: Convolution) -> None:
    """Emit the depthwise convolution, and the convolution that sums its channels."""
    node, (_, channels, *kernel) = convolution.node, convolution.shape
    image, weights, *bias = node.inputs
    with editor.replacing(node):
        depthwise_weights = editor.emit("Reshape", weights, [channels, 1, *kernel])
        value = editor.emit("Conv", image, depthwise_weights, like=node, group=channels)
        ones = np.ones((1, channels, *[1] * len(kernel)), np.float32)
        value = editor.emit("Conv", value, ones, *bias)
    editor.replace_value(node.outputs[0], value)


split_single_feature_conv = RewriteRule(nodes("Conv"), check, rewrite)
