"""``--optimize readable``: plain graphs; names of constants state their use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.lstms import Lstm
from onnx_tflite_plugin.rewrite.name_constants import NameConstants

EXAMPLES = Path(__file__).parents[2] / "examples"


def names(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in (*node.input, *node.output) if name}


@pytest.mark.int8_products
def test_quantized_network_has_no_if_and_uint8_weights() -> None:
    conversion = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable", verify=True)
    graph = conversion.proto.graph
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert {"If", "MatMulInteger"}.isdisjoint(node.op_type for node in graph.node)
    assert conversion.report.passes == {}
    assert conversion.report.weights == {"uint8": 4}  # also of the depthwise convolution, where no sum can overflow
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    producers = {output: node.op_type for node in graph.node for output in node.output}
    assert {producers[name] for node in convolutions for name in node.input} == {"DequantizeLinear"}


def test_requested_weight_dtype_is_kept() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable", weights_dtype="int8").proto.graph
    assert onnx.TensorProto.INT8 in {i.data_type for i in graph.initializer}


def test_constants_are_named_by_tensor_or_role() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    initializers = {initializer.name for initializer in graph.initializer}
    assert {
        "strokes/weights",
        "strokes/weights/scale",
        "strokes/bias/scale",
        "strokes/scale",
        "features/axes",
    } <= initializers
    assert not [name for name in initializers if name.rpartition("/")[2].startswith("constant")]
    assert len(initializers) == len(graph.initializer)


def test_shared_constant_has_a_copy_for_each_role() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    quantize_nodes = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantize_nodes) > 3
    for node in quantize_nodes:
        tensor = node.output[0].partition(":")[0]
        assert all(name.startswith(tensor) for name in node.input[1:]), node
    assert len({name for node in quantize_nodes for name in node.input[1:]}) > len(quantize_nodes)


@pytest.mark.parametrize(
    ("node", "role"),
    [
        ("Conv(x, w, numbers)", "bias"),
        ("Gemm(x, numbers)", "weight"),
        ("Gemm(x, w, numbers)", "bias"),
        ("MatMul(x, numbers)", "weight"),
        ("Mul(x, numbers)", "factor"),
        ("Div(numbers, x)", "dividend"),
        ("Reshape(x, numbers)", "shape"),
    ],
)
def test_role_depends_on_the_operator(node: str, role: str) -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    model = ir.from_proto(
        onnx.parser.parse_model(f"{header} g (float[2] x, float[2] w) => (float[2] y) {{ y = {node} }}")
    )
    initializer = ir.Value(name="numbers", const_value=ir.tensor([1.0]))
    (node_under_test,) = model.graph
    for slot, value in enumerate(node_under_test.inputs):
        if value is not None and value.name == "numbers":
            node_under_test.replace_input_with(slot, initializer)
    initializer.name = "op0/constant"
    model.graph.register_initializer(initializer)
    assert NameConstants()(model).modified
    assert initializer.name == f"{node_under_test.op_type.lower()}/{role}"


def float16_weights(*, shared: bool = False) -> bytes:
    """Return ``y = x + w`` with float16 weights, which are also an output if ``shared``."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    float16_constant = g.constant("dense/kernel", np.arange(6, dtype=np.float16).reshape(2, 3))
    weights, y = g.tensor("dense/kernel_dequantize", (2, 3)), g.tensor("y", (2, 3))
    g.operator("DEQUANTIZE", [float16_constant], [weights])
    g.operator("ADD", [x, weights], [y])
    g.output(y)
    if shared:
        g.output(float16_constant)
    return model.build()


def test_float16_weights_are_float32_under_their_name() -> None:
    graph = otp.convert(float16_weights(), optimize="readable", verify=True).proto.graph
    assert [node.op_type for node in graph.node] == ["Add"]
    (weights,) = graph.initializer
    assert (weights.name, weights.data_type) == ("dense/kernel", onnx.TensorProto.FLOAT)
    default_graph = otp.convert(float16_weights()).proto.graph
    assert [node.op_type for node in default_graph.node] == ["Cast", "Add"]


