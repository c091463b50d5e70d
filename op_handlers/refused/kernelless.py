"""StableHLO operators in TFLite's schema without a kernel in LiteRT.

Kernels are registered in core/kernels/register.cc.
"""

from __future__ import annotations

from onnx_tflite_plugin.api import Decline, Operator, hookimpl

PREFIX = "STABLEHLO_"
KERNELLESS = frozenset({
    "ABS", "BROADCAST_IN_DIM", "CBRT", "CLAMP", "COMPARE", "CONCATENATE", "CONVERT", "CONVOLUTION", "COSINE",
    "CUSTOM_CALL", "DIVIDE", "DOT_GENERAL", "DYNAMIC_SLICE", "DYNAMIC_UPDATE_SLICE", "EXPONENTIAL", "FLOOR", "IOTA",
    "LOG", "LOGISTIC", "NEGATE", "OR", "POWER", "REDUCE", "REMAINDER", "RESHAPE", "RSQRT", "SELECT", "SLICE", "SORT",
    "SUBTRACT", "TANH", "TRANSPOSE", "WHILE",
})  # fmt: skip


@hookimpl
def claim(op: Operator) -> Decline | None:
    if not op.code.startswith(PREFIX) or op.code.removeprefix(PREFIX) not in KERNELLESS:
        return None
    return Decline(
        "LiteRT has no kernel for the operator and does not load the file: the exporter did not convert this StableHLO operator",
        "export the model with another operator in its place, or write an op pack: onnx-tflite new-pack",
    )
