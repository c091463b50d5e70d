"""Integers of 16 bits are dequantized by one node, which ONNX Runtime takes for no part of a quantized unit."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, apply, parsed

from conformance.builder import TensorRef
from conformance.models import tensor
from conformance.weights import product, weight
from onnx_tflite_plugin.verify import verify


def image(net: Network, batch: int | None = 1) -> TensorRef:
    return net.input(tensor(batch, 7, 11, 3, dtype="int16"))


def convolutions(batch: int | None) -> Draw:
    return lambda net: conv(net, conv(net, image(net, batch), 5), 13)


def conv(net: Network, x: TensorRef, features: int) -> TensorRef:
    return net.conv(x, features, weights="int8", quantized_bias_type="INT32")


def residual(net: Network) -> TensorRef:
    """A tensor that a convolution takes and a sum, and another that a sum takes alone."""
    x = conv(net, image(net), 5)
    return net.like("ADD", x, conv(net, x, 5))


def dense(rows: int, both: bool = False, columns: int = 7) -> Draw:
    """A dense layer, or the sum of two."""

    def draw(net: Network) -> TensorRef:
        given = tensor(rows, columns, dtype="int16")
        made = []
        for seed in ("w", "v") if both else ("w",):
            w = weight((5, columns), "int8", 0, seed=seed)
            made.append(net.call("FULLY_CONNECTED", [net.input(given), w, None], product(given, w, (rows, 5), columns)))
        return net.like("ADD", *made) if both else made[0]

    return draw


@pytest.mark.parametrize("batch", [1, None])
def test_an_image_is_dequantized_with_a_scale_for_each_channel(batch: int | None) -> None:
    applied = Applied("dequantize_int16", convolutions(batch), batch=2)
    assert applied.count == 2
    assert applied.equal
    assert verify(applied.data, applied.after).ok
    nodes = [node for node in applied.nodes("DequantizeLinear") if len(applied.held(node, 1).shape) == 1]
    assert [applied.held(node, 1).shape for node in nodes] == [(3,), (5,)]
    assert [a.i for node in nodes for a in node.attribute] == [1, 1]


def test_weights_stay_float32_in_onnx_runtime() -> None:
    """What ONNX Runtime had quantized anew, it would dequantize in each run."""
    applied = Applied("dequantize_int16", convolutions(1))
    assert applied.fused["Conv"] == 2
    assert applied.fused["DequantizeLinear"] == len(applied.nodes("DequantizeLinear"))


def test_what_operators_take_element_by_element_has_one_scale() -> None:
    applied = Applied("dequantize_int16", dense(3, both=True))
    assert applied.count == 2
    assert applied.equal
    made = [node for node in applied.nodes("DequantizeLinear") if node.output[0] in applied.nodes("Add")[0].input]
    assert [applied.held(node, 1).shape for node in made] == [(), ()]
    assert verify(applied.data, applied.after).ok


def test_what_several_operators_take_is_multiplied_once() -> None:
    applied = Applied("dequantize_int16", residual)
    assert applied.equal
    casts = [node.output[0] for node in applied.nodes("Cast")]
    several = [node for node in applied.nodes("Mul") if node.input[0] in casts and taken(applied, node.output[0]) > 1]
    assert len(several) == 1


def taken(applied: Applied, name: str) -> int:
    return sum([*node.input].count(name) for node in applied.after.graph.node)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_few_numbers_in_front_of_a_product_are_multiplied(rows: int) -> None:
    applied = Applied("dequantize_int16", dense(rows))
    gemm = applied.nodes("Gemm")[0]
    makers = {name: node.op_type for node in applied.after.graph.node for name in node.output}
    assert makers[gemm.input[0]] == "Mul"


@pytest.mark.parametrize(("rows", "count"), [(3, 1), (2**16 + 1, 0)])
def test_one_scale_is_not_written_once_for_each_of_many_rows(rows: int, count: int) -> None:
    assert Applied("dequantize_int16", dense(rows, columns=17)).count == count


@pytest.mark.parametrize(
    ("nodes", "opset", "count"),
    [
        ("a = Cast <to = 1> (x) b = Mul (a, s) y = Tanh (b)", 21, 1),
        ("a = Cast <to = 1> (x) b = Mul (a, s) y = Tanh (b)", 20, 0),
        ("a = Cast <to = 1> (x) b = Mul (a, each) y = Tanh (b)", 21, 0),
        ("a = Cast <to = 1> (x) b = Mul (a, s) c = Abs (a) d = Tanh (b) y = Add (c, d)", 21, 0),
        ("a = Cast <to = 1> (stored) b = Mul (a, s) y = Add (b, z)", 21, 0),
        ("a = Cast <to = 1> (words) b = Mul (a, s) y = Tanh (b)", 21, 0),
    ],
    ids=["16 bits", "an opset before", "a scale for each column", "a Cast that others read", "a constant", "32 bits"],
)
def test_a_cast_and_a_product_with_one_scale_are_dequantized(nodes: str, opset: int, count: int) -> None:
    graph = f"(int16[3,5] x, int32[3,5] words, float[3,5] z) => (float[3,5] y) {{ {nodes} }}"
    stored = {
        "s": np.float32(0.5),
        "each": np.full(5, 0.5, np.float32),
        "stored": np.arange(15, dtype=np.int16).reshape(3, 5),
    }
    assert apply("dequantize_int16", parsed(graph, opset, **stored)) == count
