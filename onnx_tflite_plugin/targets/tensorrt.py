"""TensorRT's ONNX parser, as its documentation and importers have it (onnx-tensorrt 10.1); not run here: it wants a GPU.

Integers are network inputs and outputs, or stand between Q and DQ: no operator runs on them.
"""

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.generic import GENERIC

_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})
_UNQUANTIZED = "--quantization float needs none"

TENSORRT = Target(
    name="tensorrt",
    opsets=(13, 19, 20),
    # Q and DQ are symmetric int8; a uint8 tensor whose zero point is 128 is one.
    storage={"uint8": ("int8", -128)},
    weights={"uint8": ("int8", -128), "int4": ("int8", 0), "int2": ("int8", 0)},
    quantizes=frozenset({"int8"}),
    symmetric=True,
    float_biases=True,
    no_integer_kernel={**GENERIC.no_integer_kernel, "*": _INTEGERS},
    widens={**GENERIC.widens, "Pad": dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32")},
    multiplies_weights=False,
    # Its convolutions have two spatial axes or three; the parser would reshape around those of sequences.
    keeps_unit_axes=frozenset({"float32", "int8"}),
    lacks={
        **dict.fromkeys(
            ("ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"), _UNQUANTIZED
        ),
        **dict.fromkeys(("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "BitShift"), ""),
        **dict.fromkeys(
            ("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "Unique", "Compress", "Det"), ""
        ),
        **dict.fromkeys(("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"), ""),
        **dict.fromkeys(("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceLength"), ""),
    },
)
