"""``verify`` finds planted errors with small effects, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, TensorRef
from conformance.cases.state.variables import VariableNet, running_sum
from conformance.models import Spec, constant, random_array, tensor
from conformance.weights import bias
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.processor import multiplies_exactly
from tests.helpers.passes_networks import Network, image
from tests.helpers.wrong_models import (
    PlantedError,
    change_constants,
    change_nodes,
    int8_convolutions,
    remove_state_metadata,
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"

# --- networks ---------------------------------------------------------------------------------


def classes(net: Network) -> TensorRef:
    """Return an int8 softmax of a thousand classes of similar probability."""
    x = net.input(Spec((1, 16), "int8", 0.1, 3))
    w = constant(random_array(1000, 16, dtype="int8"), "int8", 0.01, 0)
    y = net.call("FULLY_CONNECTED", [x, w, bias(net.spec(x), w, 1000, "int32", 16)], Spec((1, 1000), "int8", 0.02, -3))
    return net.call("SOFTMAX", [y], Spec((1, 1000), "int8", 1 / 256, -128), beta=1.0)


def table(net: Network) -> TensorRef:
    ids = net.input(Spec((1, 29), "int32", name="ids"))
    return net.call("GATHER", [constant(random_array(3001, 7), "float32"), ids], Spec((1, 29, 7)), axis=0)


def clip(net: Network) -> TensorRef:
    x = net.input(image(1, 5, 7, 3, dtype="float32"))
    w = constant(random_array(4, 1, 1, 3) * 0.3, "float32")
    y = net.call(
        "CONV_2D", [x, w, constant(np.zeros(4), "float32")], Spec((1, 5, 7, 4)), fused_activation_function="RELU6",
        padding="SAME", stride_h=1, stride_w=1,
    )  # fmt: skip
    return net.conv(y, 5, (1, 1))


def dynamic(net: Network) -> TensorRef:
    """Return a dynamic-range layer whose bias is about 1 % of the output."""
    x = net.input(tensor(3, 257))
    w = constant(random_array(31, 257, dtype="int8"), "int8", 0.02, 0)
    bias_values = np.where(np.arange(31) % 2, 0.7, -0.7)
    return net.call("FULLY_CONNECTED", [x, w, constant(bias_values, "float32")], Spec((3, 31)))


def two_outputs(net: Network) -> tuple[TensorRef, TensorRef]:
    x = net.input(tensor(2, 3))
    return net.like("NEG", x), net.like("ABS", x)


def difference(net: Network) -> TensorRef:
    return net.like("SUB", net.input(tensor(2, 3, name="a")), net.input(tensor(2, 3, name="b")))


def square(net: Network) -> TensorRef:
    return net.like("EXP", net.input(tensor(5, 5)))


def pool(net: Network) -> TensorRef:
    x = net.input(image(1, 5, 5, 3, dtype="float32"))
    size = {"filter_height": 3, "filter_width": 3, "stride_h": 2, "stride_w": 2, "padding": "SAME"}
    return net.like("AVERAGE_POOL_2D", x, shape=(1, 3, 3, 3), **size)


# --- planted errors ---------------------------------------------------------------------------


def zero_rows(array: Array) -> Array:
    return np.where(np.arange(len(array))[:, None] < 10, array, 0)


def leave_unbounded(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "Clip":
            node.op_type = "Relu"
            del node.input[1:]


def reverse_classes(proto: onnx.ModelProto) -> None:
    """Reverse the classes after the softmax."""
    graph = proto.graph
    name = graph.output[0].name
    producer = next(node for node in graph.node if name in node.output)
    producer.output[0] = "forward"
    graph.initializer.append(numpy_helper.from_array(np.arange(999, -1, -1), "backwards"))
    graph.node.append(helper.make_node("Gather", ["forward", "backwards"], [name], axis=1))


def swap_outputs(proto: onnx.ModelProto) -> None:
    infos = [*proto.graph.output]
    del proto.graph.output[:]
    proto.graph.output.extend(infos[::-1])


def swap_inputs(node: onnx.NodeProto) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def count_padding(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "count_include_pad":
            attribute.i = 1


def shift_zero_point(proto: onnx.ModelProto) -> None:
    """Change the zero point of the first result by 3."""
    proto.graph.initializer.append(numpy_helper.from_array(np.array(131, np.uint8), "another"))
    [producer] = [node for node in proto.graph.node if "first" in node.output]
    producer.input[2] = "another"


def insert_transpose(proto: onnx.ModelProto) -> None:
    [node] = [node for node in proto.graph.node if node.op_type == "Exp"]
    proto.graph.node.insert(0, helper.make_node("Transpose", [node.input[0]], ["turned"], perm=[1, 0]))
    node.input[0] = "turned"


def increase_last_channel(array: Array) -> Array:
    """Increase the last value by 8 %."""
    increased = array.copy()
    increased[-1] = (increased[-1] * 1.08).astype(increased.dtype)
    return increased


def increase_bias(array: Array) -> Array:
    return array + 200_000 * (np.arange(8) == 3).astype(np.int32) if array.dtype == np.int32 and array.any() else array


WRONG: dict[str, PlantedError] = {
    "reversed classes before softmax": PlantedError(
        classes, change_constants(16000, lambda w: w[::-1]), options=(("weights_dtype", "uint8"),)
    ),
    "reversed classes after softmax": PlantedError(classes, reverse_classes),
    "missing state": PlantedError(running_sum("float32"), remove_state_metadata, VariableNet, (("state", "reset"),)),
    "table with only ten rows": PlantedError(table, change_constants(3001 * 7, zero_rows)),
    "RELU6 without its upper bound": PlantedError(clip, leave_unbounded),
    "missing small bias of a dynamic-range layer": PlantedError(dynamic, change_constants(31, np.zeros_like)),
    "swapped operands": PlantedError(difference, change_nodes("Sub", swap_inputs)),
    "transposed square matrix": PlantedError(square, insert_transpose),
    "average pooling counts padding": PlantedError(pool, change_nodes("AveragePool", count_padding)),
    "weights of one channel": PlantedError(clip, change_constants(12, increase_last_channel)),
    "one integer bias": PlantedError(int8_convolutions, change_constants(8, increase_bias)),
    "zero point": PlantedError(int8_convolutions, shift_zero_point),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_model_fails_and_correct_model_passes(name: str) -> None:
    data, before, after = WRONG[name].models()
    assert verify(data, before).ok
    assert not verify(data, after).ok


def test_rejects_reordered_outputs() -> None:
    data, before, after = PlantedError(two_outputs, swap_outputs).models()
    assert verify(data, before).ok
    with pytest.raises(VerificationError, match="have the order y1, y0 instead of y0, y1"):
        verify(data, after)


class TestSigmoid:
    """ONNX Runtime's error is relative to 0.5, LiteRT's to the result."""

    @staticmethod
    def models(offset: float, columns: int = 3) -> tuple[bytes, onnx.ModelProto]:
        """Return a sigmoid with an error of ``offset``, and a reshape."""
        graph = (model := ModelBuilder()).main
        x, y, z = graph.input("x", (2, columns)), graph.tensor("y", (2, columns)), graph.tensor("z", (columns, 2))
        graph.operator("LOGISTIC", [x], [y])
        graph.operator("RESHAPE", [y, graph.constant("shape", np.int32([columns, 2]))], [z])
        graph.output(z)
        proto = otp.convert(data := model.build()).proto
        (sigmoid_index,) = (k for k, node in enumerate(proto.graph.node) if node.op_type == "Sigmoid")
        node = proto.graph.node[sigmoid_index]
        add_node = helper.make_node("Add", ["right", "offset"], list(node.output))
        node.output[0] = "right"
        proto.graph.node.insert(sigmoid_index + 1, add_node)
        proto.graph.initializer.append(numpy_helper.from_array(np.float32(offset), "offset"))
        return data, proto

    @pytest.mark.parametrize("largest_input", [-12, -15, -17, -25, -80])
    def test_small_results_may_differ_by_kernel_rounding(self, largest_input: float) -> None:
        data = self.models(0.0)[0]
        inputs = {"x": np.linspace(largest_input - 2, largest_input, 6, dtype=np.float32).reshape(2, 3)}
        assert verify(data, otp.convert(data), inputs=[inputs]).ok

    def test_largest_of_many_errors_may_be_kernel_rounding(self) -> None:
        data = self.models(0.0, columns := 50021)[0]
        inputs = {"x": np.linspace(-14, -12, 2 * columns, dtype=np.float32).reshape(2, columns)}
        assert verify(data, otp.convert(data), inputs=[inputs]).ok

    def test_rejects_errors_beyond_kernel_rounding(self) -> None:
        inputs = {"x": np.linspace(-17, -15, 6, dtype=np.float32).reshape(2, 3)}
        assert not verify(*self.models(3e-7), inputs=[inputs]).ok


@pytest.mark.skipif(not multiplies_exactly(), reason="this processor itself selects the other weights")
def test_finds_a_fault_in_the_weights_that_other_processors_select() -> None:
    proto = otp.convert(DIGITS).proto
    branches = [a.g for node in proto.graph.node for a in node.attribute if a.name == "else_branch"]
    assert verify(DIGITS, proto).ok
    products = [node for branch in branches for node in branch.node if node.op_type == "DequantizeLinear"]
    for node in products:
        del node.input[2]
    assert products
    verification = verify(DIGITS, proto)
    assert verification.verdict == "differs"
    assert "with the weights for other processors" in verification.text