def padded(*, shared: bool = False) -> bytes:
    """Return a model that pads with a value of shape [1], also an addend if ``shared``."""
    model = ModelBuilder()
    g = model.main
    x, value = g.input("x", (2, 3)), g.constant("padding_value", np.full(1, 7, np.float32))
    paddings = g.constant("paddings", np.full((2, 2), 1, np.int32))
    g.operator("PADV2", [x, paddings, value], [y := g.tensor("y", (4, 5))])
    if shared:
        g.operator("ADD", [y, value], [y := g.tensor("z", (4, 5))])
    g.output(y)
    return model.build()


@pytest.mark.parametrize(("shared", "operators"), [(False, ["Pad"]), (True, ["Pad", "Add"])])
def test_constant_is_reshaped_during_the_conversion(*, shared: bool, operators: list[str]) -> None:
    graph = otp.convert(padded(shared=shared), optimize="readable", target="generic", verify=True).proto.graph
    assert [node.op_type for node in graph.node] == operators
    assert {initializer.name for initializer in graph.initializer} <= names(graph)


def test_channel_shuffle_is_one_transpose_between_reshapes() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 4, 3, 6))
    split = g.tensor("split", (1, 4, 3, 2, 3))
    g.operator("RESHAPE", [x, g.constant("a", np.array([1, 4, 3, 2, 3], np.int32))], [split])
    swapped = g.tensor("swapped", (1, 4, 3, 3, 2))
    g.operator("TRANSPOSE", [split, g.constant("perm", np.array([0, 1, 2, 4, 3], np.int32))], [swapped])
    y = g.tensor("y", (1, 4, 3, 6))
    g.operator("RESHAPE", [swapped, g.constant("b", np.array([1, 4, 3, 6], np.int32))], [y])
    g.output(y)
    graph = otp.convert(model.build(), optimize="readable", target="generic", verify=True).proto.graph
    assert [node.op_type for node in graph.node] == ["Reshape", "Transpose", "Reshape"]


def test_float16_output_keeps_its_dtype() -> None:
    graph = otp.convert(float16_weights(shared=True), optimize="readable", verify=True).proto.graph
    assert {output.type.tensor_type.elem_type for output in graph.output} == {
        onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["Const", "model/Const_1", "arith.constant12", "tfl.pseudo_qconst3", "tfl.pseudo_const", "unknown_4"]
)
def test_unnamed_constant_is_named_after_its_role(name: str) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3))
    w, y = g.constant(name, np.ones((2, 3), np.float32)), g.tensor("score/add", (2, 3))
    g.operator("ADD", [x, w], [y])
    g.operator("EXP", [y], [z := g.tensor("z", (2, 3))])
    g.output(z)
    graph = otp.convert(model.build(), optimize="readable").proto.graph
    assert [initializer.name for initializer in graph.initializer] == ["score/add/addend"]


def test_constant_name_has_its_role_instead_of_a_number() -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    text = f"{header} g (float[1] x) => (float[1] y) {{ z = Add(x, a) y = Add(z, b) }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    first, second = model.graph
    for node, name in ((first, "w#1"), (second, "z#1")):
        constant = ir.Value(name=name, const_value=ir.tensor([1.0]))
        node.replace_input_with(1, constant)
        model.graph.register_initializer(constant)
    assert NameConstants()(model).modified
    assert set(model.graph.initializers) == {"w", "z/addend"}


def test_constant_names_state_their_use() -> None:
    """This includes copies of copies, such as ``op7/constant#1#2``."""
    for model in ("digits_int8", "digits_float", "language_model"):
        graph = otp.convert(EXAMPLES / f"{model}.tflite", optimize="readable").proto.graph
        assert not [
            initializer.name
            for initializer in graph.initializer
            if "constant#" in initializer.name or "Const" in initializer.name
        ]


