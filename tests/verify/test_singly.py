"""Models that are wrong where no output shows it: each operator is compared by itself, and the right model passes."""

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
from tests.helpers.wrong_models import Spoil, Wrong, change_nodes

SHAPE = (1, 11, 7, 8)
UINT8 = (("weights_dtype", "uint8"),)  # which are exact on every processor
PLAIN = (("optimize", "none"),)  # nodes and weights as the file has them

# --- networks ---------------------------------------------------------------------------------


def sure(net: Network) -> TensorRef:
    """A sigmoid that is 1 whatever comes in."""
    x = net.input(image(*SHAPE, dtype="float32"))
    first = net.conv(x, 8, name="first", fused_activation_function="RELU")
    second = net.conv(first, 8, name="second")
    joined = net.call("CONCATENATION", [first, second], Spec((*SHAPE[:3], 16)), axis=3)
    faint = net.like("MUL", joined, constant(np.float32(1e-3)))
    return net.like("LOGISTIC", net.like("ADD", faint, constant(np.float32(30.0))))


def dead(net: Network) -> TensorRef:
    """A convolution that takes zeros, for nothing comes through the RELU before it."""
    first = net.conv(net.input(image(*SHAPE, dtype="float32")), 8, name="first")
    low = net.like("RELU", net.like("SUB", first, constant(np.float32(1e3))))
    return net.conv(low, 8, name="second")


def saturate(net: Network) -> TensorRef:
    """Integers that are all 127 at the end."""
    first = net.conv(net.input(image(*SHAPE)), 8, name="first")
    second = net.conv(first, 8, name="second")
    spec = net.spec(second)
    most = constant(np.full((1,), 127, np.int8), "int8", spec.scale, spec.zero_point)
    return net.like("MAXIMUM", second, most)


def share(net: Network) -> TensorRef:
    """Weights of 8 bits, dequantized once for the rows of a table and for the product with its columns."""
    stored = constant(random_array(23, 8, dtype="int8"), "int8", 0.01)
    table = net.call("DEQUANTIZE", [stored], tensor(23, 8))
    rows = net.call("GATHER", [table, net.input(tensor(1, 5, dtype="int32", scale=0))], tensor(1, 5, 8), axis=0)
    return net.call("FULLY_CONNECTED", [rows, table, None], tensor(1, 5, 23), keep_num_dims=True)


def far_beyond_16_bits(net: Network) -> TensorRef:
    """A product by what is zero on every input, and by its scale could be large."""
    x = net.input(tensor(1, 3, 16, dtype="int8", scale=0.0011, zero_point=-20))
    zeros = net.call(
        "MUL", [x, constant(np.int8(1), "int8", 1e-9)], tensor(1, 3, 16, dtype="int8", scale=3921.0, zero_point=-128)
    )
    return net.call("MUL", [zeros, x], tensor(1, 3, 16, dtype="int8", scale=0.0045, zero_point=-33))


def far_beyond_32_bits(net: Network) -> TensorRef:
    """A difference that is always zero, as before a softmax of one, so that it was calibrated to no range."""
    x = net.like("ADD", net.input(image(1, 3, 16, 1)), constant(np.int8(7), "int8", 0.047))
    most = net.like("REDUCE_MAX", x, constant(np.array([3], np.int32)), keep_dims=True)
    zeros = net.call("SUB", [x, most], tensor(1, 3, 16, 1, dtype="int8", scale=4e-12, zero_point=-128))
    return net.like("ADD", x, zeros)


def alike(net: Network) -> TensorRef:
    """A sum times itself reshaped to the shape it has, which are one tensor in ONNX."""
    x = net.input(tensor(1, 2, 3, 5, 7))
    summed = net.like("ADD", net.like("MAXIMUM", x, constant(random_array(7))), x)
    same = net.call("RESHAPE", [summed, constant(np.array([1, 2, 3, 5, 7], np.int32))], tensor(1, 2, 3, 5, 7))
    net.output(same)
    return net.like("MUL", same, summed)


# --- what is spoilt ---------------------------------------------------------------------------


def kernels(change: Callable[[list[Array]], list[Array]]) -> Spoil:
    """The weights of all 3 x 3 convolutions."""

    def spoil(proto: onnx.ModelProto) -> None:
        stored = [one for one in proto.graph.initializer if list(one.dims) == [8, 8, 3, 3]]
        assert len(stored) == 2
        for one, array in zip(stored, change([numpy_helper.to_array(each) for each in stored]), strict=True):
            one.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), one.name))

    return spoil


