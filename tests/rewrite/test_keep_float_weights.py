"""Float weights between quantized parts stay float.

Integer kernels on the same tensor stay integer.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array, tensor
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import RULES, Network, apply, parse_model


def float_part(net: Network, *, transposed: bool = False, scale: float = 0.05) -> TensorRef:
    """Build a float convolution between DEQUANTIZE and QUANTIZE.

    ``transposed``: a TRANSPOSE precedes the convolution.
    """
    x = net.input(tensor(1, 5, 5, 3, dtype="int8", scale=scale))
    floats = net.call("DEQUANTIZE", [x], Spec((1, 5, 5, 3)))
    if transposed:
        floats = net.call("TRANSPOSE", [floats, constant([0, 2, 1, 3])], Spec((1, 5, 5, 3)))
    weights = 0.1 * random_array(7, 1, 1, 3, seed="weights")
    weights[0, 0, 0, 0] = 4.0
    operands: list[Spec | TensorRef | None] = [floats, constant(weights), constant(random_array(7, seed="bias"))]
    y = net.call("CONV_2D", operands, Spec((1, 5, 5, 7)), stride_h=1, stride_w=1)
    z = net.call("QUANTIZE", [y], tensor(1, 5, 5, 7, dtype="int8"))
    return net.like("ADD", z, net.conv(x, 7, (1, 1)))


def build_model(*, transposed: bool = False, scale: float = 0.05) -> bytes:
    net = Network()
    net.output(float_part(net, transposed=transposed, scale=scale))
    return net.build()


def producers(proto: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in proto.graph.node for name in node.output}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scale", [0.05, 1.0, 2.0])
@pytest.mark.parametrize("target", ["onnxruntime", "generic"])
def test_float_weights_are_not_quantized(target: str, scale: float, transposed: bool) -> None:
    data = build_model(transposed=transposed, scale=scale)
    assert verify(data, otp.convert(data, target=target)).ok


@pytest.mark.parametrize("transposed", [False, True])
def test_onnx_runtime_quantizes_float_weights_without_the_rewrite(
    transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this test fails with a newer ONNX Runtime, the rewrite is no longer needed."""
    monkeypatch.setitem(
        RULES, "keep_float_weights", RULES["keep_float_weights"]._replace(operators=frozenset({"none"}))
    )
    data = build_model(transposed=transposed)
    assert not verify(data, otp.convert(data)).ok


def test_integer_kernel_keeps_its_quantized_operand() -> None:
    proto = otp.convert(build_model()).proto
    producer_of = producers(proto)
    operand_producers = {producer_of[node.input[0]].op_type for node in proto.graph.node if node.op_type == "Conv"}
    assert operand_producers == {"DequantizeLinear", "Mul"}
    (factor,) = (node for node in proto.graph.node if node.op_type == "Mul")
    scale_name = producer_of[factor.input[0]].input[1]
    (scale,) = (
        onnx.numpy_helper.to_array(initializer)
        for initializer in proto.graph.initializer
        if initializer.name == scale_name
    )
    assert scale == np.float32(1)


UNIT = "a = DequantizeLinear (x, s, p) b = Conv (a, w) y = QuantizeLinear (b, s, p)"
TRANSPOSED = "t = Transpose <perm = [0, 1, 3, 2]>"


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (UNIT, 1),
        (UNIT.replace("(x, s, p)", "<axis = 1> (x, ss, pp)"), 0),
        (UNIT.replace("y =", "c = Add (b, w) y =").replace("(b, s", "(c, s"), 0),
        (UNIT + " z = Relu (b)", 0),
        (UNIT.replace("Conv", "MatMul"), 1),
        (UNIT.replace("Conv", "MatMul").replace("y =", "c = Add (b, w) y =").replace("(b, s", "(c, s"), 1),
        (UNIT.replace("b = Conv (a", f"{TRANSPOSED} (a) u = MaxPool <kernel_shape = [1, 1]> (t) b = Conv (u"), 1),
        (UNIT.replace("b = Conv (a", "t = Relu (a) b = Conv (t"), 0),
        (UNIT.replace("y =", f"c = Relu (b) {TRANSPOSED} (c) y =").replace("(b, s", "(t, s"), 1),
        (UNIT.replace("y =", "c = Sigmoid (b) y =").replace("(b, s", "(c, s"), 0),
    ],
    ids=[
        "one scale",
        "a scale per channel",
        "a sum",
        "read by others",
        "MatMul",
        "MatMul and a sum",
        "after a Transpose and a pool",
        "an activation before it",
        "an activation and a Transpose after it",
        "a function after it",
    ],
)
def test_rewrite_applies_if_onnx_runtime_would_quantize_the_weights(nodes: str, count: int) -> None:
    scale, zero_point = np.float32(0.05), np.uint8(120)
    constants = {
        "s": scale,
        "p": zero_point,
        "ss": np.full(3, scale),
        "pp": np.full(3, zero_point),
        "w": random_array(3, 3, 1, 1),
    }
    outputs = "uint8[1,3,c,h] y" + (", float[1,3,c,h] z" if " z = " in nodes else "")
    constants["w"] = random_array(3, 3, 1, 1) if "MatMul" not in nodes else random_array(1, 3, 1, 1)
    model = parse_model(f"(uint8[1,3,1,1] x) => ({outputs}) {{ {nodes} }}", **constants)
    assert apply("keep_float_weights", model) == count


def test_names_written_into_an_inner_graph_are_unique() -> None:
    branches = (
        "then_branch = taken () => (uint8[1,3,1,1] taken_y) "
        "{ a = DequantizeLinear (x, s, p) m = Mul (o, o) b = Conv (a, w, m) taken_y = QuantizeLinear (b, s, p) }, "
        "else_branch = left () => (uint8[1,3,1,1] left_y) { left_y = Identity (x) }"
    )
    constants = {"s": np.float32(0.05), "p": np.uint8(120), "w": random_array(3, 3, 1, 1), "o": random_array(3)}
    graph = f"(bool condition, uint8[1,3,1,1] x) => (uint8[1,3,1,1] y) {{ y = If (condition) <{branches}> }}"
    model = parse_model(graph, **constants)
    inner = [node for node in model.graph.all_nodes() if node.graph is not model.graph]
    for node in inner:
        node.name = f"op1/{node.op_type}"
        node.outputs[0].name = f"{node.name}:out"
    assert apply("keep_float_weights", model) == 1
    for names in (
        [node.name for node in model.graph.all_nodes() if node.name],
        [value.name for node in model.graph.all_nodes() for value in node.outputs],
    ):
        assert len({*names}) == len(names)
