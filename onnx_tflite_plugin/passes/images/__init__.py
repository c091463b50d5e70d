"""Rewrites of what is done to images: convolutions in place of other operators, and the layout that convolutions share."""

from __future__ import annotations

from onnx_tflite_plugin.passes.declared import Pass

PASSES = (
    Pass(
        __name__,
        "transposed_as_convolution",
        "a quantized transposed convolution becomes a convolution that makes several positions at once",
        exact=True,
        needs=frozenset({"ConvTranspose", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "batch_norm_as_convolution",
        "a quantized scale and offset per channel become one depthwise convolution, which rounds once",
        exact=False,
        needs=frozenset({"Add", "Mul", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "affine_as_convolution",
        "a float scale and offset per channel become one depthwise convolution",
        exact=True,
        needs=frozenset({"Add", "Mul"}),
    ),
    Pass(
        __name__,
        "average_as_product",
        "an average of integers becomes a convolution by channel or, where windows reach over the border, a product",
        exact=True,
        needs=frozenset({"AveragePool", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "clip_in_blocks",
        "a bound of a sum or an activation becomes part of a convolution by channel, whose weights are 1",
        exact=True,
        needs=frozenset({"Conv"}),
    ),
    Pass(
        __name__,
        "gate_in_blocks",
        "a factor per channel that the network computes is repeated over the image that it multiplies",
        exact=True,
        needs=frozenset({"Conv", "Mul"}),
    ),
    Pass(
        __name__,
        "channels_as_columns",
        "channels of an image become columns for its first convolution, which spares the Transpose",
        exact=True,
        needs=frozenset({"Conv", "Transpose"}),
    ),
    Pass(
        __name__,
        "fold_width",
        "columns of an image with few channels become channels of its first convolution",
        exact=True,
        needs=frozenset({"Conv", "QuantizeLinear"}),
        takes_weights_dtype=True,
    ),
    Pass(
        __name__,
        "fold_depthwise",
        "columns of a few channels become channels of a dense convolution, where each had its own",
        exact=True,
        needs=frozenset({"Conv", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "wide_constants",
        "a constant of a few channels is repeated for several pixels at a time",
        exact=True,
        needs=frozenset({"DequantizeLinear", "QuantizeLinear"}),
    ),
    Pass(
        __name__,
        "constants_of_rows",
        "a constant of a few channels is repeated for the pixels of a row",
        exact=True,
    ),
)
