"""Test that reports name the processor and state if the result depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from tests.helpers.passes_networks import Network, build_model, image


@pytest.mark.skipif(multiplies_exactly(), reason="this processor adds uint8 x int8 products exactly")
def test_distinguishes_saturation_from_a_wrong_conversion() -> None:
    def build(net: Network) -> Any:
        x = net.input(image(1, 11, 13, 3))
        for name, features in (("a", 17), ("b", 34), ("c", 23), ("d", 31)):
            x = net.conv(x, features, name=name)
        return x

    data = build_model(build)
    verification = verify(data, convert(data, weights_dtype="int8").proto)
    assert not verification.ok
    assert "with session.x64quantprecision=1 the outputs agree" in verification.text
    assert "--weights-dtype auto or uint8" in verification.text
    assert "saturates sums" in verification.processor


def test_integer_products_are_described_only_for_models_with_them() -> None:
    def build(dtype: str) -> bytes:
        return build_model(lambda net: net.conv(net.input(image(1, 5, 7, 3, dtype=dtype)), 11))

    for dtype in ("int8", "float32"):
        verification = verify(build(dtype), convert(build(dtype)).proto)
        assert ("uint8 x int8 products" in verification.processor) is (dtype == "int8")


def test_reports_dependence_on_the_processor() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (5, 7), "int8", quantization=quant(0.01, 0))
    w = g.constant("w", np.full((3, 7), 127, np.int8), quantization=quant(0.01, 0))
    g.output(y := g.tensor("y", (5, 3), "int8", quantization=quant(0.1, 0)))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    data = model.build()
    assert "are exact only on processors" in verify(data, convert(data, weights_dtype="int8").proto).text
    assert "are exact only on processors" not in verify(data, convert(data).proto).text
