"""Integer biases become floats, or are dequantized at runtime."""

from __future__ import annotations

from dataclasses import replace

import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, Spec, constant, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.errors import ConversionError

WEIGHTS = weight((11, 7), "int8")


def dense(x: Spec, dtype: str, *, as_input: bool = False, weights: Spec = WEIGHTS) -> bytes:
    """Return a dense layer whose bias has this dtype; a graph input with ``as_input``."""
    model, b = Net(), bias(x, WEIGHTS, 11, dtype, 7)
    y = product(x, WEIGHTS, (3, 11), 7, zero_point=None if x.zero_point else 0)
    operands = [x, weights, replace(b, value=None) if as_input else b]
    model.output(model.call("FULLY_CONNECTED", operands, y))
    return model.build()


def dequantized_dtypes(as_input: bool, target: str) -> set[str]:
    """Return the dtypes that are dequantized in an int8 layer."""
    data = dense(replace(tensor(3, 7, dtype="int8"), zero_point=0), "int32", as_input=as_input)
    nodes = list(otp.convert(data, target=target).model.graph)
    return {str(node.inputs[0].dtype) for node in nodes if node.op_type == "DequantizeLinear" and node.inputs[0]}


@pytest.mark.parametrize("as_input", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_int16_activations_accept_int32_and_int64_biases(dtype: str, as_input: bool) -> None:
    assert otp.convert(dense(tensor(3, 7, dtype="int16"), dtype, as_input=as_input), verify=True).verification


def test_constant_bias_of_float_weights_is_float() -> None:
    nodes = [otp.convert(dense(tensor(3, 7, dtype="int16"), dtype)).report.nodes for dtype in ("int32", "int64")]
    assert nodes[0] == nodes[1]
    assert "DequantizeLinear" not in nodes[0]


@pytest.mark.parametrize("as_input", [False, True])
def test_tensorrt_has_no_quantized_bias(as_input: bool) -> None:
    """TensorRT dequantizes only 8-bit integers."""
    assert dequantized_dtypes(as_input, "tensorrt") == {"INT8"}
    assert dequantized_dtypes(as_input, "generic") == {"INT8", "INT32"}


def test_integer_bias_of_unquantized_weights_is_refused() -> None:
    assert WEIGHTS.value is not None
    data = dense(tensor(3, 7, dtype="int8"), "int32", weights=constant(WEIGHTS.value))
    with pytest.raises(ConversionError, match="the bias is int32, but the input or weight is not quantized"):
        otp.convert(data)