def last_kernel(change: Callable[[Array], Array]) -> Spoil:
    return kernels(lambda arrays: [*arrays[:-1], change(arrays[-1])])


def exchange(node: onnx.NodeProto) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def parameter(slot: int, change: Callable[[Any, float], Any]) -> Spoil:
    """One of 8 channels' integer (``slot`` even) or scale of an operand of the last convolution, whose operand is ``slot // 2``.

    ``change`` is told how many of its integers are a step of the result.
    """

    def spoil(proto: onnx.ModelProto) -> None:
        graph = proto.graph
        held = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        makers = {name: node for node in graph.node for name in node.output}
        conv = [node for node in graph.node if node.op_type == "Conv"][-1]
        [quantize] = [node for node in graph.node if conv.output[0] in node.input]
        node = makers[conv.input[slot // 2]]
        step = float(held[quantize.input[1]]) / float(held[node.input[1]][3])
        array = held[node.input[slot % 2]].copy()
        array[3] = change(array[3], step)
        graph.initializer.append(numpy_helper.from_array(array, "another"))
        node.input[slot % 2] = "another"

    return spoil


def clip(proto: onnx.ModelProto) -> None:
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


def no_bound(node: onnx.NodeProto) -> None:
    node.op_type = "Identity"


WRONG: dict[str, Wrong] = {
    "two weights of one shape exchanged": Wrong(sure, kernels(lambda arrays: arrays[::-1]), options=PLAIN),
    "a kernel mirrored": Wrong(sure, last_kernel(lambda w: w[..., ::-1]), options=PLAIN),
    "rows and columns of a kernel exchanged": Wrong(sure, last_kernel(lambda w: w.swapaxes(2, 3)), options=PLAIN),
    "one channel of 8 by 1 %": Wrong(
        sure,
        last_kernel(lambda w: w * (1 + 0.01 * (np.arange(8) == 5))[:, None, None, None].astype(w.dtype)),
        options=PLAIN,
    ),
    "a RELU dropped": Wrong(sure, change_nodes("Relu", no_bound), options=PLAIN),
    "operands joined in another order": Wrong(sure, change_nodes("Concat", exchange), options=PLAIN),
    "a kernel that is never reached": Wrong(dead, last_kernel(lambda w: w[::-1]), options=PLAIN),
    "two channels of what is never reached": Wrong(dead, last_kernel(lambda w: w[[1, 0, *range(2, 8)]]), options=PLAIN),
    "a bias by one step in one channel": Wrong(
        saturate, parameter(4, lambda bias, step: bias + round(step)), options=UINT8
    ),
    "the scale of one of 8 channels": Wrong(saturate, parameter(3, lambda scale, _: scale * 1.1), options=UINT8),
    "integers that saturate too soon": Wrong(saturate, clip, options=UINT8),
    "a kernel of integers mirrored": Wrong(saturate, last_kernel(lambda w: w[..., ::-1]), options=UINT8),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operator_fails_though_the_output_agrees_and_the_right_one_passes(name: str) -> None:
    data, before, after = WRONG[name].models()
    assert verify(data, before).ok
    judged = verify(data, after)
    assert not judged.ok
    assert judged.comparisons[0].ok


@pytest.mark.parametrize("draw", [share, far_beyond_16_bits, alike])
def test_what_only_drawn_operands_bring_about_is_no_error_of_the_model(draw: Callable[[Network], TensorRef]) -> None:
    data = build_model(draw)
    judged = verify(data, otp.convert(data).proto)
    assert judged.ok, judged.text


def test_what_c_leaves_undefined_in_litert_is_inconclusive() -> None:
    data = build_model(far_beyond_32_bits)
    judged = verify(data, otp.convert(data).proto)
    assert judged.verdict == "inconclusive", judged.text
    assert "'t5' of SUB: LiteRT's rescaling factor exceeds the kernel's shift" in judged.text


def test_without_quantization_a_tensor_and_what_saturates_of_it_are_one_value_and_right() -> None:
    """A QUANTIZE is nothing there, and what others read of the tensor is not what LiteRT made of it."""

    def draw(net: Network) -> TensorRef:
        x = net.input(tensor(1, 5, 7, 3, dtype="int8", scale=0.047, zero_point=0))
        turned = net.call("REVERSE_V2", [x, constant(np.array([2], np.int32))], net.spec(x))
        net.output(net.call("QUANTIZE", [turned], tensor(1, 5, 7, 3, dtype="int8", scale=0.0061, zero_point=-128)))
        return net.conv(turned, 8)

    data = build_model(draw)
    judged = verify(data, otp.convert(data, quantization="float").proto)
    assert judged.ok, judged.text
