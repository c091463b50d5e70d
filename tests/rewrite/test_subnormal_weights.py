"""Weights that are subnormal numbers become zeros, as which XNNPACK takes them; what is no weight stays."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, built, image, parsed

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import constant, drawn, tensor
from onnx_tflite_plugin.rewrite.weights import subnormal_weights
from onnx_tflite_plugin.source.model import Array

SUBNORMAL = np.float32(3e-40)
LEAST = np.finfo(np.float32).smallest_normal


def speckled(*shape: int, tiny: np.float32 = SUBNORMAL) -> Array:
    """Weights of which every third is next to nothing, of either sign."""
    weights = drawn(*shape, seed="w", dtype="float32")
    weights.reshape(-1)[::3] = tiny
    weights.reshape(-1)[::6] = -tiny
    return weights


def conv(net: Network, tiny: np.float32 = SUBNORMAL) -> TensorRef:
    x = net.input(image(1, 11, 13, 5, dtype="float32"))
    operands = [x, constant(speckled(7, 3, 5, 5, tiny=tiny)), constant(drawn(7, seed="b"))]
    return net.call("CONV_2D", operands, tensor(1, 11, 13, 7), padding="SAME", stride_h=1, stride_w=1)


def dense(net: Network) -> TensorRef:
    operands = [net.input(tensor(3, 11)), constant(speckled(7, 11)), constant(drawn(7, seed="b"))]
    return net.call("FULLY_CONNECTED", operands, tensor(3, 7))


FLUSHED: dict[str, tuple[str, Draw]] = {"CONV_2D": ("Conv", conv), "FULLY_CONNECTED": ("Gemm", dense)}


@pytest.mark.parametrize("op", FLUSHED)
def test_subnormal_weights_become_zeros_and_no_other_does(op: str) -> None:
    op_type, draw = FLUSHED[op]
    applied = Applied("subnormal_weights", draw)
    assert applied.count == 1
    assert applied.equal
    [node] = applied.nodes(op_type)
    weights = applied.held(node, 1)
    assert np.count_nonzero(weights == 0) == -(-weights.size // 3)
    assert np.abs(weights[weights != 0]).min() >= LEAST


def test_it_agrees_with_the_original() -> None:
    assert otp.convert(built(conv), verify=True).report.passes["subnormal_weights"] == 1


def offset(net: Network) -> TensorRef:
    """A term of a sum is no weight."""
    return net.like("ADD", net.input(tensor(3, 7)), constant(speckled(3, 7)))


LEFT: dict[str, Draw] = {"the least normal number": lambda net: conv(net, LEAST), "a term": offset}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_subnormal_weight_is_left_alone(name: str) -> None:
    assert Applied("subnormal_weights", LEFT[name]).count == 0


@pytest.mark.parametrize(
    ("kind", "product", "count"),
    [("float", "MatMul (x, tiny)", 1), ("float", "Gemm (x, plain, row)", 0), ("double", "MatMul (x, tiny)", 0)],
    ids=["weights", "a bias", "64 bits"],
)
def test_weights_of_32_bits_alone_are_flushed(kind: str, product: str, count: int) -> None:
    dtype = {"float": np.float32, "double": np.float64}[kind]
    tiny = np.full((5, 5), 3e-40, dtype)
    model = parsed(
        f"({kind}[3,5] x) => ({kind}[3,5] y) {{ y = {product} }}", tiny=tiny, row=tiny[0], plain=np.ones_like(tiny)
    )
    assert subnormal_weights.run(model) == count
