"""TVM's Relax, through its ONNX front end, measured with version 0.27."""

from dataclasses import replace

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.target import INTEGERS
from onnx_tflite_plugin.targets.generic import GENERIC

_SUB_BYTE = frozenset({"int4", "uint4", "int2", "uint2"})

TVM = replace(
    GENERIC,
    name="tvm",
    opsets=(13, 19, 23),
    fuses_cached_attention=False,
    quantizes=INTEGERS - _SUB_BYTE,
    weights={"int4": ("int8", 0), "int2": ("int8", 0)},
    # TVM resizes the last two axes regardless of the scales, and returns a result of the wrong shape.
    last_axes_only=frozenset({"Resize"}),
    prices={"Resize": Price(inner=1e6), "Resize/dequantized": Price(inner=1e6)},
    missing_operators={
        **dict.fromkeys(("Loop", "Scan"), "TVM's front end has no loops; --unroll N unrolls those of constant length"),
        **dict.fromkeys(("LSTM", "GRU", "RNN", "ReverseSequence", "LpNormalization", "DFT", "STFT"), ""),
        **dict.fromkeys(("ConvInteger", "QLinearConv", "QLinearMatMul"), "use QuantizeLinear and DequantizeLinear"),
    },
)
