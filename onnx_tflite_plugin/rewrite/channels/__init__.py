"""Rules that change number, order or zero points of channels for faster kernels."""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import Gain, RuleDeclaration

RULES = (
    RuleDeclaration(
        __name__,
        "pad_to_conv",
        "zeros are appended to the channels of a residual connection by a 1 x 1 convolution",
        Gain(13, 16.0, 32.1, 0.0),
        frozenset({"Add", "Conv", "Pad"}),
    ),
    RuleDeclaration(
        __name__,
        "split_single_feature_conv",
        "a convolution of one output channel becomes a depthwise and a 1 x 1 convolution",
        Gain(4, 8.7, 18.3, 1.8),
        frozenset({"Conv"}),
    ),
    RuleDeclaration(
        __name__,
        "symmetric_weights",
        "uint8 weights become int8 with a zero point of 0; input channels whose weights exceed int8 are duplicated",
        Gain(7, 11.0, 16.0, 0.5),
        frozenset({"Conv", "QuantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "pad_channels",
        "channels are added, with weights of zero, where ONNX Runtime has no fast kernel for their number",
        Gain(67, 6.6, 222.0, -3.2),
        frozenset({"Conv"}),
        after=("pad_to_conv", "split_single_feature_conv", "symmetric_weights"),
    ),
    RuleDeclaration(
        __name__,
        "reorder_channels",
        "channels are reordered so that sums of neighboring int8 products overflow on no processor",
        # The gain is on AVX2, where weights are int8 instead of uint8. On an Intel Xeon with AVX-512 and VNNI disabled,
        # a MobileNet v2 gains 10 %; a MobileNet v1 and a person detector gain 2 to 5 %.
        Gain(16, 0.4, 7.5, -1.4),
        frozenset({"Conv", "QuantizeLinear"}),
        after=("pad_channels", "symmetric_weights"),
    ),
)