@pytest.mark.parametrize("optimize", ["none", "readable", "faithful"])
def test_long_internal_names_are_shortened_at_the_front(optimize: str) -> None:
    long = "scope/" * 40
    model = ModelBuilder()
    g = model.main
    x = g.input(f"{long}input", (2, 3))
    y = g.tensor(f"{long}inner", (2, 3))
    g.operator("NEG", [x], [y])
    g.operator("EXP", [y], [z := g.tensor(f"{long}output", (2, 3))])
    g.output(z)
    graph = otp.convert(model.build(), optimize=optimize).proto.graph  # type: ignore[arg-type]
    assert [graph.input[0].name, graph.output[0].name] == [f"{long}input", f"{long}output"]
    (inner,) = names(graph) - {f"{long}input", f"{long}output"}
    assert inner.endswith("scope/inner")
    assert len(inner) <= 80


def test_states_keep_their_names_even_if_generic() -> None:
    model = ModelBuilder()
    g = model.main
    x, state = g.input("x", (1, 5)), g.tensor("tfl.pseudo_qconst", (1, 7), variable=True)
    weights, recurrent = g.constant("w", np.ones((7, 5), np.float32)), g.constant("r", np.ones((7, 7), np.float32))
    bias, y = g.constant("b", np.zeros(7, np.float32)), g.tensor("y", (1, 7))
    g.operator("RNN", [x, weights, recurrent, bias, state], [y], {"fused_activation_function": "TANH"})
    g.output(y)
    data = model.build()
    conversion = otp.convert(data, optimize="readable")
    assert "tfl.pseudo_qconst" in names(conversion.proto.graph)
    assert otp.verify(data, conversion).ok


def convolution_and_slopes(kernel: str = "conv/Conv2D") -> bytes:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("conv/Conv2D", (1, 5, 7, 16))
    weights = g.constant(kernel, np.arange(48, dtype=np.float32).reshape(16, 1, 1, 3))
    bias = g.constant("conv/BiasAdd", np.arange(16, dtype=np.float32))
    g.operator("CONV_2D", [x, weights, bias], [y], {"padding": "VALID", "stride_w": 1, "stride_h": 1})
    slopes = g.constant("slopes", np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(1, 1, 16))
    g.operator("PRELU", [y, slopes], [z := g.tensor("z", (1, 5, 7, 16))])
    g.operator("CONV_2D", [z, g.constant("w", np.ones((2, 1, 1, 16), np.float32)), g.constant("b", np.ones(2, np.float32))],
               [out := g.tensor("out", (1, 5, 7, 2))], {"padding": "VALID", "stride_w": 1, "stride_h": 1})  # fmt: skip
    g.output(out)
    return model.build()


def test_slopes_per_channel_become_one_prelu() -> None:
    readable_types = [
        node.op_type for node in otp.convert(convolution_and_slopes(), optimize="readable").proto.graph.node
    ]
    assert "PRelu" in readable_types
    assert readable_types.count("Conv") == 2
    default_types = [node.op_type for node in otp.convert(convolution_and_slopes()).proto.graph.node]
    assert "PRelu" not in default_types


def test_constant_with_the_name_of_an_operation_gets_its_role() -> None:
    graph = otp.convert(convolution_and_slopes(), optimize="readable", verify=True).proto.graph
    initializers = {initializer.name for initializer in graph.initializer}
    assert {"conv/Conv2D/weight", "conv/BiasAdd/bias", "slopes", "w", "b"} <= initializers
    assert next(node for node in graph.node if node.op_type == "Conv").output[0] == "conv/Conv2D"


def test_dequantized_constant_is_named_after_the_constant() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    initializers = {initializer.name for initializer in graph.initializer}
    dequantized = {
        n.input[0]: n.output[0] for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in initializers
    }
    assert len(dequantized) >= 4
    assert dequantized == {name: f"{name}:float" for name in dequantized}


def test_parameters_of_many_channels_have_a_copy_for_each_tensor() -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    nodes = "y = DequantizeLinear<axis = 0>(a, s, p) z = DequantizeLinear<axis = 0>(b, s, p)"
    interface = "(uint8[100] a, uint8[100] b, float[100] s) => (float[100] y, float[100] z)"
    text = f"{header} g {interface} {{ {nodes} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    zeros = ir.Value(name="a/zero_point", const_value=ir.tensor(np.zeros(100, np.uint8)))
    for node in model.graph:
        node.replace_input_with(2, zeros)
    model.graph.register_initializer(zeros)
    assert NameConstants()(model).modified
    assert [node.inputs[2].name for node in model.graph] == ["a/zero_point", "b/zero_point"]  # type: ignore[union-attr]


