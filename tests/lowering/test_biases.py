"""Integer biases: floats where what they are added to is computed of floats, else integers that are dequantized."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.models import Net, Spec, constant, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.errors import ConversionError

WEIGHTS = weight((11, 7), "int8")


def dense(x: Spec, dtype: str, *, given: bool = False, weights: Spec = WEIGHTS) -> bytes:
    """A dense layer whose bias has this dtype; ``given``: it is a graph input."""
    model, b = Net(), bias(x, WEIGHTS, 11, dtype, 7)
    y = product(x, WEIGHTS, (3, 11), 7, zero_point=None if x.zero_point else 0)
    operands = [x, weights, replace(b, value=None) if given else b]
    model.output(model.call("FULLY_CONNECTED", operands, y))
    return model.build()


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_bias_of_16_bit_activations_is_of_32_or_64_bits_known_or_not(dtype: str, given: bool) -> None:
    assert otp.convert(dense(tensor(3, 7, dtype="int16"), dtype, given=given), verify=True).verification


def test_a_known_bias_beside_weights_that_are_multiplied_as_floats_is_a_float() -> None:
    nodes = [otp.convert(dense(tensor(3, 7, dtype="int16"), dtype)).report.nodes for dtype in ("int32", "int64")]
    assert nodes[0] == nodes[1]
    assert "DequantizeLinear" not in nodes[0]


@pytest.mark.parametrize("given", [False, True])
def test_tensorrt_dequantizes_no_bias(given: bool) -> None:
    """It dequantizes 8 bits alone."""
    data = dense(replace(tensor(3, 7, dtype="int8"), zero_point=0), "int32", given=given)
    graph = onnx.shape_inference.infer_shapes(otp.convert(data, target="tensorrt").proto).graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    dtypes = {info.name: info.type.tensor_type.elem_type for info in infos}
    dtypes |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    dequantized = {dtypes[node.input[0]] for node in graph.node if node.op_type == "DequantizeLinear"}
    assert dequantized == {onnx.TensorProto.INT8}


def test_an_integer_bias_of_weights_without_a_scale_is_refused() -> None:
    assert WEIGHTS.value is not None
    data = dense(tensor(3, 7, dtype="int8"), "int32", weights=constant(WEIGHTS.value))
    with pytest.raises(ConversionError, match="its bias is int32, but its input or weight is not quantized"):
        otp.convert(data)
