"""Weight-only quantization: small or float weights give equal results.

Nothing is dequantized at runtime.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from op_handlers.kernels import hybrid


def network(activations: str = "float32", weights: str = "int8") -> bytes:
    """Return a convolution with per-channel scales."""
    model = ModelBuilder()
    g = model.main
    input_scale = quant(1 / 512, 0) if activations == "int16" else None
    x = g.input("x", (1, 5, 7, 31), activations, quantization=input_scale)
    scales = tuple(0.01 * (k + 1) for k in range(37))
    stored = np.random.default_rng(0).integers(-127, 128, (37, 3, 3, 31)).astype(weights)
    w = g.constant("w", stored, quantization=quant(scales, (0,) * 37, axis=0) if weights == "int8" else None)
    output_scale = quant(1 / 16, 0) if activations == "int16" else None
    g.output(y := g.tensor("y", (1, 5, 7, 37), activations, quantization=output_scale))
    if weights == "float16":
        floats = g.tensor("floats", stored.shape)
        g.operator("DEQUANTIZE", [w], [floats])
        w = floats
    g.operator("CONV_2D", [x, w], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    return model.build()


def operators(conversion: otp.Conversion) -> Counter[str]:
    return Counter(node.op_type for node in conversion.proto.graph.node)


def run(conversion: otp.Conversion) -> np.ndarray:
    session = onnxruntime.InferenceSession(conversion.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    info = session.get_inputs()[0]
    x = np.random.default_rng(1).standard_normal(info.shape) * (1 if info.type == "tensor(float)" else 300)
    output: np.ndarray = session.run(None, {"x": x.astype(np.float32 if info.type == "tensor(float)" else np.int16)})[0]
    return output


@pytest.mark.parametrize("weights", ["int8", "float16"])
def test_kept_weights_are_small_and_give_equal_results(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is too large for its activations to be rounded."""
    monkeypatch.setattr(hybrid, "MAX_LAYERS", 0)
    monkeypatch.setattr(hybrid, "MAX_ELEMENTS", 0)
    small, folded = (otp.convert(network(weights=weights), weights=option) for option in ("keep", "fold"))
    assert {"Cast", "Mul", "DequantizeLinear"}.isdisjoint(operators(folded))
    assert operators(small)["Cast"] == 1
    assert small.proto.ByteSize() < folded.proto.ByteSize() * {"int8": 0.35, "float16": 0.6}[weights]
    np.testing.assert_array_equal(run(small), run(folded))


def test_weights_are_kept_by_default() -> None:
    assert otp.convert(network()).proto == otp.convert(network(), weights="keep").proto


def test_target_for_compressed_weights_gets_dequantize_linear() -> None:
    assert operators(otp.convert(network(), target="openvino"))["DequantizeLinear"] == 1


def test_float_weights_of_int16_activations_are_not_between_dq_and_q() -> None:
    """ONNX Runtime would round the weights to 8 bits with one scale for all channels."""
    converted = [
        otp.convert(network("int16"), weights=weights, optimize=optimize)
        for weights in ("keep", "fold")
        for optimize in ("faithful", "none")
    ]
    for conversion in converted:
        assert operators(conversion)["QuantizeLinear"] == 1
        nodes = [node for node in conversion.model.graph if node.op_type == "DequantizeLinear"]
        assert all(len(node.inputs[1].shape) == 1 and node.inputs[1].shape[0] > 1 for node in nodes)
    for conversion in converted[1:]:
        np.testing.assert_array_equal(run(conversion), run(converted[0]))


def test_int8_activations_always_keep_dequantize_linear() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 3), "int8", quantization=quant(0.1, 3))
    w = g.constant("w", np.ones((11, 3, 3, 3), np.int8), quantization=quant(0.1, 0))
    g.output(y := g.tensor("y", (1, 5, 7, 11), "int8", quantization=quant(0.3, 5)))
    g.operator("CONV_2D", [x, w], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    counted = [operators(otp.convert(model.build(), weights=option)) for option in ("keep", "fold")]
    assert counted[0] == counted[1]
    assert counted[0]["DequantizeLinear"] >= 2


@pytest.mark.parametrize(("weights", "dtype"), [("keep", np.int8), ("fold", np.float32)])
def test_uint8_weights_are_stored_as_the_int8_that_kernels_read(weights: str, dtype: type) -> None:
    model = ModelBuilder()
    g = model.main
    stored = np.random.default_rng(0).integers(-127, 128, (37, 31)).astype(np.int8)
    x, y = g.input("x", (3, 31)), g.tensor("y", (3, 37))
    w = g.constant("w", stored.view(np.uint8), quantization=quant(0.01, 0))
    g.operator("FULLY_CONNECTED", [x, w], [y], {"fused_activation_function": "RELU"})
    g.output(y)
    conversion = otp.convert(model.build(), weights=weights, verify=True)
    (array,) = (numpy_helper.to_array(t) for t in conversion.proto.graph.initializer if 31 in t.dims)
    assert array.dtype == dtype
