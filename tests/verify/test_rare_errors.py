"""``verify`` finds errors that only rare random values reveal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net, Spec, constant, random_array
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.passes_networks import Network, image
from tests.helpers.wrong_models import (
    BuildNetwork,
    ModelChange,
    PlantedError,
    change_constants,
    change_nodes,
    int8_convolutions,
)

SHAPE = (5, 7)

# --- networks ---------------------------------------------------------------------------------


def binary_operator(code: str, dtype: str, result: str = "", shape: tuple[int, ...] = SHAPE) -> BuildNetwork:
    def build(net: Net) -> TensorRef:
        operands = [net.input(Spec(shape, dtype, name=name)) for name in "ab"]
        return net.call(code, operands, Spec(shape, result or dtype))

    return build


def unary_operator(code: str, dtype: str = "float32", result: str = "float32") -> BuildNetwork:
    return lambda net: net.call(code, [net.input(Spec(SHAPE, dtype))], Spec(SHAPE, result))


def threshold(net: Net) -> TensorRef:
    return net.call("GREATER", [net.input(Spec(SHAPE)), constant(np.float32(0.7))], Spec(SHAPE, "bool"))


def arg_max(net: Net) -> TensorRef:
    x = net.input(Spec((5, 31)))
    return net.call("ARG_MAX", [x, constant(np.int32(1))], Spec((5,), "int32"), output_type="INT32")


def dequantize(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 7, 5)), 8, name="last")
    return net.call("DEQUANTIZE", [x], Spec((1, 11, 7, 8)))


def dequantize_input(net: Network) -> TensorRef:
    return net.call("DEQUANTIZE", [net.input(image(1, 11, 7, 5))], Spec((1, 11, 7, 5)))


def constant_sigmoid(net: Network) -> TensorRef:
    """Return a sigmoid that is always 1 on dequantized inputs."""
    tiny_values = net.like("MUL", dequantize_input(net), constant(np.float32(1e-3)))
    return net.like("LOGISTIC", net.like("ADD", tiny_values, constant(np.float32(30.0))))


def unknown_rank(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 7, 5)), 16, name="first")
    y = net.conv(x, 8, name="last")
    net.remove_rank(x)
    return y


def unreachable_mask(net: Net) -> TensorRef:
    """Return a mask that no random value meets."""
    x = net.input(Spec(SHAPE))
    mask = net.call("GREATER", [x, constant(np.float32(1000))], Spec(SHAPE, "bool"))
    choices = [net.call(code, [x], Spec(SHAPE)) for code in ("NEG", "ABS")]
    return net.call("SELECT_V2", [mask, *choices], Spec(SHAPE))


def dynamic_shape(net: Net) -> tuple[TensorRef, TensorRef]:
    y = net.call("ABS", [net.input(Spec((None, None)))], Spec((None, None)))
    return net.call("SHAPE", [y], Spec((2,), "int32"), out_type="INT32"), y


def small_columns(net: Net) -> TensorRef:
    """Return a product with two columns 100,000 times smaller than the others."""
    x = net.call("TANH", [net.input(Spec((11, 16)))], Spec((11, 16)))
    weights = random_array(5, 16) * np.array([1e5, 1e5, 1e5, 1, 1])[:, None]
    return net.call("FULLY_CONNECTED", [x, constant(weights, "float32"), None], Spec((11, 5)))


def boxes(net: Net) -> TensorRef:
    """Return boxes in pixels with scores near 0, as for noise."""
    x = net.input(Spec((1, 11, 16)))
    coordinates = constant(random_array(4, 16) * 100, "float32"), None
    scores = constant(random_array(7, 16) * 0.1, "float32"), constant(np.full(7, -6.0), "float32")
    box_values, logits = (
        net.call("FULLY_CONNECTED", [x, *parameters], Spec((1, 11, n)), keep_num_dims=True)
        for parameters, n in ((coordinates, 4), (scores, 7))
    )
    return net.call(
        "CONCATENATION", [box_values, net.call("LOGISTIC", [logits], Spec((1, 11, 7)))], Spec((1, 11, 11)), axis=2
    )


# --- planted errors ---------------------------------------------------------------------------


def replace_by(op_type: str) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


def swap_inputs(node: onnx.NodeProto) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def attribute(name: str, value: int) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        del node.attribute[:]
        node.attribute.append(helper.make_attribute(name, value))

    return change


def make_constant(value: bool) -> ModelChange:
    """Make the output constant."""

    def change_model(proto: onnx.ModelProto) -> None:
        [output] = proto.graph.output
        shape = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
        proto.graph.initializer.append(numpy_helper.from_array(np.full(shape, value), "constant"))
        del proto.graph.node[:]
        proto.graph.node.append(helper.make_node("Identity", ["constant"], [output.name]))

    return change_model


def cast_through(dtype: int) -> ModelChange:
    """Cast the first input to a narrower dtype and back."""

    def change_model(proto: onnx.ModelProto) -> None:
        x = proto.graph.input[0]
        for node in proto.graph.node:
            node.input[:] = ["again" if name == x.name else name for name in node.input]
        wide = x.type.tensor_type.elem_type
        proto.graph.node.insert(0, helper.make_node("Cast", ["narrow"], ["again"], to=wide))
        proto.graph.node.insert(0, helper.make_node("Cast", [x.name], ["narrow"], to=dtype))

    return change_model


def replace_by_two(
    op_type: str, *operand_names: str, node: str, becomes: str, constant: float | None = None, slot: int = 0
) -> ModelChange:
    """Replace a node by ``op_type`` and ``becomes``, which reads the result of ``op_type``.

    ``slot``: the operand of ``becomes`` that is this result.
    """

    def change_model(proto: onnx.ModelProto) -> None:
        [target] = [candidate for candidate in proto.graph.node if candidate.op_type == node]
        if constant is not None:
            proto.graph.initializer.append(numpy_helper.from_array(np.float32(constant), operand_names[0]))
        position = [*proto.graph.node].index(target)
        proto.graph.node.insert(
            position, helper.make_node(op_type, [target.input[0], *operand_names], ["first_result"])
        )
        target = proto.graph.node[position + 1]
        target.op_type = becomes
        target.input[slot:] = ["first_result"]

    return change_model


def shift_zero_point(proto: onnx.ModelProto) -> None:
    """Change the zero point of the last dequantization by 1."""
    last = [node for node in proto.graph.node if node.op_type == "DequantizeLinear"][-1]
    [initializer] = [initializer for initializer in proto.graph.initializer if initializer.name == last.input[2]]
    point = numpy_helper.to_array(initializer)
    proto.graph.initializer.append(numpy_helper.from_array((point + 1).astype(point.dtype), "shifted_zero_point"))
    last.input[2] = "shifted_zero_point"


def unmask(node: onnx.NodeProto) -> None:
    node.input[1] = node.input[2]


def reverse_output(proto: onnx.ModelProto) -> None:
    """Swap the two elements of the first output."""
    name = proto.graph.output[0].name
    [producer] = [node for node in proto.graph.node if name in node.output]
    producer.output[0] = "forwards"
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 0]), "reverse_output"))
    proto.graph.node.append(helper.make_node("Gather", ["forwards", "reverse_output"], [name]))


def reverse_scores(proto: onnx.ModelProto) -> None:
    name = proto.graph.output[0].name
    [producer] = [node for node in proto.graph.node if name in node.output]
    producer.output[0] = "forwards"
    order = np.array([0, 1, 2, 3, *range(10, 3, -1)])
    proto.graph.initializer.append(numpy_helper.from_array(order, "order"))
    proto.graph.node.append(helper.make_node("Gather", ["forwards", "order"], [name], axis=2))


def negate_small(weights: Array) -> Array:
    return np.where(np.abs(weights) < 100, -weights, weights)


def remove_metadata(proto: onnx.ModelProto) -> None:
    """Change the last bias, and remove the metadata of all values except inputs."""
    for info in (*proto.graph.value_info, *proto.graph.output):
        del info.metadata_props[:]
    change_constants(8, lambda bias: bias + 100)(proto)


WRONG: dict[str, PlantedError] = {
    "LOGICAL_AND always false": PlantedError(binary_operator("LOGICAL_AND", "bool", shape=(1,)), make_constant(False), Net),
    "XOR instead of OR": PlantedError(binary_operator("LOGICAL_OR", "bool", shape=(1,)), change_nodes("Or", replace_by("Xor")), Net),
    "product instead of quotient": PlantedError(binary_operator("DIV", "int32"), change_nodes("Div", replace_by("Mul")), Net),
    "remainder with the sign of the dividend": PlantedError(
        binary_operator("FLOOR_MOD", "int32"), change_nodes("Mod", attribute("fmod", 1)), Net
    ),
    "swapped operands of POW": PlantedError(binary_operator("POW", "int32"), change_nodes("Pow", swap_inputs), Net),
    "EQUAL always false": PlantedError(binary_operator("EQUAL", "float32", "bool"), make_constant(False), Net),
    "LESS_EQUAL instead of LESS": PlantedError(
        binary_operator("LESS", "float32", "bool"), change_nodes("Less", replace_by("LessOrEqual")), Net
    ),
    "GREATER_EQUAL instead of GREATER": PlantedError(threshold, change_nodes("Greater", replace_by("GreaterOrEqual")), Net),
    "integers through 8 bits": PlantedError(binary_operator("ADD", "int32"), cast_through(onnx.TensorProto.INT8), Net),
    "integers through 16 bits": PlantedError(binary_operator("MAXIMUM", "int32"), cast_through(onnx.TensorProto.INT16), Net),
    "integers through 32 bits": PlantedError(binary_operator("ADD", "int64"), cast_through(onnx.TensorProto.INT32), Net),
    "integers through float16": PlantedError(
        unary_operator("CAST", "int32"), cast_through(onnx.TensorProto.FLOAT16), Net
    ),
    "round half up": PlantedError(
        unary_operator("ROUND"), replace_by_two("Add", "half", node="Round", becomes="Floor", constant=0.5), Net
    ),
    "sign of 0": PlantedError(unary_operator("SIGN"), replace_by_two("Abs", node="Sign", becomes="Div", slot=1), Net),
    "last index of equal maxima": PlantedError(arg_max, change_nodes("ArgMax", lambda node: node.attribute.append(
        helper.make_attribute("select_last_index", 1)
    )), Net),
    "dequantized results off by one step": PlantedError(dequantize, shift_zero_point),
    "dequantized inputs off by one step": PlantedError(dequantize_input, shift_zero_point),
    "ignored mask": PlantedError(unreachable_mask, change_nodes("Where", unmask), Net),
    "swapped dynamic dimensions": PlantedError(dynamic_shape, reverse_output, Net),
    "negated small columns": PlantedError(small_columns, change_constants(80, negate_small), Net),
    "reversed scores": PlantedError(boxes, reverse_scores, Net),
    "values without metadata": PlantedError(int8_convolutions, remove_metadata, options=(("quantization", "float"),)),
    "hidden dequantized inputs off by one step": PlantedError(
        constant_sigmoid, shift_zero_point, options=(("optimize", "none"),)
    ),
    "values downstream of an unknown rank": PlantedError(
        unknown_rank, change_constants(8, lambda bias: bias + 100), options=(("quantization", "float"),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_model_fails_and_correct_model_passes(name: str) -> None:
    data, right, wrong = WRONG[name].models()
    verification = verify(data, right)
    assert verification.ok, verification.text
    assert not verify(data, wrong).ok


def test_rejects_an_output_with_an_undeclared_shape() -> None:
    def declare(*sizes: int | None) -> ModelChange:
        def change_model(proto: onnx.ModelProto) -> None:
            del proto.graph.output[0].type.tensor_type.shape.dim[:]
            for size in sizes:
                dim = proto.graph.output[0].type.tensor_type.shape.dim.add()
                if size is not None:
                    dim.dim_value = size

        return change_model

    for sizes, shape_text in (((5, 9), r"\[5, 9\]"), ((5,), r"\[5\]"), ((None, 9), r"\[\?, 9\]")):
        data, _, wrong = PlantedError(threshold, declare(*sizes), Net).models()
        with pytest.raises(
            VerificationError, match=rf"'y0' has shape \[5, 7\], but the ONNX model declares {shape_text}"
        ):
            verify(data, wrong)
    data, _, dynamic = PlantedError(threshold, declare(5, None), Net).models()
    assert verify(data, dynamic).ok
    dynamic.graph.output[0].type.tensor_type.ClearField("shape")
    assert verify(data, dynamic).ok


def test_shapes_from_runtime_operands_may_differ_from_the_file() -> None:
    net = Net()
    x = net.input(Spec((2, 5, 7)))
    net.output(net.call("TRANSPOSE", [x, net.input(Spec((3,), "int32", name="perm"))], Spec((7, 2, 5))))
    data = net.build()
    inputs = {"perm": np.array([1, 0, 2], np.int32)}
    verification = verify(data, otp.convert(data).proto, inputs=inputs)
    assert verification.ok, verification.text


def test_input_quantization_does_not_widen_float_tolerance() -> None:
    """Dequantized inputs are exact; dequantized results may be off by a step."""
    data, right, _ = WRONG["dequantized inputs off by one step"].models()
    assert verify(data, right).comparisons[0].tolerance == 1e-3
    data, right, _ = WRONG["dequantized results off by one step"].models()
    assert verify(data, right).comparisons[0].tolerance > 1e-3


def test_correct_outputs_without_metadata_pass() -> None:
    data, right, _ = WRONG["values without metadata"].models()
    for info in (*right.graph.value_info, *right.graph.output):
        del info.metadata_props[:]
    verification = verify(data, right)
    assert verification.ok
    assert [comparison.name for comparison in verification.comparisons] == ["last"]


def test_different_batch_sizes_are_not_split_into_items() -> None:
    net = Net()
    inputs = [net.input(Spec((None, 3), name=name)) for name in "ab"]
    net.output(*(net.call("ABS", [x], Spec((None, 3))) for x in inputs))
    data = net.build()
    verification = verify(data, otp.convert(data).proto)
    assert verification.ok
    assert "a [2, 3], b [3, 3]" in verification.text


def test_missing_rank_is_unknown() -> None:
    net = Network()
    net.output(unknown_rank(net))
    tflite_model = structure.read(net.build())
    assert [t.has_rank for t in tflite_model.main.tensors].count(False) == 1
