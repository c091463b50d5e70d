"""Float copies of dynamic-range weights, for LiteRT's float kernels."""

from __future__ import annotations

import numpy as np

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT


def test_uint8_weights_are_read_as_int8_without_zero_point() -> None:
    """LiteRT's hybrid kernels do so too (EvalHybrid, kernels/fully_connected.cc)."""
    model = ModelBuilder()
    g = model.main
    weights = np.array([[-127, 5, 0], [90, -3, 127]], np.int8)
    x, y = g.input("x", (1, 3)), g.tensor("y", (1, 2))
    w = g.constant("w", weights.view(np.uint8), quantization=quant(0.5, 7))
    g.operator("FULLY_CONNECTED", [x, w], [y])
    g.output(y)
    subgraph = structure.read(model.build()).subgraphs[0]
    data = SubmodelWriter(model.build(), subgraph).write(subgraph.operators, [0], [y], floats=True)
    rows = np.eye(3, dtype=np.float32)
    for row, column in zip(rows, weights.T, strict=True):
        np.testing.assert_allclose(LiteRT(data, "builtin").run([row[None]])[0][0], column * 0.5)
