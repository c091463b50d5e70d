"""OpenVINO's CPU plugin, measured with version 2026.4."""

from dataclasses import replace

from onnx_tflite_plugin.api.target import INTEGERS
from onnx_tflite_plugin.targets.generic import GENERIC

OPENVINO = replace(
    GENERIC,
    name="openvino",
    opsets=(13, 19, 23),
    fuses_cached_attention=False,
    # The int8 kernels prefer uint8 activations. With uint8, 21 of 24 int8 networks agree with LiteRT. With int8, only 17
    # agree, and networks take 1.2 times as long as with uint8.
    storage={"int8": ("uint8", 128)},
    # ONNX has int2 since opset 25.
    weights={"int2": ("int8", 0)},
    # OpenVINO keeps only 8 of 16 bits: an EfficientNet with int16 activations predicted a wrong class, without a warning.
    quantizes=INTEGERS - {"int16", "uint16"},
    # OpenVINO recognizes compressed weights by their DequantizeLinear.
    cast_mul_weights=False,
    passes=("fold_captures",),
)
