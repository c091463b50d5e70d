"""Target for most other runtimes.

Models are float32 at an old opset, with weights as constants and without branches and short loops. Measured with tract
0.23, OpenCV 4.14 and 5.0, onnx2torch, OpenVINO 2026.4 and the reference evaluator of the package onnx.
"""

from dataclasses import replace

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.targets.generic import GENERIC

PORTABLE = replace(
    GENERIC,
    name="portable",
    opsets=(11, 13, 26),
    fuses_cached_attention=False,
    defaults={"quantization": "float", "weights": "fold", "unroll": 32},
    missing_operators={
        "If": "many runtimes have no branches; use --target generic, or --outputs to leave the operator out"
    },
    passes=("fold_captures",),
    quantizes_weights=False,
    # OpenCV, onnx2torch and TVM resize the last two axes regardless of the sizes.
    last_axes_only=frozenset({"Resize"}),
    prices={"Resize": Price(inner=1e6), "Resize/dequantized": Price(inner=1e6)},
)
