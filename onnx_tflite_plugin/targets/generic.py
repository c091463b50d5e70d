"""Target for any runtime that follows the ONNX standard.

Tensors keep the file's dtypes, and all operators are in the domain ai.onnx.
"""

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.widening import WIDER

_SUB_BYTE = frozenset({"int4", "uint4", "int2"})
_INT16 = _SUB_BYTE | {"int16", "uint16"}

GENERIC = Target(
    name="generic",
    opsets=(11, 19, 26),
    no_int8_moves_opset=21,
    # ONNX Runtime 1.31 moves int8 Q and DQ across these operators and changes them to uint8. The moved Q keeps int8 as
    # its output dtype, so the model does not load.
    no_int8_moves=frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}),
    # ONNX Runtime before 1.29: a probability of 1 became -128.
    wrapping_int8_operators=frozenset({"Softmax"}),
    # OpenCV 5 and the reference evaluator have no int8 MaxPool; IREE's uint8 MaxPool is wrong; ONNX Runtime has int8 Where
    # since 1.25.
    dequantized_operators=frozenset({"MaxPool", "Where"}),
    wider_dtypes=WIDER,
    quantizes_weights=True,  # as ONNX Runtime does
    fuses_cached_attention=True,
    no_integer_kernel={
        **dict.fromkeys(("Pad", "Max", "Min", "Clip", "Relu", "MaxPool", "ReduceMax", "ReduceMin", "Resize"), _INT16),
        **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _INT16 | {"int32", "int64"}),
        **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Split", "Slice", "Gather", "Tile", "Expand"), _SUB_BYTE),
    },
)
