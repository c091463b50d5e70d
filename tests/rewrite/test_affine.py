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
    applied = Applied("scale_offset_to_conv", lambda net: normalized(net, shape=shape))
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

    applied = Applied("scale_offset_to_conv", draw)
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


def scaled_and_shifted(*shape: int, op: str = "RELU", dtype: str = "float32", axes: int = 4) -> Draw:
    """A scale and an offset for each size of the axis behind the first, of what ``op`` makes of an input."""

    def draw(net: Network) -> TensorRef:
        x = net.input(image(*shape, dtype=dtype))
        x = net.like(op, x, *([constant(np.asarray(3, dtype))] if op == "MAXIMUM" else []))
        factors = (1, shape[1], 1, 1)[-axes:]
        scale, offset = (per_channel(*factors, seed=seed, dtype=dtype) for seed in "ab")
        return net.like("ADD", net.like("MUL", x, scale), offset)

    return draw


def of_a_result(net: Network) -> TensorRef:
    """The offset is no constant."""
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 16, (1, 1), fused_activation_function="RELU")
    y = net.like("ADD", net.like("MUL", x, per_channel(1, 1, 1, 16, seed="a")), net.like("NEG", x))
    return net.conv(y, 32, (1, 1))


def one_channel(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 5, 7, 3, dtype="float32")), 1, (1, 1), fused_activation_function="RELU")
    y = net.call("MUL", [x, per_channel(1, 1, 1, 16, seed="a")], net.spec(x).shaped(1, 5, 7, 16))
    return net.conv(net.like("ADD", y, per_channel(1, 1, 1, 16, seed="b")), 32, (1, 1))


def test_any_image_in_the_blocked_layout_is_taken() -> None:
    assert Applied("scale_offset_to_conv", scaled_and_shifted(1, 16, 5, 7)).count == 1


ALONE: dict[str, Draw] = {
    "a product that others read": scaled_twice,
    "a scale per place": by_image,
    "an offset that is computed": of_a_result,
    "outside the blocked layout": scaled_and_shifted(1, 16, 5, 7, op="EXP"),
    "one channel for all": one_channel,
    "channels that no block divides": lambda net: normalized(net, 29),
    "a single pixel": scaled_and_shifted(1, 16, 1, 1),
    "three axes": scaled_and_shifted(16, 16, 7, axes=3),
    "integers": scaled_and_shifted(1, 16, 5, 7, op="MAXIMUM", dtype="int32"),
}


@pytest.mark.parametrize("name", ALONE)
def test_others_are_left_alone(name: str) -> None:
    assert Applied("scale_offset_to_conv", ALONE[name]).count == 0
