"""``verify`` finds planted errors that random inputs rarely reveal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, TensorRef, quant
from conformance.cases.control.branches import image_branches as branches
from conformance.cases.fusions.normalization import keras
from conformance.cases.state.variables import VariableNet, previous_input, running_sum
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import Network, image
from tests.helpers.wrong_models import (
    PlantedError,
    change_constants,
    change_nodes,
    int8_convolutions,
    remove_state_metadata,
    without_digest,
)

# --- networks ---------------------------------------------------------------------------------


def thresholds(net: Network) -> TensorRef:
    """Compare integers with a constant that random integers rarely hit."""
    return net.call("GREATER_EQUAL", [net.input(Spec((5, 7), "int32")), constant(np.int32(1234))], Spec((5, 7), "bool"))


def normalize(net: Network) -> TensorRef:
    return keras(net, net.input(tensor(2, 5, 7, 3)), scaled=True, shifted=True)


def slopes(net: Network) -> TensorRef:
    x = net.input(image(1, 5, 7, 3, dtype="float32"))
    return net.call(
        "PRELU", [net.conv(x, 4, (1, 1)), constant(random_array(1, 1, 4, low=0.2, high=0.25))], Spec((1, 5, 7, 4))
    )


def remainders(net: Network) -> TensorRef:
    x, y = (net.input(Spec((5, 7), "int32", name=name)) for name in "xy")
    return net.call(
        "FLOOR_MOD", [x, net.call("SUB", [y, constant(np.int32(11))], Spec((5, 7), "int32"))], Spec((5, 7), "int32")
    )


def first_of_equals(net: Network) -> TensorRef:
    return net.call(
        "ARG_MAX", [net.input(Spec((5, 31), "int32")), constant(np.int32(1))], Spec((5,), "int32"), output_type="INT32"
    )


def table_rows(net: Network) -> TensorRef:
    ids = net.input(Spec((1, 29), "int32", name="ids"))
    return net.call("GATHER", [constant(random_array(307, 7), "float32"), ids], Spec((1, 29, 7)), axis=0)


def resize(net: Network) -> TensorRef:
    x = net.input(image(1, 5, 7, 3, dtype="float32"))
    size = constant(np.array([10, 14], np.int32))
    return net.call("RESIZE_BILINEAR", [x, size], Spec((1, 10, 14, 3)), half_pixel_centers=True)


def cumulative(net: Network) -> TensorRef:
    return net.call("CUMSUM", [net.input(tensor(3, 7)), constant(np.int32(1))], tensor(3, 7))


# --- planted errors ------------------------------------------------------------------------------


def double_other_branch(proto: onnx.ModelProto) -> None:
    """Double the result of the branch that is not taken."""
    [node] = [node for node in proto.graph.node if node.op_type == "If"]
    [branch] = [attribute.g for attribute in node.attribute if attribute.name == "else_branch"]
    name = branch.output[0].name
    for inner in branch.node:
        for k, output_name in enumerate(inner.output):
            if output_name == name:
                inner.output[k] = "half"
    branch.node.append(helper.make_node("Add", ["half", "half"], [name]))


def shift_zero_point(proto: onnx.ModelProto) -> None:
    """Add 1 to the zero point of the result."""
    name = proto.graph.output[0].name
    [last] = [node for node in proto.graph.node if name in node.output]
    [stored] = [stored for stored in proto.graph.initializer if stored.name == last.input[2]]
    zero_point = numpy_helper.to_array(stored)
    proto.graph.initializer.append(numpy_helper.from_array((zero_point + 1).astype(zero_point.dtype), "another"))
    last.input[2] = "another"


def set_attribute(name: str, value: Any) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        others = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*others, helper.make_attribute(name, value)])

    return change


def return_next_state(proto: onnx.ModelProto) -> None:
    """Return the next value of the state instead of the last one."""
    output = proto.graph.output[0].name
    next_state = proto.graph.output[1].name
    for node in proto.graph.node:
        for k, output_name in enumerate(node.output):
            if output_name == output:
                node.output[k] = "last"
    proto.graph.node.append(helper.make_node("Identity", [next_state], [output]))


def increment_threshold(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array + 1 if array.size == 1 and array.item() == 1234 else array


def reverse_every_other_row(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(np.arange(len(array))[:, None] % 2, array, array[::-1])


WRONG: dict[str, PlantedError] = {
    "branch not taken": PlantedError(branches("IF", 2), double_other_branch, Net),
    "zero point off by one": PlantedError(int8_convolutions, shift_zero_point),
    "threshold off by one": PlantedError(thresholds, change_constants(1, increment_threshold)),
    "epsilon 1000 times larger": PlantedError(
        normalize, change_nodes("LayerNormalization", set_attribute("epsilon", 1.0))
    ),
    "slopes of other channels": PlantedError(
        slopes, change_constants(4, lambda a: a[..., ::-1] if a.min() >= 0.2 else a)
    ),
    "remainder with the sign of the dividend": PlantedError(remainders, change_nodes("Mod", set_attribute("fmod", 1))),
    "last index of equal maxima": PlantedError(
        first_of_equals, change_nodes("ArgMax", set_attribute("select_last_index", 1))
    ),
    "every other row of a table": PlantedError(table_rows, change_constants(307 * 7, reverse_every_other_row)),
    "half-pixel offset": PlantedError(
        resize, change_nodes("Resize", set_attribute("coordinate_transformation_mode", "asymmetric"))
    ),
    "exclusive cumulative sum": PlantedError(cumulative, change_nodes("CumSum", set_attribute("exclusive", 1))),
    "state updated too early": PlantedError(previous_input("float32"), return_next_state, VariableNet),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_model_fails_and_correct_model_passes(name: str) -> None:
    data, before, after = WRONG[name].models()
    assert verify(data, before).ok
    assert not verify(data, after).ok


def negate(*shape: int) -> bytes:
    net = Net()
    x = net.input(Spec(shape))
    net.output(net.call("NEG", [x], Spec(shape)))
    return net.build()


def test_input_of_other_rank_suggests_another_model() -> None:
    with pytest.raises(
        VerificationError, match=r"has 3 axes in the ONNX model, but 'x0' has 2 in .* from another file"
    ):
        verify(negate(2, 3), without_digest(otp.convert(negate(2, 3, 5)).proto))


def test_states_are_carried_with_inputs_for_one_run() -> None:
    data, before, after = PlantedError(
        running_sum("float32"), remove_state_metadata, VariableNet, (("state", "reset"),)
    ).models()
    inputs = {"x0": np.ones((3, 5), np.float32)}
    assert verify(data, before, inputs=inputs).runs == 3
    assert not verify(data, after, inputs=inputs).ok


@pytest.mark.parametrize(("steps", "fails"), [(1, False), (10, True)])
def test_float_conversion_is_within_rounding_of_quantized_kernels(steps: int, fails: bool) -> None:
    """The bias is wrong by ``steps`` quantization steps of the result."""
    net = Network()
    net.output(int8_convolutions(net))
    data = net.build()
    (scale,) = read(data).main.outputs[0].quantization.scale  # type: ignore[union-attr]
    proto = otp.convert(data, quantization="float").proto
    change_constants(8, lambda bias: bias + np.float32(steps * scale))(proto)
    assert verify(data, proto).ok != fails


def test_float_conversion_without_quantized_tensors_may_exceed_their_range() -> None:
    """Operands of submodels exceed QUANTIZE's range, where only LiteRT saturates."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 5, 7, 3)), g.tensor("y", (1, 9, 4, 3))
    steps = quant(0.016, -1)
    before, after = (
        g.tensor(name, shape, "int8", quantization=steps)
        for name, shape in (("before", (1, 5, 7, 3)), ("after", (1, 9, 4, 3)))
    )
    g.operator("QUANTIZE", [x], [before])
    g.operator("RESIZE_BILINEAR", [before, g.constant("size", np.array([9, 4], np.int32))], [after],
               {"half_pixel_centers": True})  # fmt: skip
    g.operator("DEQUANTIZE", [after], [y])
    g.output(y)
    data = model.build()
    assert verify(data, otp.convert(data, quantization="float")).ok
