"""A float scale and offset per channel are one depthwise convolution, where the blocked layout is around it."""

from __future__ import annotations

import numpy as np
import pytest
from passes_networks import Applied, Draw, Network, image

from conformance.builder import TensorRef
from conformance.models import Spec, constant, drawn


def per_channel(*shape: int, seed: str, dtype: str = "float32") -> Spec:
    return constant(drawn(*shape, dtype="float32", seed=seed).astype(dtype))


def normalized(net: Network, channels: int = 16, shape: tuple[int, ...] = (), rows: int = 5) -> TensorRef:
    """Batch normalization in front of an activation and a convolution."""
    x = net.conv(net.input(image(1, rows, 7, 3, dtype="float32")), channels, (1, 1), fused_activation_function="RELU")
    y = net.like("MUL", x, per_channel(*(shape or (1, 1, 1, channels)), seed="scale"))
    y = net.like("ADD", y, per_channel(1, 1, 1, channels, seed="offset"), fused_activation_function="RELU6")
    return net.conv(y, 32, (1, 1))


@pytest.mark.parametrize("shape", [(1, 1, 1, 16), (16,)])
def test_a_scale_and_an_offset_are_one_convolution(shape: tuple[int, ...]) -> None:
    applied = Applied("affine_as_convolution", lambda net: normalized(net, shape=shape))
    assert applied.count == 1
    assert applied.near(1e-6)
    assert len(applied.nodes("Conv")) == 3
    assert not {"Mul", "Add"} & {node.op_type for node in applied.after.graph.node}
    scale = drawn(*shape, dtype="float32", seed="scale").reshape(-1, 1, 1, 1)
    assert np.array_equal(applied.held(applied.nodes("Conv")[1], 1), scale)


def test_what_was_normalized_may_be_read_by_others_too() -> None:
    def draw(net: Network) -> TensorRef:
        x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU")
        y = net.like("ADD", net.like("MUL", x, per_channel(1, 1, 1, 16, seed="a")), per_channel(1, 1, 1, 16, seed="b"))
        return net.like("ADD", net.conv(net.like("EXP", y), 32, (1, 1)), net.conv(x, 32, (1, 1)))

    applied = Applied("affine_as_convolution", draw)
    assert applied.count == 1
    assert applied.near(1e-6)


def scaled_twice(net: Network) -> tuple[TensorRef, TensorRef]:
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU")
    y = net.like("MUL", x, per_channel(1, 1, 1, 16, seed="a"))
    return net.like("EXP", y), net.conv(net.like("ADD", y, per_channel(1, 1, 1, 16, seed="b")), 32, (1, 1))


def by_image(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU")
    y = net.like("ADD", net.like("MUL", x, per_channel(1, 5, 7, 16, seed="a")), per_channel(1, 1, 1, 16, seed="b"))
    return net.conv(y, 32, (1, 1))


def of_an_input(net: Network) -> TensorRef:
    x = net.input(image(1, 5, 7, 16, dtype="float32"))
    y = net.like("ADD", net.like("MUL", x, per_channel(1, 1, 1, 16, seed="a")), per_channel(1, 1, 1, 16, seed="b"))
    return net.like("SOFTMAX", y, beta=1.0)


def one_channel(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 1, (1, 1), fused_activation_function="RELU")
    y = net.call("MUL", [x, per_channel(1, 1, 1, 16, seed="a")], net.spec(x).shaped(1, 5, 7, 16))
    return net.conv(net.like("ADD", y, per_channel(1, 1, 1, 16, seed="b")), 32, (1, 1))


@pytest.mark.parametrize(
    "draw", [scaled_twice, by_image, of_an_input, one_channel, lambda net: normalized(net, 29)],
    ids=[
        "a product that others read", "a scale per place", "outside the blocked layout", "one channel for all",
        "channels that no block divides",
    ],
)  # fmt: skip
def test_others_are_left_alone(draw: Draw) -> None:
    assert Applied("affine_as_convolution", draw).count == 0