def int8_weights() -> bytes:
    """Return a convolution of floats with int8 weights and one scale per channel."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("y", (1, 5, 7, 2))
    scale = quant([0.01, 0.02])
    kernel = g.constant("kernel", np.arange(6, dtype=np.int8).reshape(2, 1, 1, 3), quantization=scale)
    bias = g.constant("bias", np.ones(2, np.float32))
    g.operator("CONV_2D", [x, kernel, bias], [y], {"padding": "VALID", "stride_w": 1, "stride_h": 1})
    g.output(y)
    return model.build()


def test_weights_of_float_operators_have_a_dequantize_node() -> None:
    graph = otp.convert(int8_weights(), optimize="readable", target="generic", verify=True).proto.graph
    assert {"Cast", "Mul"}.isdisjoint(node.op_type for node in graph.node)
    (dequantize,) = [node for node in graph.node if node.op_type == "DequantizeLinear"]
    assert [*dequantize.input, *dequantize.output] == ["kernel", "kernel/scale", "kernel/zero_point", "kernel:float"]
    assert {node.op_type for node in otp.convert(int8_weights(), target="generic").proto.graph.node} >= {
        "Cast",
        "Mul",
    }


def test_limit_of_int8_softmax_is_named_max() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 5), "int8", quantization=quant(0.1))
    y = g.tensor("y", (2, 5), "int8", quantization=quant(1 / 256, -128))
    g.operator("SOFTMAX", [x], [y], {"beta": 1.0})
    g.output(y)
    graph = otp.convert(model.build(), optimize="readable", target="generic").proto.graph
    assert [node.op_type for node in graph.node] == ["DequantizeLinear", "Softmax", "Min", "QuantizeLinear"]
    assert graph.node[2].input[1] == "y/max"


def test_integer_lstm_has_named_tables_and_weights() -> None:
    data = Lstm(dtype="int8", weights="int8").case("int8").build()
    graph = otp.convert(data, optimize="readable", target="generic", verify=True).proto.graph
    roles = {initializer.name.rpartition("/")[2] for initializer in graph.initializer}
    assert {"sigmoid_and_tanh_table", "tanh_table", "input_weights", "recurrent_weights", "bias"} <= roles
    assert "CumSum" not in {node.op_type for node in graph.node}
    assert "CumSum" in {node.op_type for node in otp.convert(data, target="generic").proto.graph.node}


def test_tensors_of_one_module_are_named_after_their_operators() -> None:
    model = ModelBuilder()
    g = model.main
    x, shaped, summed = g.input("x", (2, 3)), g.tensor("attn;1", (6,)), g.tensor("attn;2", (6,))
    doubled = g.tensor("attn;3", (6,))
    g.operator("RESHAPE", [x, g.constant("shape", np.array([6], np.int32))], [shaped], {"new_shape": [6]})
    g.operator("ADD", [shaped, g.constant("Const", np.arange(6, dtype=np.float32))], [summed])
    g.operator("ADD", [summed, g.constant("Const_1", np.ones(6, np.float32))], [doubled])
    g.operator("EXP", [doubled], [y := g.tensor("y", (6,))])
    g.output(y)
    graph = otp.convert(model.build(), optimize="readable", verify=True).proto.graph
    assert [node.output[0] for node in graph.node] == ["attn", "attn/Add", "attn/Add#1", "y"]


def test_constants_of_one_role_are_named_after_results() -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    text = f"{header} g (float[1] x) => (float[1] y) {{ step = Mul(x, a) y = Mul(step, b) }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    for number, node in enumerate(model.graph):
        constant = ir.Value(name=f"op0/constant#{number}", const_value=ir.tensor([float(number)]))
        node.replace_input_with(1, constant)
        model.graph.register_initializer(constant)
    assert NameConstants()(model).modified
    assert set(model.graph.initializers) == {"mul/factor", "y/factor"}
