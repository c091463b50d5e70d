"""Test per-operator comparison on models whose outputs hide a wrong operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array, tensor
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import Network, build_model, image
from tests.helpers.wrong_models import ModelChange, PlantedError, change_nodes

SHAPE = (1, 11, 7, 8)
UINT8 = (("weights_dtype", "uint8"),)  # exact on every processor
PLAIN = (("optimize", "none"),)  # nodes and weights as in the file

# --- networks ---------------------------------------------------------------------------------


def constant_sigmoid(net: Network) -> TensorRef:
    """Return a sigmoid that is always 1."""
    x = net.input(image(*SHAPE, dtype="float32"))
    first = net.conv(x, 8, name="first", fused_activation_function="RELU")
    second = net.conv(first, 8, name="second")
    joined = net.call("CONCATENATION", [first, second], Spec((*SHAPE[:3], 16)), axis=3)
    tiny_values = net.like("MUL", joined, constant(np.float32(1e-3)))
    return net.like("LOGISTIC", net.like("ADD", tiny_values, constant(np.float32(30.0))))


def zeros_convolution(net: Network) -> TensorRef:
    """Return a convolution of zeros, because RELU before it drops all values."""
    first = net.conv(net.input(image(*SHAPE, dtype="float32")), 8, name="first")
    zeros = net.like("RELU", net.like("SUB", first, constant(np.float32(1e3))))
    return net.conv(zeros, 8, name="second")


def saturated_network(net: Network) -> TensorRef:
    """Return a network whose outputs all saturate at 127."""
    first = net.conv(net.input(image(*SHAPE)), 8, name="first")
    second = net.conv(first, 8, name="second")
    spec = net.spec(second)
    maximum = constant(np.full((1,), 127, np.int8), "int8", spec.scale, spec.zero_point)
    return net.like("MAXIMUM", second, maximum)


def shared_table(net: Network) -> TensorRef:
    """Return a network whose dequantized table serves GATHER and a product."""
    stored = constant(random_array(23, 8, dtype="int8"), "int8", 0.01)
    table = net.call("DEQUANTIZE", [stored], tensor(23, 8))
    rows = net.call("GATHER", [table, net.input(tensor(1, 5, dtype="int32", scale=0))], tensor(1, 5, 8), axis=0)
    return net.call("FULLY_CONNECTED", [rows, table, None], tensor(1, 5, 23), keep_num_dims=True)


def far_beyond_16_bits(net: Network) -> TensorRef:
    """Return a product with an operand that is always zero, but has a large scale."""
    x = net.input(tensor(1, 3, 16, dtype="int8", scale=0.0011, zero_point=-20))
    zeros = net.call(
        "MUL", [x, constant(np.int8(1), "int8", 1e-9)], tensor(1, 3, 16, dtype="int8", scale=3921.0, zero_point=-128)
    )
    return net.call("MUL", [zeros, x], tensor(1, 3, 16, dtype="int8", scale=0.0045, zero_point=-33))


def far_beyond_32_bits(net: Network) -> TensorRef:
    """Return a difference that is always zero, so that its scale is tiny."""
    x = net.like("ADD", net.input(image(1, 3, 16, 1)), constant(np.int8(7), "int8", 0.047))
    maximum = net.like("REDUCE_MAX", x, constant(np.array([3], np.int32)), keep_dims=True)
    zeros = net.call("SUB", [x, maximum], tensor(1, 3, 16, 1, dtype="int8", scale=4e-12, zero_point=-128))
    return net.like("ADD", x, zeros)


def merged_reshape(net: Network) -> TensorRef:
    """Return a sum times its no-op reshape; both are one tensor in ONNX."""
    x = net.input(tensor(1, 2, 3, 5, 7))
    summed = net.like("ADD", net.like("MAXIMUM", x, constant(random_array(7))), x)
    reshaped = net.call("RESHAPE", [summed, constant(np.array([1, 2, 3, 5, 7], np.int32))], tensor(1, 2, 3, 5, 7))
    net.output(reshaped)
    return net.like("MUL", reshaped, summed)


# --- planted errors ---------------------------------------------------------------------------


def change_kernels(change: Callable[[list[Array]], list[Array]]) -> ModelChange:
    """Change the weights of all 3 x 3 convolutions."""

    def change_model(proto: onnx.ModelProto) -> None:
        kernels = [kernel for kernel in proto.graph.initializer if list(kernel.dims) == [8, 8, 3, 3]]
        assert len(kernels) == 2
        for kernel, array in zip(
            kernels, change([numpy_helper.to_array(initializer) for initializer in kernels]), strict=True
        ):
            kernel.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), kernel.name))

    return change_model


def change_last_kernel(change: Callable[[Array], Array]) -> ModelChange:
    return change_kernels(lambda arrays: [*arrays[:-1], change(arrays[-1])])


def swap_inputs(node: onnx.NodeProto) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def change_parameter(slot: int, change: Callable[[Any, float], Any]) -> ModelChange:
    """Change a quantized value or a scale of an operand of the last convolution.

    The operand is ``slot // 2``; an even ``slot`` changes a quantized value, an odd ``slot`` a scale. ``change`` gets
    the old value and a quantization step of the result in units of the operand.
    """

    def change_model(proto: onnx.ModelProto) -> None:
        graph = proto.graph
        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        producers = {name: node for node in graph.node for name in node.output}
        conv = [node for node in graph.node if node.op_type == "Conv"][-1]
        [quantize] = [node for node in graph.node if conv.output[0] in node.input]
        node = producers[conv.input[slot // 2]]
        step = float(arrays[quantize.input[1]]) / float(arrays[node.input[1]][3])
        array = arrays[node.input[slot % 2]].copy()
        array[3] = change(array[3], step)
        graph.initializer.append(numpy_helper.from_array(array, "another"))
        node.input[slot % 2] = "another"

    return change_model


def saturate_early(proto: onnx.ModelProto) -> None:
    """Saturate the first convolution's result sooner."""
    conv = next(node for node in proto.graph.node if node.op_type == "Conv")
    [quantize] = [node for node in proto.graph.node if conv.output[0] in node.input]
    name = quantize.output[0]
    quantize.output[0] = "wider"
    for text, number in (("low", 40), ("high", 215)):
        proto.graph.initializer.append(numpy_helper.from_array(np.array(number, np.uint8), text))
    proto.graph.node.insert(
        [*proto.graph.node].index(quantize) + 1, helper.make_node("Clip", ["wider", "low", "high"], [name])
    )


