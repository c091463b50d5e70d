"""Rules for the weights of convolutions and matrix multiplications.

The pass ``assign_dtypes`` assigns weight dtypes that give exact sums on every processor.
"""

from __future__ import annotations

from onnx_tflite_plugin.rewrite.declaration import XEON, Gain, Needed, RuleDeclaration

RULES = (
    RuleDeclaration(
        __name__,
        "zero_subnormals",
        "subnormal weights, which LiteRT treats as zeros, are stored as zeros",
        # The only affected benchmark network has two such weights. With 1 % of such weights, a convolution of 256 channels takes
        # 199 ms instead of 6.8 ms on an Intel Xeon, which multiplies subnormal numbers in microcode.
        Gain(1, 0.9, 0.9, 0.9, XEON),
    ),
    RuleDeclaration(
        __name__,
        "tie_tables",
        "a 4-bit table that is also the weights of a MatMul is stored once",
        Needed("without the rule, the table of a language model (a fifth of the file) is stored twice"),
        frozenset({"BitShift", "DequantizeLinear"}),
    ),
    RuleDeclaration(
        __name__,
        "block_products",
        "multiplications by 4-bit weights in blocks become MatMulNBits with packed weights",
        Needed(
            "without the rule, ONNX Runtime packs the weights of a language model itself, which doubles the load time"
        ),
        frozenset({"GroupQueryAttention", "DequantizeLinear"}),
        after=("tie_tables",),
    ),
    RuleDeclaration(
        __name__,
        "keep_float_weights",
        "before a Conv or MatMul with float weights, activations are dequantized by DequantizeLinear and Mul",
        Needed("since 1.21, ONNX Runtime quantizes float weights between quantized operators, which changes results"),
    ),
)
