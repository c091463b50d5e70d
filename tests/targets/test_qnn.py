"""The target ``qnn``: operators stand between Q and DQ, and results agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, quant
from conformance.lstms import Lstm
from conformance.models import Net
from conformance.runner import CaseTrial
from conformance.variants import Variant
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.verify import LiteRT, OnnxRuntime
from tests.helpers.quantized_cases import quantized_cases_of
from tests.helpers.target_networks import network

INTEGERS = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
OPERATORS = ("TRANSPOSE", "RESHAPE", "CONCATENATION", "MAX_POOL_2D", "FULLY_CONNECTED", "PAD", "CONV_2D")


def integer_consumers(proto: onnx.ModelProto) -> set[str]:
    """Return the operators that read 8-bit or 16-bit integers."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.input)}
    kinds |= {initializer.name: initializer.data_type for initializer in inferred.initializer}
    return {node.op_type for node in inferred.node if kinds.get(node.input[0]) in INTEGERS}


@pytest.mark.parametrize("op", OPERATORS)
def test_quantized_operators_are_between_dq_and_q_and_correct(op: str) -> None:
    host, converted, wrong, refusals = Host(packs="builtin"), 0, {}, list[str]()
    for case in quantized_cases_of(op, 4):
        try:
            trial = CaseTrial(case, host)
            proto = trial.convert(Variant("qnn", None, "least")).proto
        except ConversionError as refusal:  # kernels that copy bytes with a different scale; 16 bits at an old opset
            refusals.append(str(refusal))
            continue
        assert integer_consumers(proto) <= {"DequantizeLinear"}, case.id
        problems = trial.problems(Variant("qnn", None, "least"))
        if problems:
            wrong[case.id] = problems
        converted += 1
    assert not wrong
    assert converted > 1
    assert all("target qnn" in text or "ONNX defines no" in text for text in refusals)


def requantize(scale: float) -> Callable[[GraphBuilder], None]:
    """Return a function that adds QUANTIZE from scale 0.05 to this scale."""

    def build(g: GraphBuilder) -> None:
        x = g.input("x", (3, 7), "int8", quantization=quant(0.05, 3))
        g.output(y := g.tensor("y", (3, 7), "int8", quantization=quant(scale, -11)))
        g.operator("QUANTIZE", [x], [y])

    return build


def test_requantization_is_refused_where_zero_points_are_0() -> None:
    model = ModelBuilder()
    requantize(0.1)(model.main)
    with pytest.raises(ConversionError, match="only zero points of 0"):
        otp.convert(model.build(), target="tensorrt")


@pytest.mark.parametrize("scale", [0.1, 0.05, 0.013])
def test_requantization_is_dq_and_q_without_integer_operators(scale: float) -> None:
    model = ModelBuilder()
    requantize(scale)(model.main)
    proto = otp.convert(model.build(), target="qnn").proto
    assert integer_consumers(proto) <= {"DequantizeLinear"}
    array = np.arange(-128, 128, 12).astype(np.int8)[:21].reshape(3, 7)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    (computed,) = OnnxRuntime(proto).run([array])
    assert np.abs(computed.astype(int) - expected.astype(int)).max() <= 1


def test_tables_of_hard_swish_become_floats() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (16, 16), "int8", quantization=quant(0.05, 3))
    g.output(y := g.tensor("y", (16, 16), "int8", quantization=quant(0.04, -117)))
    g.operator("HARD_SWISH", [x], [y])
    proto = otp.convert(model.build(), target="qnn").proto
    assert integer_consumers(proto) <= {"DequantizeLinear"}
    array = np.arange(-128, 128).astype(np.int8).reshape(16, 16)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    (computed,) = OnnxRuntime(proto).run([array])
    assert np.abs(computed.astype(int) - expected.astype(int)).max() <= 1


def test_transposed_operands_are_quantized_again_before_they_are_read() -> None:
    proto = otp.convert(network("int8", 3), target="qnn").proto
    producers = {name: node for node in proto.graph.node for name in node.output}
    (conv,) = (node for node in proto.graph.node if node.op_type == "Conv")
    dequantized = producers[conv.input[0]]
    quantized_again = producers[dequantized.input[0]]
    assert [dequantized.op_type, quantized_again.op_type] == ["DequantizeLinear", "QuantizeLinear"]
    assert producers[quantized_again.input[0]].op_type == "Transpose"


@pytest.mark.parametrize("target", ["qnn", "tensorrt"])
def test_requantization_to_int32_is_refused_without_integer_operators(target: str) -> None:
    model = ModelBuilder()
    x = model.main.input("x", (3, 7), "int8", quantization=quant(0.05, 0))
    model.main.output(y := model.main.tensor("y", (3, 7), "int32", quantization=quant(0.013, 0)))
    model.main.operator("QUANTIZE", [x], [y])
    with pytest.raises(ConversionError, match=f"which target {target} does not support"):
        otp.convert(model.build(), target=target)


@pytest.mark.parametrize(("shape", "warns"), [({}, True), ({"x": (1, 5, 7, 3)}, False)])
def test_dynamic_dimensions_are_named_with_the_remedy(shape: dict[str, Any], warns: bool) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 3), signature=(None, 5, 7, 3))
    g.output(y := g.tensor("y", (1, 5, 7, 3), signature=(None, 5, 7, 3)))
    g.operator("RELU", [x], [y])
    for target, expected in (("qnn", warns), ("generic", False)):
        warnings = otp.convert(model.build(), target=target, input_shape=shape).report.warnings
        assert any("input_shape={'x': (1, 5, 7, 3)}" in text for text in warnings) == expected


