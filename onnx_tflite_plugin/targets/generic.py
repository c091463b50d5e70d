"""Any runtime that follows the standard: the model's own dtypes, plain ai.onnx."""

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.targets.widening import WIDER

_SUB_BYTE = frozenset({"int4", "uint4", "int2"})
_INT16 = _SUB_BYTE | {"int16", "uint16"}

GENERIC = Target(
    name="generic",
    opsets=(13, 19, 26),
    no_int8_from=21,
    # ONNX Runtime 1.31 carries Q and DQ across these, writes the dtype on the Q it puts in, and then makes it uint8.
    no_int8_moves=frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}),
    # ONNX Runtime before 1.29: a share of 1 became -128.
    wraps_int8=frozenset({"Softmax"}),
    widens=WIDER,
    quantizes_weights=True,  # ONNX Runtime does
    no_integer_kernel={
        **dict.fromkeys(
            ("Pad", "Where", "Max", "Min", "Clip", "Relu", "MaxPool", "ReduceMax", "ReduceMin", "Resize"), _INT16
        ),
        **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _INT16 | {"int32", "int64"}),
        **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Split", "Slice", "Gather", "Tile", "Expand"), _SUB_BYTE),
    },
)
