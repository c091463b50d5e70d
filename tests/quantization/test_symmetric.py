"""Models requantized to symmetric int8 keep ranges and are close to LiteRT."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.cases import builtin_cases
from onnx_tflite_plugin.presentation.option_warnings import REQUANTIZED
from onnx_tflite_plugin.quantization.symmetric import symmetric_constant, symmetric_range
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime

CASES = {case.id: case for case in builtin_cases()}


def convolution(dtype: str, zero_point: int, weights: int, *, reshaped: bool = False, as_output: bool = False) -> bytes:
    """Return a convolution whose weights have the zero point ``weights``.

    It has 3 input and 11 output channels. ``reshaped``: RESHAPE and RELU follow. ``as_output``: the result of the
    convolution is also an output.
    """
    model, rng = ModelBuilder(), np.random.default_rng(7)
    g, low = model.main, 0 if dtype == "uint8" else -127
    x = g.input("x", (1, 5, 7, 3), dtype, quantization=quant(0.023, zero_point))
    w = rng.integers(low, low + 255, (11, 3, 2, 3)).astype(dtype)
    kernel = g.constant("w", w, quantization=quant(0.004, weights))
    bias = g.constant("b", rng.integers(-900, 900, 11).astype(np.int32), quantization=quant(0.023 * 0.004, 0))
    y = g.tensor("y", (1, 5, 7, 11), dtype, quantization=quant(0.031, zero_point))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    g.operator("CONV_2D", [x, kernel, bias], [y], options)
    if as_output:
        g.output(y)
    if reshaped:
        z = g.tensor("z", (35, 11), dtype, quantization=quant(0.031, zero_point))
        g.operator("RESHAPE", [y, g.constant("shape", np.array([35, 11], np.int32))], [z])
        r = g.tensor("r", (35, 11), dtype, quantization=quant(0.031, zero_point))
        g.operator("RELU", [z], [r])
        y = r
    g.output(y)
    return model.build()


def constant(array: np.ndarray, zero_point: int) -> Tensor:
    """Return a quantized constant with a scale of 0.5."""
    model = ModelBuilder()
    index = model.main.constant("w", array, quantization=quant(0.5, zero_point))
    return read(model.build()).main.tensors[index]


def quantization_parameters(proto: onnx.ModelProto) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return scale and zero point of each QuantizeLinear and DequantizeLinear."""
    stored = {initializer.name: numpy_helper.to_array(initializer) for initializer in proto.graph.initializer}
    nodes = [node for node in proto.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    return [(stored[node.input[1]], stored[node.input[2]]) for node in nodes]


@pytest.mark.parametrize(("dtype", "zero_point", "weights"), [("int8", -13, 0), ("uint8", 117, 128), ("uint8", 3, 121)])
@pytest.mark.parametrize("target", ["tensorrt", "generic"])
def test_results_are_close_to_litert(dtype: str, zero_point: int, weights: int, target: str) -> None:
    data = convolution(dtype, zero_point, weights)
    conversion = otp.convert(data, target=target, quantization="symmetric")
    assert REQUANTIZED in conversion.report.warnings
    limits = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(limits.min, limits.max + 1, (1, 5, 7, 3)).astype(dtype)
    (expected,) = LiteRT(data, "builtin").run([x])
    (y,) = OnnxRuntime(conversion.proto).run([(x.astype(np.float32) - zero_point) * np.float32(0.023)])
    assert y.dtype == np.float32
    real = (expected.astype(np.float32) - zero_point) * 0.031
    inside = (expected > limits.min) & (expected < limits.max)  # the float output is not saturated
    assert inside.mean() > 0.5
    assert np.abs(y - real)[inside].max() <= 4 * 0.031


@pytest.mark.parametrize(("dtype", "zero_point", "weights"), [("int8", -13, 0), ("uint8", 117, 128), ("uint8", 3, 121)])
def test_tensorrt_gets_int8_with_zero_point_0(dtype: str, zero_point: int, weights: int) -> None:
    proto = otp.convert(convolution(dtype, zero_point, weights), target="tensorrt", quantization="symmetric").proto
    parameters = quantization_parameters(proto)
    assert len(parameters) == 3  # the input's two, and the weights'
    assert all(point.dtype == np.int8 and not point.any() for _, point in parameters)
    assert [info.type.tensor_type.elem_type for info in proto.graph.input] == [onnx.TensorProto.FLOAT]


def test_symmetric_range_covers_the_range_of_the_file() -> None:
    assert symmetric_range(Quantization((0.5,), (0,)), "int8").scale[0] * 127 == pytest.approx(0.5 * 128)
    assert symmetric_range(Quantization((0.5,), (-128,)), "int8").scale[0] * 127 == pytest.approx(0.5 * 254)
    assert symmetric_range(Quantization((0.5,), (100,)), "uint8").scale[0] * 127 == pytest.approx(0.5 * 155)


def test_each_channel_of_requantized_weights_uses_the_whole_range() -> None:
    proto = otp.convert(convolution("uint8", 3, 121), target="tensorrt", quantization="symmetric").proto
    (weights,) = (
        numpy_helper.to_array(initializer) for initializer in proto.graph.initializer if len(initializer.dims) == 4
    )
    assert np.abs(weights.astype(int)).max(axis=(1, 2, 3)).tolist() == [127] * 11


def test_requantized_channel_of_zeros_has_a_positive_scale() -> None:
    tensor = constant(np.array([[7, 7], [9, 4]], np.uint8), zero_point=7)
    symmetric = symmetric_constant(tensor, channel_axis=0)
    assert isinstance(symmetric.quantization, Quantization)
    assert symmetric.quantization.scale == pytest.approx((1 / 127, 1.5 / 127))
    assert symmetric.array.tolist() == [[0, 0], [85, -127]]


def test_weights_that_operators_scale_along_other_axes_keep_one_scale() -> None:
    model = ModelBuilder()
    g = model.main
    w = g.constant("w", np.arange(9, dtype=np.uint8).reshape(3, 3), quantization=quant(0.5, 3))
    for name in ("dense", "sum"):
        x = g.input(f"x {name}", (3, 3), "uint8", quantization=quant(0.05, 3))
        y = g.tensor(name, (3, 3), "uint8", quantization=quant(0.05, 3))
        g.operator("FULLY_CONNECTED" if name == "dense" else "ADD", [x, w, None][: 3 if name == "dense" else 2], [y])
        g.output(y)
    proto = otp.convert(model.build(), target="tensorrt", quantization="symmetric").proto
    assert all(scale.ndim == 0 for scale, _ in quantization_parameters(proto))


def test_output_is_rounded_only_if_an_operator_reads_it() -> None:
    model = convolution("int8", 5, 0, reshaped=True, as_output=True)
    proto = otp.convert(model, target="tensorrt", quantization="symmetric").proto
    producers = {name: node for node in proto.graph.node for name in node.output}
    transpose, relu = (producers[value.name] for value in proto.graph.output)
    assert (transpose.op_type, relu.op_type) == ("Transpose", "Relu")
    assert producers[transpose.input[0]].op_type == "DequantizeLinear"


def test_transposed_values_are_not_requantized() -> None:
    proto = otp.convert(convolution("int8", 5, 0, reshaped=True), target="tensorrt", quantization="symmetric").proto
    counts = Counter(node.op_type for node in proto.graph.node)
    assert counts["QuantizeLinear"] == 2  # of the input and of the convolution


def test_recurrent_layers_keep_float_weights() -> None:
    proto = otp.convert(CASES["UNIDIRECTIONAL_SEQUENCE_LSTM-backwards,_int8"].build(), quantization="symmetric").proto
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    dequantized_names = {
        name for node in proto.graph.node if node.op_type == "DequantizeLinear" for name in node.input[:1]
    }
    assert not dequantized_names & {initializer.name for initializer in proto.graph.initializer}
