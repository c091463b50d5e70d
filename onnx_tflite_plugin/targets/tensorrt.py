"""TensorRT's ONNX parser, by its documentation and importers (onnx-tensorrt 10.1).

The target has not been tested, because TensorRT needs a GPU. Integers occur only as network inputs and outputs, and between Q and DQ.
No operator computes on them.
"""

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.generic import GENERIC

_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"})
_UNQUANTIZED = "--quantization float converts without quantized dtypes"

TENSORRT = Target(
    name="tensorrt",
    opsets=(13, 19, 20),
    # Q and DQ are symmetric int8, which includes uint8 tensors with zero point 128.
    storage={"uint8": ("int8", -128)},
    weights={"uint8": ("int8", -128), "int4": ("int8", 0), "int2": ("int8", 0)},
    quantizes=frozenset({"int8"}),
    symmetric=True,
    float_biases=True,
    no_integer_kernel={**GENERIC.no_integer_kernel, "*": _INTEGERS},
    wider_dtypes={**GENERIC.wider_dtypes, "Pad": dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32")},
    cast_mul_weights=False,
    # TensorRT's convolutions have two or three spatial axes; the parser would reshape around 1D convolutions.
    keeps_unit_axes=frozenset({"float32", "int8"}),
    missing_operators={
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
