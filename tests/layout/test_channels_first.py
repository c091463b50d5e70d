"""``--channels-first`` transposes image inputs and outputs only."""

from __future__ import annotations

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime


def network() -> bytes:
    """Return a model with image, sequence and vector as inputs or outputs."""
    model = ModelBuilder()
    g = model.main
    image, vector = g.input("image", (2, 5, 7, 3)), g.input("vector", (11, 13))
    weights = g.constant("w", np.random.default_rng(0).normal(size=(11, 3, 3, 3)).astype(np.float32))
    wide, rows, other = (
        g.tensor(name, shape) for name, shape in (("wide", (2, 5, 7, 11)), ("rows", (2, 35, 11)), ("other", (11, 13)))
    )
    bias = g.constant("b", np.arange(11, dtype=np.float32))
    g.operator("CONV_2D", [image, weights, bias], [wide], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    g.operator("RESHAPE", [wide, g.constant("shape", np.array([2, 35, 11], np.int32))], [rows])
    g.operator("ABS", [vector], [other])
    for ref in (wide, rows, other):
        g.output(ref)
    return model.build()


@pytest.mark.parametrize("target", ["onnxruntime", "portable"])
def test_only_images_become_channels_first(target: str) -> None:
    conversion = otp.convert(network(), target=target, channels_first=True)
    shapes = {value.name: value.shape for value in (*conversion.report.inputs, *conversion.report.outputs)}
    assert shapes == {
        "image": (2, 3, 5, 7), "vector": (11, 13), "wide": (2, 11, 5, 7), "rows": (2, 35, 11), "other": (11, 13),
    }  # fmt: skip
    rng = np.random.default_rng(1)
    image, vector = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 5, 7, 3), (11, 13)))
    wide, *other_outputs = LiteRT(network(), "builtin").run([image, vector])
    results = OnnxRuntime(conversion.proto).run([image.transpose(0, 3, 1, 2), vector])
    for expected, result in zip([wide.transpose(0, 3, 1, 2), *other_outputs], results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_layout_option_overrides_channels_first() -> None:
    conversion = otp.convert(network(), channels_first=True, layout={"image": "NHWC:NWCH"})
    assert [value.shape for value in conversion.report.inputs] == [(2, 7, 3, 5), (11, 13)]
