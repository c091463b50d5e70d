"""Rules for image networks.

They replace operators with convolutions, and change the layout of images so that kernels take their fast paths.
"""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import ZEN_4, Gain, Needed, RuleDeclaration

_QUANTIZED_CONV_OPERATORS = frozenset({"Conv", "QuantizeLinear"})

RULES = (
    RuleDeclaration(
        __name__,
        "conv_transpose_to_conv",
        "a quantized transposed convolution becomes a convolution that computes several output positions at once",
        Gain(2, 13.4, 16.8, 10.1),
        frozenset({"ConvTranspose", "QuantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "batch_norm_to_conv",
        "a quantized scale and offset per channel become one depthwise convolution, which rounds once",
        Gain(4, 10.5, 28.8, -0.8),
        frozenset({"Add", "Mul", "QuantizeLinear"}),
        exact=False,
        module="scale_offset_to_conv",
    ),
    RuleDeclaration(
        __name__,
        "scale_offset_to_conv",
        "a float scale and offset per channel become one depthwise convolution",
        Gain(8, 17.4, 34.8, 0.4),
        frozenset({"Add", "Mul"}),
    ),
    RuleDeclaration(
        __name__,
        "average_pool_to_conv",
        "a quantized average becomes a depthwise convolution or, with padding, a matrix multiplication",
        Gain(4, 7.4, 20.2, -3.7),
        frozenset({"AveragePool", "QuantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "clip_to_conv",
        "a Clip, Max or Min of a sum or an activation is fused with a depthwise convolution with weights of 1",
        Gain(5, 8.3, 16.0, 2.7),
        frozenset({"Conv"}),
        after=("pad_channels",),
    ),
    RuleDeclaration(
        __name__,
        "squeeze_excite_blocks",
        "a computed scale per channel is repeated over the image that it multiplies",
        Gain(6, 6.3, 17.1, 0.5),
        frozenset({"Conv", "Mul"}),
        after=("pad_channels",),
    ),
    RuleDeclaration(
        __name__,
        "image_channels_to_width",
        "the first convolution reads the image with its channels folded into the width, which saves the Transpose",
        Gain(73, 2.3, 10.5, -2.8),
        frozenset({"Conv", "Transpose"}),
        # squeeze_excite_blocks derives batch sizes from the graph inputs. The Reshape of this rule would hide them.
        after=("squeeze_excite_blocks",),
    ),
    RuleDeclaration(
        __name__,
        "fold_width",
        "adjacent columns of the image are folded into channels of the first convolution, for speed",
        Gain(35, 10.4, 30.4, -0.1),
        _QUANTIZED_CONV_OPERATORS,
        after=("symmetric_weights", "pad_channels", "reorder_channels"),
    ),
    RuleDeclaration(
        __name__,
        "fold_depthwise",
        "columns are folded into channels, so that a dense convolution replaces a depthwise convolution of few channels",
        Gain(2, 17.3, 17.6, 17.0),
        _QUANTIZED_CONV_OPERATORS,
        after=("symmetric_weights", "pad_channels", "reorder_channels", "fold_width"),
    ),
    RuleDeclaration(
        __name__,
        "widen_quantized_constants",
        "a quantized constant per channel is repeated for several pixels at a time",
        Gain(3, 21.8, 36.5, 14.9),
        frozenset({"DequantizeLinear", "QuantizeLinear"}),
        # fold_width and fold_depthwise look for a Transpose before the convolution. A Reshape of this rule would hide it.
        after=("fold_width", "fold_depthwise"),
        module="widen_constants",
    ),
    RuleDeclaration(
        __name__,
        "widen_constants",
        "a float constant per channel is repeated for the pixels of a row",
        Gain(9, 10.8, 24.7, 1.2),
        after=("batch_norm_to_conv", "scale_offset_to_conv"),
    ),
    RuleDeclaration(
        __name__,
        "lookup_channels_last",
        "lookups between 8-bit convolutions run channels last, as the convolutions do in ONNX Runtime",
        Gain(1, 14.2, 14.2, 14.2, ZEN_4),
        frozenset({"Conv", "GatherElements"}),
        after=("fold_width", "fold_depthwise"),
    ),
    RuleDeclaration(
        __name__,
        "reshape_before_if",
        "a Reshape separates convolutions from the inner graphs that read them",
        Needed("ONNX Runtime before 1.23 crashes when it loads the model"),
    ),
)