def replace_by_identity(node: onnx.NodeProto) -> None:
    node.op_type = "Identity"


WRONG: dict[str, PlantedError] = {
    "swapped weights of equal shape": PlantedError(
        constant_sigmoid, change_kernels(lambda arrays: arrays[::-1]), options=PLAIN
    ),
    "mirrored kernel": PlantedError(constant_sigmoid, change_last_kernel(lambda w: w[..., ::-1]), options=PLAIN),
    "transposed kernel": PlantedError(constant_sigmoid, change_last_kernel(lambda w: w.swapaxes(2, 3)), options=PLAIN),
    "one channel off by 1 %": PlantedError(
        constant_sigmoid,
        change_last_kernel(lambda w: w * (1 + 0.01 * (np.arange(8) == 5))[:, None, None, None].astype(w.dtype)),
        options=PLAIN,
    ),
    "missing RELU": PlantedError(constant_sigmoid, change_nodes("Relu", replace_by_identity), options=PLAIN),
    "swapped CONCATENATION operands": PlantedError(
        constant_sigmoid, change_nodes("Concat", swap_inputs), options=PLAIN
    ),
    "reversed kernel on zeros": PlantedError(zeros_convolution, change_last_kernel(lambda w: w[::-1]), options=PLAIN),
    "swapped channels on zeros": PlantedError(
        zeros_convolution, change_last_kernel(lambda w: w[[1, 0, *range(2, 8)]]), options=PLAIN
    ),
    "bias of one channel off by one step": PlantedError(
        saturated_network, change_parameter(4, lambda bias, step: bias + round(step)), options=UINT8
    ),
    "scale of one channel": PlantedError(
        saturated_network, change_parameter(3, lambda scale, _: scale * 1.1), options=UINT8
    ),
    "early saturation": PlantedError(saturated_network, saturate_early, options=UINT8),
    "mirrored integer kernel": PlantedError(
        saturated_network, change_last_kernel(lambda w: w[..., ::-1]), options=UINT8
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_finds_a_wrong_operator_although_outputs_agree(name: str) -> None:
    data, before, after = WRONG[name].models()
    assert verify(data, before).ok
    verification = verify(data, after)
    assert not verification.ok
    assert verification.comparisons[0].ok


@pytest.mark.parametrize("build", [shared_table, far_beyond_16_bits, merged_reshape])
def test_ignores_overflow_caused_only_by_random_operands(build: Callable[[Network], TensorRef]) -> None:
    data = build_model(build)
    verification = verify(data, otp.convert(data).proto)
    assert verification.ok, verification.text


def test_undefined_behavior_in_litert_is_inconclusive() -> None:
    data = build_model(far_beyond_32_bits)
    verification = verify(data, otp.convert(data).proto)
    assert verification.verdict == "inconclusive", verification.text
    assert "'t5' of SUB: LiteRT's rescaling factor exceeds the kernel's shift" in verification.text


def test_float_conversion_may_merge_a_saturated_tensor() -> None:
    """QUANTIZE disappears, and other readers get the tensor before saturation."""

    def build(net: Network) -> TensorRef:
        x = net.input(tensor(1, 5, 7, 3, dtype="int8", scale=0.047, zero_point=0))
        reversed_input = net.call("REVERSE_V2", [x, constant(np.array([2], np.int32))], net.spec(x))
        net.output(
            net.call("QUANTIZE", [reversed_input], tensor(1, 5, 7, 3, dtype="int8", scale=0.0061, zero_point=-128))
        )
        return net.conv(reversed_input, 8)

    data = build_model(build)
    verification = verify(data, otp.convert(data, quantization="float").proto)
    assert verification.ok, verification.text
