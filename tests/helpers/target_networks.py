"""Small quantized networks whose nodes depend on the target."""

from __future__ import annotations

import numpy as np
import onnx

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant


def network(dtype: str, zero_point: int, *, weight_zero_point: int = 0, consumer: str = "") -> bytes:
    """Return a fully quantized convolution with a bias.

    ``consumer``: the operator that reads the result; "" for none.
    """
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 3), dtype, quantization=quant(0.05, zero_point))
    weight_dtype = "uint8" if dtype == "uint8" else "int8"
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 120, (11, 3, 3, 3)).astype(weight_dtype)
    w = g.constant("w", weights, quantization=quant(0.02, weight_zero_point))
    bias = np.arange(11, dtype=np.int64 if dtype == "int16" else np.int32)
    b = g.constant("b", bias, quantization=quant(0.001, 0))
    y = g.tensor("y", (1, 5, 7, 11), dtype, quantization=quant(0.4, zero_point))
    g.operator("CONV_2D", [x, w, b], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    g.output(add_consumer(g, y, dtype, zero_point, consumer))
    return model.build()


def add_consumer(g: GraphBuilder, y: TensorRef, dtype: str, zero_point: int, code: str) -> TensorRef:
    """Add the operator ``code`` of ``y`` and ``y``, if any; return the last result."""
    if not code:
        return y
    z = g.tensor("z", (1, 5, 7, 11), "bool" if code == "EQUAL" else dtype, quantization=quant(0.4, zero_point))
    g.operator(code, [y, y], [z])
    return z


def nodes(conversion: otp.Conversion) -> list[onnx.NodeProto]:
    """Return the nodes of the main graph."""
    return list(conversion.proto.graph.node)