LSTMS = [
    Lstm(dtype="int8", weights="int8"),
    Lstm(dtype="int8", weights="int8", layer_norm=True, projection_size=5),
    Lstm(dtype="int8", weights="int8", layer_norm=True, op="LSTM"),
    Lstm(dtype="int8", weights="int8", peephole=True, coupled=True),
]


@pytest.mark.parametrize("target", ["qnn", "portable"])
@pytest.mark.parametrize("layer", LSTMS)
def test_integer_lstms_are_within_two_steps_without_integer_operators(layer: Lstm, target: str) -> None:
    """The biases are of a normalization or projection; their scale is ignored."""
    net = Net()
    layer.build(net)
    proto = otp.convert(net.build(), target=target, state="reset").proto
    array = np.random.default_rng(0).integers(-128, 128, [size or 1 for size in layer.x.shape]).astype(np.int8)
    (expected,) = LiteRT(net.build(), "builtin").run([array])
    if target == "qnn":
        assert integer_consumers(proto) <= {"DequantizeLinear"}
        (quantized,) = OnnxRuntime(proto).run([array])
    else:
        scale, zero_point = np.float32(layer.x.scale), np.float32(layer.x.zero_point)  # type: ignore[arg-type]
        (real,) = OnnxRuntime(proto).run([(array - zero_point) * scale])
        quantized = np.round(real / layer.output_quantization[0]) + layer.output_quantization[1]
    assert np.ptp(expected.astype(int)) > 50
    assert np.abs(quantized.astype(int) - expected.astype(int)).max() <= 2


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("op", ["CONV_2D", "ADD"])
def test_fused_activations_have_separate_dq_and_q_nodes(op: str, activation: str) -> None:
    """The output's zero point is inside its range, so that the activation clips."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 3), "uint8", quantization=quant(0.05, 131))
    weights = np.random.default_rng(0).integers(1, 256, (11, 1, 1, 3)).astype(np.uint8)
    bias = g.constant("b", np.arange(-5, 6, dtype=np.int32) * 37)
    other_operands = {"CONV_2D": [g.constant("w", weights, quantization=quant(0.03, 127)), bias], "ADD": [x]}[op]
    g.output(y := g.tensor("y", (1, 5, 7, 11 if op == "CONV_2D" else 3), "uint8", quantization=quant(0.083, 117)))
    strides = {"stride_w": 1, "stride_h": 1} if op == "CONV_2D" else {}
    g.operator(op, [x, *other_operands], [y], {"fused_activation_function": activation, **strides})
    proto = otp.convert(model.build(), target="qnn").proto
    producers = {name: node.op_type for node in proto.graph.node for name in node.output}
    (clip,) = (node for node in proto.graph.node if node.op_type in ("Relu", "Clip"))
    assert producers[clip.input[0]] == "DequantizeLinear"
    array = np.random.default_rng(1).integers(0, 256, (1, 5, 7, 3)).astype(np.uint8)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    (computed,) = OnnxRuntime(proto).run([array])
    assert np.abs(computed.astype(int) - expected.astype(int)).max() <= 1


def test_weights_have_one_scale_if_litert_computes_the_product_as_zeros() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (3, 5), "int8", quantization=quant(0.05, 3))
    weights = np.random.default_rng(0).integers(-127, 128, (5, 7)).astype(np.int8)
    w = g.constant("w", weights, quantization=quant([0.01 * k for k in range(1, 8)], [0] * 7, 1))
    g.output(y := g.tensor("y", (3, 7), "int8", quantization=quant(0.5, -11)))
    g.operator("BATCH_MATMUL", [x, w], [y])
    array = np.random.default_rng(1).integers(-128, 128, (3, 5)).astype(np.int8)
    (expected,) = LiteRT(model.build(), "builtin").run([array])
    proto = otp.convert(model.build(), target="qnn").proto
    (computed,) = OnnxRuntime(proto).run([array])
    np.testing.assert_array_equal(computed, expected)
    scales = [
        onnx.numpy_helper.to_array(initializer)
        for initializer in proto.graph.initializer
        if initializer.data_type == 1 and initializer.dims == [7]
    ]
    assert not scales


def test_short_loops_are_unrolled() -> None:
    net = Net()
    Lstm(dtype="int8", weights="int8").build(net)
    model = otp.convert(net.build(), target="qnn").model
    assert not {"Loop", "Scan", "If"} & {node.op_type for node in model.graph.all_nodes()}
    with pytest.raises(ConversionError, match=r"qnn has no Scan(.|\n)*unroll=N"):
        otp.convert(net.build(), target="qnn", unroll=1)


def test_operators_that_the_accelerator_lacks_are_named_with_their_origin() -> None:
    model = ModelBuilder()
    g = model.main
    x, inner, y = g.input("x", (2, 3)), g.tensor("inner", (2, 3)), g.tensor("positions", (None, 2), "int64")
    g.operator("NEG", [x], [inner])
    condition = g.tensor("condition", (2, 3), "bool")
    g.operator("GREATER", [inner, g.constant("zero", np.zeros((), np.float32))], [condition])
    g.operator("WHERE", [condition], [y])
    g.output(y)
    warnings = otp.convert(model.build(), target="qnn").report.warnings
    assert [warning.partition(";")[0] for warning in warnings if "accelerator" in warning] == [
        "the accelerator has no NonZero (of op 2 'positions')"
    ]
    assert not [w for w in otp.convert(model.build(), target="generic").report.warnings if "accelerator" in w]
