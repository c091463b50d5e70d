"""Target for accelerators whose operators are all between DQ and Q.

Examples are QNN, NNAPI and CoreML. If one operator computes on integers, such as a Transpose, the whole graph runs on
the CPU (measured with the HTP emulator of onnxruntime-qnn 2.7).
"""

from dataclasses import replace

from onnx_tflite_plugin.api.target import INTEGERS
from onnx_tflite_plugin.targets.generic import GENERIC

_ACCELERATED = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "Asin", "Atan", "AveragePool", "BatchNormalization", "Cast", "Ceil",
    "Clip", "Concat", "Constant", "Conv", "ConvTranspose", "Cos", "CumSum", "DepthToSpace", "DequantizeLinear",
    "Div", "Einsum", "Elu", "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND",
    "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "HardSigmoid",
    "HardSwish", "Identity", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less",
    "LessOrEqual", "Log", "LogSoftmax", "LpNormalization", "MatMul", "Max", "MaxPool", "Mean", "Min", "Mod", "Mul",
    "Neg", "Not", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "RMSNormalization", "RandomUniformLike",
    "Reciprocal", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape",
    "Resize", "Round", "STFT", "ScatterElements", "ScatterND", "Sigmoid", "Sign", "Sin", "Slice", "Softmax",
    "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "ThresholdedRelu", "Tile", "TopK",
    "Transpose", "Unsqueeze", "Upsample", "Where",
})  # fmt: skip
"""Operators in the registry of ONNX Runtime's QNN provider (op_builder_factory.cc), and operators that its optimizer removes."""
_SUB_BYTE = frozenset({"int4", "uint4", "int2", "uint2"})

QNN = replace(
    GENERIC,
    name="qnn",
    opsets=(13, 19, 23),
    fuses_cached_attention=False,
    defaults={"unroll": 32},
    # Activations are unsigned; weights stay int8, and weights of 2 and 4 bits are widened.
    storage={"int8": ("uint8", 128)},
    weights={"int4": ("int8", 0), "int2": ("int8", 0)},
    quantizes=INTEGERS - _SUB_BYTE,
    no_integer_kernel={**GENERIC.no_integer_kernel, "*": INTEGERS},
    wider_dtypes={**GENERIC.wider_dtypes, "Pad": dict.fromkeys(("int8", "uint8", "int16", "uint16"), "int32")},
    cast_mul_weights=False,
    quantizes_moves=True,
    needs_static_shapes=True,
    accelerated_operators=_ACCELERATED,
    # Convolutions of the accelerator have two spatial axes.
    keeps_unit_axes=frozenset({"float32", "uint8", "int16"}),
    missing_operators={
        **dict.fromkeys(
            ("If", "Loop", "Scan"),
            "accelerators take no inner graphs; --unroll N unrolls loops of at most N iterations",
        ),
        **dict.fromkeys(
            ("ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
            "use QuantizeLinear and DequantizeLinear",
        ),
    },
)
