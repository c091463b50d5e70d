"""Test the names of values and nodes in readable graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder, TensorRef, quant
from conformance.cases.control.loops import loop
from conformance.cases.custom.detection import cases
from conformance.models import Net, tensor
from onnx_tflite_plugin.api import named
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.rewrite.name_constants import NameConstants
from onnx_tflite_plugin.rewrite.name_values import NameValues

EXAMPLES = Path(__file__).parents[2] / "examples"
STRIDES = {"padding": "VALID", "stride_w": 1, "stride_h": 1}


def readable(data: bytes | Path) -> onnx.GraphProto:
    return otp.convert(data, optimize="readable", target="generic", verify=True).proto.graph


def computed_names(graph: onnx.GraphProto) -> list[str]:
    return [name for node in graph.node for name in node.output]


def convolution(activation: str = "NONE", *, bias: str = "b", names: tuple[str, str] = ("x", "y")) -> bytes:
    """Return a convolution of float images between an ADD and an EXP."""
    model = ModelBuilder()
    g = model.main
    image, x, y = g.input("image", (1, 5, 7, 3)), g.tensor(names[0], (1, 5, 7, 3)), g.tensor(names[1], (1, 5, 7, 2))
    weights, offset = g.constant("w", np.ones((2, 1, 1, 3), np.float32)), g.constant(bias, np.ones(2, np.float32))
    g.operator("ADD", [image, g.constant("one", np.ones((1, 5, 7, 1), np.float32))], [x])
    g.operator("CONV_2D", [x, weights, offset], [y], {**STRIDES, "fused_activation_function": activation})
    g.operator("ARG_MAX", [y, g.constant("axis", np.int32(2))], [z := g.tensor("z", (1, 5, 2), "int64")],
               {"output_type": "INT64"})  # fmt: skip
    g.output(z)
    g.output(y)
    return model.build()


def test_quantized_value_names_the_value_before_it() -> None:
    graph = readable(EXAMPLES / "digits_int8.tflite")
    assert {"edges:unquantized", "logits:unquantized", "features:unquantized"} <= {*computed_names(graph)}


@pytest.mark.parametrize("activation", ["RELU", "RELU6"])
def test_activation_names_the_value_before_it(activation: str) -> None:
    graph = readable(convolution(activation))
    (conv,) = [node for node in graph.node if node.op_type == "Conv"]
    assert conv.output[0] == "y:before_activation"


def test_layout_of_images_is_a_suffix_of_letters() -> None:
    graph = readable(convolution())
    assert {"image:NCHW", "x:NCHW"} & {*computed_names(graph)}
    assert "y:NCHW" in computed_names(graph)


def test_other_permutation_is_transposed() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (2, 3, 5)), g.tensor("y", (2, 3, 5))
    g.operator("SOFTMAX", [x], [soft := g.tensor("soft", (2, 3, 5))], {"beta": 1.0})
    weights = [g.constant(f"w{k}", np.ones((3, 5), np.float32)) for k in range(2)]
    state, bias = g.tensor("state", (2, 3), variable=True), g.constant("b", np.zeros(3, np.float32))
    g.operator("UNIDIRECTIONAL_SEQUENCE_RNN", [soft, weights[0], g.constant("r", np.ones((3, 3), np.float32)), bias, state],
               [out := g.tensor("out", (2, 3, 3))], {"fused_activation_function": "TANH", "time_major": False})  # fmt: skip
    g.operator("NEG", [soft], [y])
    g.output(out)
    g.output(y)
    assert "soft:transposed" in computed_names(readable(model.build()))


def test_name_lists_only_the_operation_that_computes_the_value() -> None:
    graph = readable(convolution(names=("x", "c/Conv2D;c/BiasAdd"), bias="c/Conv2D;unknown_260"))
    initializers = {initializer.name for initializer in graph.initializer}
    assert "c/Conv2D/bias" in initializers
    assert not [name for name in initializers if ";" in name]


@pytest.mark.parametrize("bias", ["c/BiasAdd/ReadVariableOp", "c/BiasAdd/ReadVariableOp_1/resource", "c/BiasAdd"])
def test_bias_read_from_a_variable_is_named_bias(bias: str) -> None:
    assert "c/BiasAdd/bias" in {initializer.name for initializer in readable(convolution(bias=bias)).initializer}


def quantized_pair() -> bytes:
    """Return an int8 model whose signature names differ from its tensor names."""
    model = ModelBuilder()
    g = model.main
    scale = quant(0.1, 3)
    x = g.input("serving_default_x:0", (1, 4, 6, 3), "int8", quantization=scale)
    y = g.tensor("StatefulPartitionedCall:0", (1, 4, 6, 3), "int8", quantization=quant(1 / 256, -128))
    g.operator("LOGISTIC", [x], [y])
    g.output(y)
    model.signature("serve", inputs={"x": x}, outputs={"scores": y})
    return model.build()


def test_values_of_graph_inputs_and_outputs_have_their_names() -> None:
    graph = readable(quantized_pair())
    assert computed_names(graph) == ["x:float", "scores:unquantized", "scores"]
    assert {initializer.name for initializer in graph.initializer} == {
        "x/scale",
        "x/zero_point",
        "scores/scale",
        "scores/zero_point",
    }


def test_role_given_by_a_handler_names_the_constant() -> None:
    emitter = Emitter(18, UniqueNames())
    x = emitter.register(ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2])))
    with emitter.label_nodes("op0", {}):
        (y,) = emitter.emit("Mul", [x, named(np.float32(0.5), "half_extent")], {})
    y.name = "y"
    graph = ir.Graph([x], [y], nodes=emitter.nodes, opset_imports={"": 18}, name="g")
    constant = emitter.nodes[0].inputs[1]
    assert constant is not None
    assert constant.name == "op0/constant"
    graph.register_initializer(constant)
    NameConstants()(ir.Model(graph, ir_version=9))
    assert constant.name == "mul/half_extent"


def test_constant_of_several_operators_is_named_after_none_of_them() -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 80))
    factors = g.constant("arith.constant", np.linspace(1, 2, 80, dtype=np.float32).reshape(1, 80))
    a, b = g.tensor("net/block_0/scaled", (1, 80)), g.tensor("net/block_1/scaled", (1, 80))
    g.operator("MUL", [x, factors], [a])
    g.operator("SQRT", [a], [root := g.tensor("root", (1, 80))])
    g.operator("MUL", [root, factors], [b])
    g.operator("EXP", [b], [y := g.tensor("y", (1, 80))])
    g.output(y)
    assert [initializer.name for initializer in readable(model.build()).initializer] == ["net/factor"]


def test_weight_that_is_also_a_zero_point_keeps_its_name() -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    nodes = "p = DequantizeLinear(q, scale, w)  r = DequantizeLinear(w, scale, zero)  y = Mul(p, r)"
    text = f"{header} g (int8 q, float scale, int8 zero) => (float y) {{ {nodes} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    weight = ir.Value(name="net/scale_factor", const_value=ir.tensor(np.asarray(3, np.int8)))
    nodes_in_order = [*model.graph]
    nodes_in_order[0].replace_input_with(2, weight)
    nodes_in_order[1].replace_input_with(0, weight)
    model.graph.register_initializer(weight)
    NameConstants()(model)
    assert [*model.graph.initializers] == ["net/scale_factor", "q/zero_point"]


def test_second_scale_of_a_tensor_is_named_after_its_reader() -> None:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    nodes = "a = DequantizeLinear(q, op0_constant)  y = Abs(a)  b = DequantizeLinear(q, op1_constant)  z = Neg(b)"
    text = f"{header} g (int8 q, float op0_constant, float op1_constant) => (float y, float z) {{ {nodes} }}"
    model = ir.from_proto(onnx.parser.parse_model(text))
    for index, scale in ((0, 0.5), (2, 0.25)):
        value = ir.Value(name=f"op{index}/constant", const_value=ir.tensor(np.asarray(scale, np.float32)))
        [*model.graph][index].replace_input_with(1, value)
        model.graph.register_initializer(value)
    NameConstants()(model)
    assert [*model.graph.initializers] == ["q/scale", "dequantizelinear/operand_scale"]


def detector_model() -> bytes:
    return next(cases()).build()


def test_role_given_by_a_handler_names_the_result() -> None:
    graph = readable(detector_model())
    names = {name.rpartition("/")[2] for name in computed_names(graph)}
    assert {"top", "left", "bottom", "right", "selected_indices", "padded_boxes"} <= names
    assert not [name for name in names if "#" in name]


def test_one_of_several_results_has_its_formal_name() -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([5]))
    k = ir.Value(name="k", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    node = ir.Node("", "TopK", [x, k], num_outputs=2, name="op0/TopK")
    for value in node.outputs:
        value.name = f"{node.name}:out"
    readers = [
        ir.Node("", "Add", [value, value], num_outputs=1, name=f"op1/Add{n}") for n, value in enumerate(node.outputs)
    ]
    for n, reader in enumerate(readers):
        reader.outputs[0].name = f"y{n}"
    outputs = [reader.outputs[0] for reader in readers]
    NameValues()(ir.Model(ir.Graph([x, k], outputs, nodes=[node, *readers], opset_imports={"": 18}), ir_version=9))
    assert [value.name for value in node.outputs] == ["topk/TopK/values", "topk/TopK/indices"]


def test_one_of_several_results_in_a_loop_body_has_its_formal_name() -> None:
    model = Net()
    rows = tensor(3, 4)

    def body(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        x, largest, positions = values[0], graph.tensor("largest", (3, 4)), graph.tensor("positions", (3, 4), "int32")
        graph.operator("TOPK_V2", [x, graph.constant("k", np.int32(4))], [largest, positions])
        y = graph.tensor("y", (3, 4))
        graph.operator("ADD", [largest, x], [y])
        return [y]

    model.output(*loop(model, [model.input(rows)], [rows], body))
    graph = readable(model.model.build())
    inner_names = [name for node in graph.node for a in node.attribute for name in computed_names(a.g)]
    assert [name for name in inner_names if name.endswith("/indices")]


def test_note_of_a_handler_is_in_the_graph_and_in_the_report() -> None:
    conversion = otp.convert(detector_model(), optimize="readable")
    (text,) = (node.doc_string for node in conversion.proto.graph.node if node.doc_string)
    assert "NonMaxSuppression" in text
    assert any("no operator for the whole postprocessing" in hint for hint in conversion.report.hints)
    assert not [node for node in otp.convert(detector_model()).proto.graph.node if node.doc_string]


@pytest.mark.parametrize("model", ["digits_int8", "digits_float", "language_model"])
def test_nodes_are_numbered_in_order(model: str) -> None:
    numbers: dict[str, int] = {}
    for node in readable(EXAMPLES / f"{model}.tflite").node:
        base, _, number = node.name.partition("#")
        assert int(number or 0) == numbers.get(base, 0)
        numbers[base] = int(number or 0) + 1


@pytest.mark.parametrize("model", ["digits_int8", "digits_float", "language_model"])
def test_no_value_is_named_after_a_node(model: str) -> None:
    graph = readable(EXAMPLES / f"{model}.tflite")
    names = computed_names(graph)
    assert not [name for name in names if ":out" in name]
    assert len({*names, *(initializer.name for initializer in graph.initializer)}) == len(names) + len(
        graph.initializer
    )
    assert max(map(len, names)) <= 80


def int16_layer() -> bytes:
    """Return an int16 FULLY_CONNECTED and SOFTMAX whose constants lack real names."""
    model, rng = ModelBuilder(), np.random.default_rng(5)
    g = model.main
    x = g.input("x", (2, 3), "int16", quantization=quant(0.001))
    weights = g.constant("arith.constant", rng.integers(-9, 9, (5, 3)).astype(np.int8), quantization=quant(0.01))
    sums = g.tensor("sums", (2, 5), "int16", quantization=quant(0.002))
    g.operator("FULLY_CONNECTED", [x, weights], [sums])
    y = g.tensor("y", (2, 5), "int16", quantization=quant(1 / 32768))
    g.operator("SOFTMAX", [sums], [y], {"beta": 1.0})
    g.output(y)
    return model.build()


def test_constants_of_int16_operators_are_named_after_their_role() -> None:
    graph = otp.convert(int16_layer(), optimize="readable").proto.graph
    names = {initializer.name for initializer in graph.initializer}
    assert {"x/scale", "sums/weight", "sums/weight/scale", "y/exponential_table", "y/power_table"} <= names
    assert {"x:before_mul", "x:float", "sums/weight:before_mul", "sums/weight:float"} <= {*computed_names(graph)}


def test_conversion_between_dtypes_of_a_tensor_names_both() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    assert {"image:int8_to_uint8", "image:float", "probabilities:uint8_to_int8"} <= {*computed_names(graph)}


def test_shape_that_reshapes_a_graph_input_is_named_after_it() -> None:
    graph = otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").proto.graph
    assert "image/shape" in {initializer.name for initializer in graph.initializer}


@pytest.mark.parametrize(("target", "count"), [("onnxruntime", 1), ("generic", 0)])
def test_readable_model_with_many_nodes_for_one_runtime_has_a_hint(target: str, count: int) -> None:
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 3), "int16", quantization=quant(0.5))
    y, z = (g.tensor(name, (2, 3), "int16", quantization=quant(0.5)) for name in "yz")
    g.operator("ADD", [x, x], [y])
    g.operator("MUL", [y, x], [z])
    g.output(z)
    hints = otp.convert(model.build(), optimize="readable", target=target).report.hints
    assert sum("target='generic'" in hint for hint in hints) == count


def test_readable_model_with_few_nodes_for_one_runtime_has_no_hint() -> None:
    assert not otp.convert(EXAMPLES / "digits_int8.tflite", optimize="readable").report.hints


def test_int16_softmax_of_many_nodes_is_explained() -> None:
    conversion = otp.convert(int16_layer(), optimize="readable")
    (text,) = (node.doc_string for node in conversion.proto.graph.node if node.doc_string)
    assert any(hint.startswith("op 1 'y' becomes ") for hint in conversion.report.hints)
    assert text.startswith("y becomes ")
    assert "LiteRT's int16 kernel uses lookup tables" in text


def readable_nodes(data: bytes) -> list[onnx.NodeProto]:
    return [*otp.convert(data, optimize="readable").proto.graph.node]
