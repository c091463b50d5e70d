"""The weights of products: the dtype in which sums are exact on every processor, and numbers that are slow."""

from __future__ import annotations

from onnx_tflite_plugin.passes.declared import Pass

PASSES = (
    Pass(
        __name__,
        "subnormal_weights",
        "subnormal weights, which LiteRT takes for zeros, are stored as zeros",
        exact=True,
    ),
)
